"""Bytes that the broker temporarily holds for peers, below one limit: ``memory_bytes``.

* A quarter is for received data that is not on disk yet: above it no peer is read from (``Memory.congested``).
* Half is for *input* that can't be handled yet, that is unfinished messages and waiting frames: above it the peers that
  have kept us waiting longest are closed.
* A quarter is for *output*, that is prepared answers and deliveries that peers have not read. Sessions request it
  before they look up a payload. If there is none, the session waits in line, the message stays in the journal, and
  peers that do not read their output are closed.

No peer can shut out the rest: a session without output always gets a few kilobytes, the head of the line gets memory
for its answer as soon as half of the output's part is free, however large the answer is, and the line rotates between
addresses.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Output that a peer may always have, if it has taken all before: so much for each of ten thousand is 40 MB.
SMALL: Final = 4 * 1024
#: Answers and deliveries above this are prepared one after the other, TURN_BYTES of them in a turn of the loop, or one.
LARGE: Final = 128 * 1024
TURN_BYTES: Final = 2**19
#: Seconds without reading a byte after which a peer is closed, if another one waits for the memory.
PATIENCE: Final = 2.0
#: Bytes that a peer must read per second after that time, or it is closed.
RATE: Final = 256 * 1024


class Account:
    """What the broker holds for one session, except output that is not written yet, which is in its outbox."""

    def __init__(self) -> None:
        #: Bytes of input.
        self.input = 0
        #: Bytes of output that the transport holds, and of payloads that answers had to read before their turn.
        self.output = 0
        self.kept_bytes = 0
        #: Since when output has waited in the transport, which is up to the peer; 0 = none does. How much of it was
        #: taken since then, and when last.
        self.output_since = 0.0
        self.taken = 0
        self.taken_at = 0.0
        #: Bytes that waited in the transport when we last looked.
        self.buffered = 0
        #: Writes of which something waits there. The transport keeps a write as a whole until its last byte is gone.
        self._unsent: deque[int] = deque()
        self.unsent_bytes = 0

    def hold_input(self, held: int) -> None:
        """The session holds this much input now."""
        self.input = held

    def hold_output(self, held: int) -> None:
        """The session holds this much output now."""
        self.output = held

    def keep(self, change: int) -> None:
        """Add to the payload bytes kept for answers; a negative change releases some."""
        self.kept_bytes += change

    def note_written(self, written: int, buffered: int, now: float) -> None:
        """``written`` are bytes written since the last call, ``buffered`` those that wait in the transport now."""
        if not buffered:
            self.output_since = 0.0
        elif not self.buffered:
            self.output_since = self.taken_at = now
            self.taken = 0
        elif written + self.buffered > buffered:
            self.taken += written + self.buffered - buffered
            self.taken_at = now
        self.buffered = buffered
        if written:
            self._unsent.append(written)
            self.unsent_bytes += written
        while self._unsent and self.unsent_bytes - self._unsent[0] >= buffered:
            self.unsent_bytes -= self._unsent.popleft()

    def takes_too_little(self, now: float, patience: float) -> bool:
        """Whether the peer has taken nothing for so long, or less than RATE on the whole, of what waits for it."""
        enough = RATE * (now - self.output_since - patience)
        return now - self.taken_at > patience or self.taken < enough


class Memory:
    """The totals of all sessions, and the line for memory. Sessions report their bytes, and request them for output."""

    def __init__(self, memory_bytes: int) -> None:
        self.most_unwritten = max(1, memory_bytes // 4)
        self.most_input = max(1, memory_bytes // 2)
        self.most_output = max(1, memory_bytes // 4)
        self.input = 0
        self.output = 0
        #: Too much waits to be written to disk: no peer is read from.
        self.congested = False
        #: Bytes of large output that may still be prepared in this turn.
        self.large_left = TURN_BYTES
        #: Sessions with input, or with output that their peers do not take.
        self.holders: set[AnySession] = set()
        #: Sessions whose next answer did not fit, and how large it is, by where they come from; in turn. Only read it.
        self.line: dict[str, dict[AnySession, int]] = {}

    def watch_unwritten(self, unwritten: int) -> bool:
        """Note how many published bytes are not on disk yet. Returns whether congestion has begun or ended."""
        if self.congested:
            if unwritten >= self.most_unwritten // 2:
                return False
        elif unwritten <= self.most_unwritten:
            return False
        self.congested = not self.congested
        return True

    def hold_input(self, session: AnySession, held: int) -> None:
        """The session holds this much input now."""
        account = session.account
        self.input += held - account.input
        account.hold_input(held)
        self._note_holder(session)

    def hold_output(self, session: AnySession, held: int) -> None:
        """The session holds this much output now, beside its outbox."""
        account = session.account
        self.output += held - account.output
        account.hold_output(held)
        self._note_holder(session)

    def _note_holder(self, session: AnySession) -> None:
        if session.account.input or session.account.output:
            self.holders.add(session)
        else:
            self.holders.discard(session)

    def add_output(self, size: int) -> None:
        """Output was prepared, or its payloads are about to be read. A negative size gives memory back."""
        self.output += size

    def begin_output(self) -> None:
        """Sessions begin to prepare the output of a turn."""
        self.large_left = TURN_BYTES

    def grant(self, session: AnySession, size: int, most: int) -> int:
        """How many bytes of output a session may prepare now, whose next answer has ``size``; ``most`` at most.

        An answer is not cut in two, so it is ``size`` or more. 0: the session waits in line, and is released later.
        """
        free = self.most_output - self.output
        if size <= free and size <= LARGE and (not self.line or free >= self.most_output // 2):
            granted = max(size, min(most, free))
        elif size <= LARGE:
            granted = self._grant_next(session, size, most, free)
        else:
            granted = 0 if self.large_left <= 0 else self._grant_next(session, size, most, free)
            self.large_left -= granted
        if granted:
            if self.line:
                self._leave_line(session)
        elif size <= SMALL and not session.held_output:
            return SMALL
        else:
            self.line.setdefault(session.origin, {})[session] = size
        return granted

    def _grant_next(self, session: AnySession, size: int, most: int, free: int) -> int:
        """Grant memory to the head of the line, or to any session if there is no line."""
        if not self._is_next(session):
            return 0
        if size > free and free < self.most_output // 2:
            return 0
        self._leave_line(session, served=True)
        return max(size, min(most, free))

    def forget(self, session: AnySession) -> None:
        """A session is gone."""
        self.hold_input(session, 0)
        self.hold_output(session, 0)
        self._leave_line(session)

    def withdraw(self, session: AnySession) -> None:
        """A session has nothing more to prepare."""
        if self.line:
            self._leave_line(session)

    @property
    def next_in_line(self) -> AnySession | None:
        """The session that gets memory for output next."""
        for sessions in self.line.values():
            return next(iter(sessions))
        return None

    @property
    def can_go_on(self) -> bool:
        """Whether the session at the head of the line would get its memory now."""
        if not self.line:
            return False
        size = next(iter(next(iter(self.line.values())).values()))
        free = self.most_output - self.output
        return size <= free or free >= self.most_output // 2

    def slow_senders(self) -> list[AnySession]:
        """Choose the sessions to close because input exceeds its part: those that have kept us waiting longest."""
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
        """Choose the slow consumers to close while another session waits for memory."""
        if not self.line or self.can_go_on:
            return []
        return [session for session in self.holders if _is_late(session, now)]

    def _is_next(self, session: AnySession) -> bool:
        return not self.line or self.next_in_line is session

    def _leave_line(self, session: AnySession, *, served: bool = False) -> None:
        sessions = self.line.get(session.origin)
        if sessions is None or sessions.pop(session, None) is None:
            return
        if not sessions:
            del self.line[session.origin]
        elif served:  # the next turn is another address's
            self.line[session.origin] = self.line.pop(session.origin)


def _input_since(session: AnySession) -> float:
    """Since when we hold input: the peer does not finish its message, or does not take its answers."""
    since = session.active_at
    return min(session.inbox.unfinished_since or since, session.stalled_since or since)


def _is_late(session: AnySession, now: float) -> bool:
    """Whether a peer takes too little of what waits in its transport. Output that is not there yet waits for us."""
    account = session.account
    return bool(account.output_since) and account.takes_too_little(now, PATIENCE)
