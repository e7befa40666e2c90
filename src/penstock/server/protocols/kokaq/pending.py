"""Kokaq answers that wait.

Answers leave in the order of their requests. An answer that must wait for a commit makes the later ones wait with it;
each is put into words when its turn comes, so what it tells of a message is read from the journal only then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.server.engine.backlog import NotInMemory
from penstock.server.network.outbox import PUMP_BYTES
from penstock.server.network.session import Session
from penstock.server.protocols.kokaq.answers import MessageAnswer
from penstock.wire import kokaq
from penstock.wire.kokaq import Tags, Variant

AnySession = Session[kokaq.KokaqRequest]
AnyResponse = kokaq.KokaqResponse | kokaq.Responses

#: About how many bytes an answer without a message has, and how many can be encoded while one is put into words.
SMALL_ANSWER: Final = 40
ANSWER_WORK: Final = 200


class PendingAnswer:
    """An answer, to one or more requests, that may be given once the log is durable up to ``after``."""

    __slots__ = ("after", "requests", "size", "tags", "words")

    def __init__(
        self, after: int, requests: int, size: int, words: Callable[[], Sequence[AnyResponse]], tags: Tags
    ) -> None:
        self.after = after
        self.requests = requests
        #: About how many bytes it has.
        self.size = size
        self.words = words
        #: Those that the peer had used on its components by the time of its request.
        self.tags = tags


class PendingAnswers:
    """The answers that one session owes its peer, in the order of their requests."""

    def __init__(self) -> None:
        self._waiting: deque[PendingAnswer] = deque()
        #: How many requests wait for their answer.
        self.requests = 0
        #: Answers wait because memory is short.
        self.starved = False

    @property
    def due(self) -> bool:
        """Whether any answer waits."""
        return bool(self._waiting)

    def add(self, words: Callable[[], Sequence[AnyResponse]], after: int, requests: int, tags: Tags) -> None:
        """An answer to one or more requests, for when the log is durable up to ``after``."""
        size = words.size if isinstance(words, MessageAnswer) else SMALL_ANSWER * requests
        self._waiting.append(PendingAnswer(after, requests, size, words, tags))
        self.requests += requests

    def release(self, session: AnySession, variant: Variant, committed: int) -> None:
        """Give the answers that waited for the log to get this far, as far as the peer takes them."""
        waiting = self._waiting
        self.starved = False
        if waiting and waiting[0].after > committed:  # as every second time where peers wait for each commit
            return
        runtime, outbox = session.runtime, session.outbox
        responses: list[AnyResponse] = []
        room = min(session.room, runtime.output_left)
        tags = waiting[0].tags if waiting else Tags.DRAWN
        granted = 0
        while room > 0 and waiting and waiting[0].after <= committed:
            first, reading = waiting[0], outbox.reading
            if reading is None and granted < first.size:
                if responses:
                    _write(session, responses, variant, tags)  # so that it counts
                    responses = []
                granted = self._grant(session, first.size)
            if not (granted if reading is None else reading.done):
                break
            try:
                worded = self._put_into_words(session, first)
            except NotInMemory as unread:
                _read(session, first, unread)
                break
            waiting.popleft()
            self.requests -= first.requests
            if reading is None:
                granted -= first.size
            else:
                _drop_reading(session)
            room -= first.size
            runtime.spend_output(ANSWER_WORK)
            if first.tags is not tags:  # at most once: they are learned from the first payload component
                _write(session, responses, variant, tags)
                responses, tags = [], first.tags
            if first.size > kokaq.WIRE_MAX_PAYLOAD:
                _write(session, responses, variant, tags)
                responses = []
                session.write_parts(kokaq.response_parts(worded, variant, tags))
            else:
                responses += worded
        _write(session, responses, variant, tags)
        if not waiting:
            runtime.awaiting.pop(session, None)
        elif room <= 0 and not session.peer_is_slow:
            runtime.touched()

    def _grant(self, session: AnySession, size: int) -> int:
        """Memory for the next answers, and one of this size at least."""
        granted = session.runtime.memory.grant(session, size, PUMP_BYTES)
        self.starved = not granted
        return granted

    def _put_into_words(self, session: AnySession, waiting: PendingAnswer) -> Sequence[AnyResponse]:
        if isinstance(waiting.words, MessageAnswer):
            session.account.keep(-waiting.words.kept_bytes)
        return waiting.words()

    def keep(self, session: AnySession, before: int) -> None:
        """Read what answers still need of the log before this position."""
        for waiting in self._waiting:
            words = waiting.words
            if not isinstance(words, MessageAnswer) or words.position >= before or words.kept_bytes:
                continue
            if not session.runtime.memory.grant(session, waiting.size, waiting.size):
                kept = session.account.kept_bytes
                session.close("memory is short: answers that nobody takes are given up", bytes=kept)
                session.abort()
                return
            words.keep()
            session.account.keep(words.kept_bytes)
            session.note_output()


def _write(session: AnySession, responses: list[AnyResponse], variant: Variant, tags: Tags) -> None:
    if responses:
        session.write(kokaq.encode_responses(responses, variant, tags))


def _read(session: AnySession, waiting: PendingAnswer, unread: NotInMemory) -> None:
    """Read the messages of an answer. All of it is needed: it is put into words at once."""
    _drop_reading(session)
    words = waiting.words
    if isinstance(words, MessageAnswer):
        reading = session.runtime.cold_reads.begin(session, unread, words.positions, waiting.size, whole=True)
        session.outbox.await_reading(reading)


def _drop_reading(session: AnySession) -> None:
    if (reading := session.outbox.take_reading()) is not None:
        session.runtime.cold_reads.drop(reading)
