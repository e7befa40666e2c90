"""What peers make the broker keep for a moment, in bytes, against one bound: ``memory_bytes``.

Of every four parts of it

* one is for what was received and is not on disk yet: beyond it nobody is read from (``Runtime.congested``);
* two are for *input* that can't be worked on yet, that is unfinished messages and frames that wait: beyond it the peers
  that have kept us waiting longest are closed;
* one is for *output*, that is answers and deliveries that were prepared and not taken. It is asked for before a payload
  is looked up. Where there is none, the session waits in line, the message stays in the journal, and peers that do not
  take what they have are closed while somebody waits.

Nobody can shut the others out: a few kilobytes are given whatever happens to who has nothing, whoever is at the head of
the line gets its answer as soon as half of the output's part is free, however large it is, and the line goes from one
address to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Output that a peer may always have, if it has taken all before: so much for each of ten thousand is 40 MB.
SMALL: Final = 4 * 1024
#: Answers and deliveries above this are prepared one after the other, TURN_BYTES of them in a turn of the loop, or one.
LARGE: Final = 128 * 1024
TURN_BYTES: Final = 2**19
#: Seconds without taking a byte after which a peer goes, if another one waits for the memory.
PATIENCE: Final = 2.0


class Memory:
    """The account. Sessions tell it what they hold, and ask it before they prepare output."""

    def __init__(self, memory_bytes: int) -> None:
        self.most_unwritten = max(1, memory_bytes // 4)
        self.most_input = max(1, memory_bytes // 2)
        self.most_output = max(1, memory_bytes // 4)
        self.input = 0
        self.output = 0
        #: Bytes of large output that may still be prepared in this turn.
        self.large_left = TURN_BYTES
        #: Sessions that hold anything.
        self.holders: set[AnySession] = set()
        #: Sessions whose next answer did not fit, and how large it is, by where they come from; in turn.
        self._line: dict[str, dict[AnySession, int]] = {}

    def note(self, session: AnySession, held_input: int, held_output: int) -> None:
        """A session holds so much now."""
        account = session.account
        self.input += held_input - account.input
        self.output += held_output - account.output
        account.hold(held_input, held_output)
        if held_input or held_output:
            self.holders.add(session)
        else:
            self.holders.discard(session)

    def prepared(self, session: AnySession, size: int) -> None:
        """A session has so much more output."""
        self.output += size
        session.account.add_output(size)
        self.holders.add(session)

    def reserve(self, size: int) -> None:
        """Output is about to be prepared: its payloads are being read. A negative size gives memory back."""
        self.output += size

    def grant(self, session: AnySession, size: int, most: int) -> int:
        """How many bytes of output a session may prepare now, whose next answer has ``size``; ``most`` at most.

        An answer is not cut in two, so it is ``size`` or more; 0: it has to wait, and is told to go on.
        """
        free = self.most_output - self.output
        if size > LARGE:
            granted = 0 if self.large_left <= 0 else self._grant_next(session, size, most, free)
            self.large_left -= granted
        elif size <= free and (not self._line or free >= self.most_output // 2):
            granted = max(size, min(most, free))
        else:
            granted = self._grant_next(session, size, most, free)
        if granted:
            if self._line:
                self._leave_line(session)
        elif size <= SMALL and not session.account.output:
            return SMALL
        else:
            self._line.setdefault(session.origin, {})[session] = size
        return granted

    def _grant_next(self, session: AnySession, size: int, most: int, free: int) -> int:
        """What is granted to the head of the line, or if there is none."""
        if not self._is_next(session):
            return 0
        if size > free and free < self.most_output // 2:
            return 0
        self._leave_line(session, served=True)
        return max(size, min(most, free))

    def forget(self, session: AnySession) -> None:
        """A session is gone."""
        self.note(session, 0, 0)
        self._leave_line(session)

    def withdraw(self, session: AnySession) -> None:
        """A session has nothing more to prepare."""
        if self._line:
            self._leave_line(session)

    @property
    def next_in_line(self) -> AnySession | None:
        """Whose turn it is to get memory for output."""
        for sessions in self._line.values():
            return next(iter(sessions))
        return None

    @property
    def awaited(self) -> bool:
        """Whether anybody stands in the line."""
        return bool(self._line)

    @property
    def can_go_on(self) -> bool:
        """Whether the session at the head of the line would get its memory now."""
        if not self._line:
            return False
        size = next(iter(next(iter(self._line.values())).values()))
        free = self.most_output - self.output
        return size <= free or free >= self.most_output // 2

    def slow_senders(self) -> list[AnySession]:
        """Who has to go, so that the input's part is held: those that have kept us waiting longest."""
        over, found = self.input - self.most_input, []
        if over <= 0:
            return []
        for session in sorted((each for each in self.holders if each.account.input), key=_input_since):
            if over <= 0:
                break
            over -= session.account.input
            found.append(session)
        return found

    def slow_readers(self, now: float) -> list[AnySession]:
        """Who has to go, because others wait for the memory of what they do not take. None, if nobody waits."""
        if not self._line or self.can_go_on:
            return []
        return [session for session in self.holders if _is_late(session, now)]

    def _is_next(self, session: AnySession) -> bool:
        return not self._line or self.next_in_line is session

    def _leave_line(self, session: AnySession, *, served: bool = False) -> None:
        sessions = self._line.get(session.origin)
        if sessions is None or sessions.pop(session, None) is None:
            return
        if not sessions:
            del self._line[session.origin]
        elif served:  # the next turn is another address's
            self._line[session.origin] = self._line.pop(session.origin)


def _input_since(session: AnySession) -> float:
    return session.input_since


def _is_late(session: AnySession, now: float) -> bool:
    """Whether a peer takes too little of what waits in its transport. Output that is not there yet waits for us."""
    account = session.account
    return bool(account.output_since) and account.takes_too_little(now, PATIENCE)
