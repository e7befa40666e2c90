"""Kokaq: requests and answers, in order and many at a time. Publishing is confirmed; messages are locked, not sent."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from penstock.client.abilities import KOKAQ, require, unsupported
from penstock.client.answers import found, locked_for, milliseconds, received, refusal, uuid_of
from penstock.client.connection import Link
from penstock.client.errors import ClientError, Disconnected, NotHeld, ProtocolProblem, Refused, TimedOut, Uncertain
from penstock.client.flights import Answer, Flight
from penstock.client.lock_consumer import LockingSource
from penstock.client.messages import Action, Delivery, Hold, Outgoing, Received
from penstock.client.options import Options
from penstock.client.session import Sending, Session, Source
from penstock.client.urls import Address, split_name
from penstock.wire import kokaq
from penstock.wire.kokaq import KokaqRequest, KokaqResponse, MessageType, Metadata, Opcode, Request, Response, Status

log = logging.getLogger(__name__)

_OPAQUE = struct.Struct(">I")


class KokaqSession(Session):
    """One Kokaq connection."""

    protocol = KOKAQ
    link: Link[KokaqResponse]

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        decoder = kokaq.ClientDecoder(variant=address.variant)
        self.link = Link(address, decoder, self._take, self._lost)
        self._pieces = kokaq.Reassembler(options.max_message)
        self._next_opaque = 0
        self._waiting: dict[bytes, tuple[Flight, int]] = {}
        #: Popped messages whose caller had gone before they came. The next pop of the queue gets them.
        self._popped: dict[str, deque[Response]] = {}
        #: Set when the connection ends, for those who wait for something else than an answer.
        self.bells: WeakSet[asyncio.Event] = WeakSet()

    async def close(self) -> None:
        """See :meth:`Session.close`."""
        left = sum(map(len, self._popped.values()))
        if left:
            log.warning("%s: closed with %d popped message(s) that nobody has taken", self.address, left)
        await super().close()

    # Requests.

    def send(self, requests: Sequence[KokaqRequest], flight: Flight) -> None:
        """Write requests whose answers go to ``flight``. All are two-way, and have the opaques of :meth:`opaques`."""
        self.link.write(kokaq.encode_requests(requests, self.address.variant))
        index = 0
        for request in requests:
            for opaque in request.opaques if isinstance(request, kokaq.Pushes) else (request.opaque,):
                self._waiting[opaque] = flight, index
                index += 1

    def opaques(self, count: int) -> tuple[bytes, ...]:
        """Marks for the next requests that no request under way has."""
        first = self._next_opaque
        self._next_opaque = (first + count) & 0xFFFFFFFF
        return tuple(_OPAQUE.pack(number & 0xFFFFFFFF) for number in range(first, first + count))

    def request(
        self, opcode: Opcode, name: str | None = None, metadata: Metadata | None = None,
        kind: MessageType = MessageType.OPERATIONAL, *, two_way: bool = True,
    ) -> Request:  # fmt: skip
        """A request without payload. A name that ends in '/' is a namespace."""
        namespace, queue = (None, None) if name is None else split_name(name)
        payload = None if name is None else b""
        opaque = self.opaques(1)[0]
        return Request(
            kind, two_way, opaque, opcode, metadata=metadata, namespace=namespace, queue=queue, payload=payload
        )

    async def landed(self, flight: Flight) -> None:
        """Wait until each request of the flight is answered, or the connection has ended."""
        async with self.link.limit(self.options.timeout, "answer"):
            await flight.done.wait()

    async def ask(
        self, opcode: Opcode, name: str | None = None, metadata: Metadata | None = None,
        kind: MessageType = MessageType.OPERATIONAL, keep: Callable[[Answer], None] | None = None,
    ) -> Response:  # fmt: skip
        """Send one request and wait for its answer, whatever it says."""
        flight = Flight(1, keep)
        self.send([self.request(opcode, name, metadata, kind)], flight)
        await self.landed(flight)
        answer = flight.answers[0]
        if answer is None:
            self.link.check()
        assert isinstance(answer, Response)
        return answer

    async def succeed(
        self, what: str, opcode: Opcode, name: str | None = None, metadata: Metadata | None = None,
        kind: MessageType = MessageType.OPERATIONAL,
    ) -> Response:  # fmt: skip
        """Send one request, wait for its answer, and raise :class:`Refused` unless it is a success."""
        answer = await self.ask(opcode, name, metadata, kind)
        if answer.status != Status.SUCCESS:
            raise refusal(answer, what)
        return answer

    # Messages.

    def check(self, message: Outgoing) -> None:
        """See :meth:`Session.check`."""
        super().check(message)
        if len(message.body) > kokaq.WIRE_MAX_PAYLOAD:
            raise unsupported(KOKAQ, "payload over 65,535 bytes")
        if _has_details(message):
            kokaq.encode_requests([_push(message, b"\0\0\0\0", "n", "q")])  # its ValueError says what is wrong

    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> Sending:
        """See :meth:`Session.publish`. Each message is answered."""
        namespace, name = split_name(self.name(queue))
        flight = Flight(len(messages))
        opaques = self.opaques(len(messages))
        if any(map(_has_details, messages)):
            pushes: list[KokaqRequest] = [_push(*each, namespace, name) for each in zip(messages, opaques, strict=True)]
        else:
            bodies = tuple(message.body for message in messages)
            kind = MessageType.OPERATIONAL
            pushes = [kokaq.Pushes(kind, True, 0, namespace, name, opaques, bytes(len(bodies)), bodies)]
        with suppress(Disconnected, TimedOut):  # then there will be no answers, which tells the same
            self.send(pushes, flight)
            await self.link.drain(self.options.timeout)
        if self.failure is not None:
            flight.done.set()
        return PushesUnderWay(self, messages, flight)

    def source(self, queue: str | None, *, window: int, lock: float | None, poll: float, dead: bool) -> Source:
        """See :meth:`Session.source`."""
        if dead:
            require(self.protocol, "dead_letters")
        return LockingSource(self, self.name(queue), window, lock, poll)

    async def pop(self, name: str) -> Received | None:
        """Take the head of the queue for good. Cancelled, its message is kept for the next one who asks."""
        kept = self._popped.setdefault(name, deque())
        if not kept:
            self.link.check()
            try:
                answer = await self.ask(Opcode.POP, name, keep=partial(_keep, kept))
            except (Disconnected, TimedOut) as error:
                raise Uncertain(f"a message may have been popped, and lost on its way here ({error})") from error
            found(answer, f"pop {name!r}")
        return received(kept.popleft()) if kept else None

    async def acquire(self, name: str, lock: float | None) -> Delivery | None:
        """Lock the head of the queue, if there is one. Cancelled, a lock that was got all the same is given back."""
        flight = Flight(1)
        sent_at = asyncio.get_running_loop().time()
        self.send([self.request(Opcode.ACQUIRE_PEEK_LOCK, name, locked_for(lock))], flight)
        try:
            await self.landed(flight)
        except asyncio.CancelledError:
            flight.keep = self.give_back
            raise
        answer = flight.answers[0]
        if answer is None:
            self.link.check()
        assert isinstance(answer, Response)
        if found(answer, f"lock a message of {name!r}") is None:
            return None
        return self.delivery(answer, name, sent_at, lock, None)

    def delivery(
        self, answer: Response, name: str, sent_at: float, lock: float | None, on_done: Callable[[Hold], None] | None
    ) -> Delivery:
        """A locked message. If we said for how long, we know by our own clock when the lock is over."""
        message = received(answer, locked=True)
        hold = Hold(self, name, uuid_of(answer), on_done)
        if lock is not None:
            hold.stale_at = sent_at + lock
        return Delivery(message, hold)

    def give_back(self, answer: Answer) -> None:
        """Release a lock that nobody wants any more, without waiting for the answer."""
        if isinstance(answer, Response) and answer.status == Status.SUCCESS:
            self.release_soon(uuid_of(answer))

    def release_soon(self, key: bytes) -> None:
        """Release the lock of this message. One-way: nobody is there to hear the answer."""
        if self.failure is None:
            request = self.request(Opcode.RELEASE_PEEK_LOCK, metadata=Metadata(uuid=key), two_way=False)
            self.link.write(kokaq.encode_requests([request], self.address.variant))

    async def settle(self, hold: Hold, action: Action, ttl: float | None) -> None:
        """See :meth:`Keeper.settle`. Answered: afterwards it is so."""
        if action is Action.ACK:
            await self._with_lock("acknowledge a message", Opcode.DELETE, Metadata(uuid=hold.key))
        elif action is Action.RELEASE:
            await self._with_lock("release a message", Opcode.RELEASE_PEEK_LOCK, Metadata(uuid=hold.key))
        else:
            raise unsupported(self.protocol, "requeue" if action is Action.REQUEUE else "reject")

    async def renew(self, hold: Hold, lock: float | None) -> None:
        """See :meth:`Keeper.renew`."""
        metadata = Metadata(uuid=hold.key, lock_duration=milliseconds(lock))
        sent_at = asyncio.get_running_loop().time()
        await self._with_lock("renew a lock", Opcode.ACQUIRE_PEEK_LOCK, metadata)
        hold.stale_at = float("inf") if lock is None else sent_at + lock

    async def _with_lock(self, what: str, opcode: Opcode, metadata: Metadata) -> None:
        """Do something with a message that we have locked, unless the lock has ended meanwhile."""
        try:
            await self.succeed(what, opcode, metadata=metadata)
        except Refused as refusal:
            if refusal.reason != "bad":
                raise
            raise NotHeld("the lock has ended before; the broker gives the message out again") from refusal

    # What comes in.

    def _take(self, frames: list[KokaqResponse]) -> None:
        for frame in self._pieces.feed(frames):
            if isinstance(frame, kokaq.Pushed):
                for opaque, uuid in zip(frame.opaques, frame.uuids, strict=True):
                    self._answered(opaque, uuid)
            else:
                for response in kokaq.singles([frame]):
                    self._answered(response.opaque, response)
        if (error := self._pieces.error) is not None:
            problem = ProtocolProblem(f"{self.address}: {error}")
            problem.code = error.code
            self.link.fail(problem)

    def _answered(self, opaque: bytes, answer: Answer) -> None:
        waiting = self._waiting.pop(opaque, None)
        if waiting is None:
            self.link.fail(ProtocolProblem(f"{self.address} answered a request that was not made"))
            return
        flight, index = waiting
        flight.take(index, answer)

    def _lost(self) -> None:
        for flight, _ in self._waiting.values():
            flight.done.set()
        self._waiting.clear()
        for bell in self.bells:
            bell.set()


class PushesUnderWay(Sending):
    """Pushes that wait for their confirmation."""

    def __init__(self, session: KokaqSession, messages: Sequence[Outgoing], flight: Flight) -> None:
        self.messages = messages
        self._session = session
        self._flight = flight

    async def landed(self) -> Sequence[str | ClientError | None]:
        """See :meth:`Sending.landed`."""
        with suppress(TimedOut):  # the connection is over then, and the answers that are missing are None
            await self._session.landed(self._flight)
        return [_outcome(answer) for answer in self._flight.answers]


def _keep(kept: deque[Response], answer: Answer) -> None:
    if isinstance(answer, Response) and answer.status == Status.SUCCESS:
        kept.append(answer)


def _outcome(answer: Answer | None) -> str | ClientError | None:
    if answer is None:
        return None
    if isinstance(answer, bytes):
        return answer.hex()
    if answer.status != Status.SUCCESS:
        return refusal(answer, "take a message")
    return uuid_of(answer).hex()


def _has_details(message: Outgoing) -> bool:
    return message != Outgoing(message.body)


def _push(message: Outgoing, opaque: bytes, namespace: str, queue: str) -> Request:
    metadata = Metadata(
        time_to_live=message.ttl_seconds,
        expires_at=message.expires_at,
        uuid=None if message.id is None else bytes.fromhex(message.id),
        request_id=message.request_id,
        source=message.source_info,
        correlation_id=message.correlation_id,
        priority=message.priority,
        delay=milliseconds(message.delay),
    )
    present = metadata if metadata != Metadata() else None
    kind = MessageType.OPERATIONAL
    return Request(kind, True, opaque, Opcode.PUSH, 0, 0, present, namespace, queue, message.body)
