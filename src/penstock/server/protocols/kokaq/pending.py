"""The answers that a Kokaq session owes its peer, in the order of their requests.

An answer that waits for a commit holds up those behind it. Each is rendered when its turn comes: only then is a message
read from the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.core.queue import Out, Queue
from penstock.core.structures.item import Item
from penstock.server.engine.backlog import NotInMemory
from penstock.server.network.outbox import PUMP_BYTES
from penstock.server.network.session import Session
from penstock.server.protocols.kokaq.message_answer import METADATA, MessageAnswer
from penstock.wire import kokaq
from penstock.wire.kokaq import Metadata, Reason, Request, Requests, Response, Status, Tags, Variant

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime

AnySession = Session[kokaq.KokaqRequest]
AnyResponse = kokaq.KokaqResponse | kokaq.Responses

#: Approximate bytes of an answer without a message, and the output budget that rendering one costs.
SMALL_ANSWER: Final = 40
ANSWER_WORK: Final = 200
#: Bytes of messages that are rendered at a time.
GIVE_BYTES: Final = 64 * 1024


class PendingAnswer:
    """An answer to one or more requests, to be sent once the log is durable up to ``after``."""

    __slots__ = ("after", "render", "requests", "size", "tags")

    def __init__(
        self, after: int, requests: int, size: int, render: Callable[[], Sequence[AnyResponse]], tags: Tags
    ) -> None:
        self.after = after
        self.requests = requests
        #: Approximate bytes.
        self.size = size
        self.render = render
        #: The tags that the peer had used on its components by the time of its request.
        self.tags = tags


class PendingAnswers:
    """The answers of one session. One-way requests get none."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[PendingAnswer] = deque()
        #: How the peer's first payload component was tagged; None until one came.
        self._tags: Tags | None = None
        #: How many requests wait for their answer.
        self.requests = 0
        #: Answers wait because memory is short.
        self.starved = False

    @property
    def due(self) -> bool:
        """Whether any answer waits."""
        return bool(self._waiting)

    def learn_tags(self, tags: Tags) -> None:
        """A payload component had these tags. The first one decides how answers are tagged from then on."""
        if self._tags is None:
            self._tags = tags

    # Adding answers

    def add(self, render: Callable[[], Sequence[AnyResponse]], after: int = 0, requests: int = 1) -> None:
        """Answer one or more requests once the log is durable up to ``after``."""
        size = render.size if isinstance(render, MessageAnswer) else SMALL_ANSWER * requests
        self._waiting.append(PendingAnswer(after, requests, size, render, self._tags or Tags.DRAWN))
        self.requests += requests

    def answer(
        self, request: Request, status: Status, reason: Reason, metadata: Metadata | None = None, after: int = 0
    ) -> None:
        """Answer a single request."""
        if request.two_way:
            self.add(lambda: [_response(request, status, reason, metadata)], after)

    def fail(self, request: Request, reason: Reason) -> None:
        """Refuse a single request."""
        self.answer(request, Status.FAIL, reason)

    def succeed(self, request: Request, metadata: Metadata | None = None) -> None:
        """Report success, once everything that happened so far is durable."""
        self.answer(request, Status.SUCCESS, Reason.OK, metadata, self._runtime.broker.log.next_position)

    def answer_all(self, requests: Requests, status: Status, reason: Reason, after: int = 0) -> None:
        """Give each request of a run the same answer."""
        first, opaques, op_opaques = requests.first, requests.opaques, requests.op_opaques
        if not first.two_way:
            return
        pattern = Response(first.message_type, opaques[0], first.opcode, status, reason, op_opaques[0])
        # A Response is encoded in half the time of a run of one.
        answer = pattern if len(opaques) == 1 else kokaq.Responses(pattern, opaques, op_opaques)
        self.add(lambda: [answer], after, len(opaques))

    def refuse(self, frame: kokaq.KokaqRequest, reason: Reason) -> None:
        """Refuse all requests of a frame."""
        if isinstance(frame, Requests):
            self.answer_all(frame, Status.FAIL, reason)
        else:
            for request in kokaq.singles([frame]):
                self.fail(request, reason)

    def give(
        self,
        requests: Requests,
        queue: Queue,
        items: Sequence[Item],
        deliveries: Sequence[int],
        now: int,
        *,
        locks: Sequence[Out] = (),
        after: int = 0,
    ) -> None:
        """Answer each request with a message, once that is durable and the log is so up to ``after``.

        Messages are rendered in parts of about GIVE_BYTES; durable ones do not wait for those that are not.
        """
        runtime = self._runtime
        committed, most = runtime.broker.committed, min(GIVE_BYTES, runtime.output_share)
        start = size = 0
        for number, item in enumerate(items):
            size += METADATA + item.size
            stop = number + 1
            last = stop == len(items)
            if last or size >= most or (item.position < committed) != (items[stop].position < committed):
                of = slice(start, stop)
                part = requests if len(requests.opaques) == stop - start else requests.part(start, stop)
                answer = MessageAnswer(runtime, part, queue, items[of], deliveries[of], now, locks[of])
                self.add(answer, max(after, answer.last_position + 1), stop - start)
                start, size = stop, 0

    # Sending them

    def release(self, session: AnySession, variant: Variant, committed: int) -> None:
        """Send the answers that waited for this commit, while the peer reads them."""
        waiting = self._waiting
        self.starved = False
        if waiting and waiting[0].after > committed:  # as every second time where peers wait for each commit
            return
        runtime, outbox = self._runtime, session.outbox
        responses: list[AnyResponse] = []
        room = min(session.room, runtime.output.left)
        tags = waiting[0].tags if waiting else Tags.DRAWN
        granted = 0
        while room > 0 and waiting and waiting[0].after <= committed:
            first, reading = waiting[0], outbox.reading
            if reading is None and granted < first.size:
                if responses:
                    _write(session, responses, variant, tags)  # the grant counts written output
                    responses = []
                granted = self._grant(session, first.size)
            if not (granted if reading is None else reading.done):
                break
            try:
                rendered = self._render(session, first)
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
            runtime.output.spend(ANSWER_WORK)
            if first.tags is not tags:  # at most once: they are learned from the first payload component
                _write(session, responses, variant, tags)
                responses, tags = [], first.tags
            if first.size > kokaq.WIRE_MAX_PAYLOAD:
                _write(session, responses, variant, tags)
                responses = []
                session.write_parts(kokaq.response_parts(rendered, variant, tags))
            else:
                responses += rendered
        _write(session, responses, variant, tags)
        if not waiting:
            runtime.output.answered(session)
        elif room <= 0 and not session.peer_is_slow:
            runtime.touched()

    def _grant(self, session: AnySession, size: int) -> int:
        """Request memory for the next answers, enough for at least one of this size."""
        granted = self._runtime.memory.grant(session, size, PUMP_BYTES)
        self.starved = not granted
        return granted

    def _render(self, session: AnySession, waiting: PendingAnswer) -> Sequence[AnyResponse]:
        if isinstance(waiting.render, MessageAnswer):
            session.account.keep(-waiting.render.kept_bytes)
        return waiting.render()

    def keep(self, session: AnySession, before: int) -> None:
        """Read the messages that answers still need from the log before this position."""
        for waiting in self._waiting:
            answer = waiting.render
            if not isinstance(answer, MessageAnswer) or answer.first_position >= before or answer.kept_bytes:
                continue
            if not self._runtime.memory.grant(session, waiting.size, waiting.size):
                kept = session.account.kept_bytes
                session.close("memory is short: unread answers are dropped", bytes=kept)
                session.abort()
                return
            answer.keep()
            session.account.keep(answer.kept_bytes)
            session.note_output()


def _write(session: AnySession, responses: list[AnyResponse], variant: Variant, tags: Tags) -> None:
    if responses:
        session.write(kokaq.encode_responses(responses, variant, tags))


def _read(session: AnySession, waiting: PendingAnswer, unread: NotInMemory) -> None:
    """Read all messages of an answer, since it is rendered at once."""
    _drop_reading(session)
    answer = waiting.render
    if isinstance(answer, MessageAnswer):
        reading = session.runtime.cold_reads.begin(session, unread, answer.positions, waiting.size, whole=True)
        session.outbox.await_reading(reading)


def _drop_reading(session: AnySession) -> None:
    if (reading := session.outbox.take_reading()) is not None:
        session.runtime.cold_reads.drop(reading)


def _response(request: Request, status: Status, reason: Reason, metadata: Metadata | None = None) -> Response:
    return Response(
        request.message_type, request.opaque, request.opcode, status, reason, request.op_opaque, metadata,
        nop_opaque=request.nop_opaque,
    )  # fmt: skip
