"""Kokaq: pipelined requests, answered in order. Publishing is confirmed; messages are locked, not pushed."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from typing_extensions import override

from penstock.client.abilities import require, unsupported
from penstock.client.connection import Link
from penstock.client.errors import ClientError, Disconnected, NotHeld, ProtocolProblem, Refused, TimedOut, Uncertain
from penstock.client.kokaq.administration import KokaqAdministration
from penstock.client.kokaq.answers import found, locked_for, milliseconds, received, refusal, uuid_of
from penstock.client.kokaq.lock_source import LockSource
from penstock.client.kokaq.requests import Answer, PendingRequests
from penstock.client.messages import Action, Delivery, Hold, Outgoing, Received
from penstock.client.options import ClientOptions
from penstock.client.protocol import COMMON, Abilities, ClientProtocol
from penstock.client.session import MessageSource, Sending
from penstock.client.urls import Address, choice, split_name
from penstock.wire import kokaq
from penstock.wire.kokaq import (
    BitOrder,
    KokaqRequest,
    KokaqResponse,
    MessageType,
    Metadata,
    Numbering,
    Opcode,
    Request,
    Response,
    Status,
    Variant,
)

log = logging.getLogger(__name__)

_OPAQUE = struct.Struct(">I")


class KokaqClientSession(KokaqAdministration):
    """One Kokaq connection."""

    link: Link[KokaqResponse]

    def __init__(self, address: Address, options: ClientOptions) -> None:
        super().__init__(address, options)
        self._variant: Variant = address.variant
        decoder = kokaq.ClientDecoder(variant=self._variant)
        self.link = Link(address, decoder, self._take, self._lost)
        self._pieces = kokaq.Reassembler(options.max_message)
        self._next_opaque = 0
        self._waiting: dict[bytes, tuple[PendingRequests, int]] = {}
        #: Popped messages whose caller was cancelled before they arrived. The queue's next pop returns them.
        self._popped: dict[str, deque[Response]] = {}
        #: Set when the connection ends, for waiters of other things than answers.
        self.at_end: WeakSet[asyncio.Event] = WeakSet()

    @override
    async def close(self) -> None:
        left = sum(map(len, self._popped.values()))
        if left:
            log.warning("%s: closed with %d popped message(s) that were not consumed", self.address, left)
        await super().close()

    # Requests.

    def send(self, requests: Sequence[KokaqRequest], pending: PendingRequests) -> None:
        """Write requests whose answers go to ``pending``. All are two-way, with opaques from :meth:`opaques`."""
        self.link.write(kokaq.encode_requests(requests, self._variant))
        index = 0
        for request in requests:
            for opaque in (request.opaque,) if isinstance(request, kokaq.Request) else request.opaques:
                self._waiting[opaque] = pending, index
                index += 1

    def opaques(self, count: int) -> tuple[bytes, ...]:
        """Opaques for the next requests, distinct from those in flight."""
        first = self._next_opaque
        self._next_opaque = (first + count) & 0xFFFFFFFF
        return tuple(_OPAQUE.pack(number & 0xFFFFFFFF) for number in range(first, first + count))

    def request(
        self, opcode: Opcode, name: str | None = None, metadata: Metadata | None = None,
        kind: MessageType = MessageType.OPERATIONAL, *, two_way: bool = True,
    ) -> Request:  # fmt: skip
        """Make a request without payload. A name that ends in '/' is a namespace."""
        namespace, queue = (None, None) if name is None else split_name(name)
        payload = None if name is None else b""
        opaque = self.opaques(1)[0]
        return Request(
            kind, two_way, opaque, opcode, metadata=metadata, namespace=namespace, queue=queue, payload=payload
        )

    async def answered(self, pending: PendingRequests) -> None:
        """Wait until all of ``pending`` is answered or the connection has ended."""
        async with self.link.limit(self.options.timeout, "answer"):
            await pending.done.wait()

    async def ask(
        self, opcode: Opcode, name: str | None = None, metadata: Metadata | None = None,
        kind: MessageType = MessageType.OPERATIONAL, keep: Callable[[Answer], None] | None = None,
    ) -> Response:  # fmt: skip
        """Send one request and wait for its answer, whatever its status."""
        pending = PendingRequests(1, keep)
        self.send([self.request(opcode, name, metadata, kind)], pending)
        await self.answered(pending)
        answer = pending.answers[0]
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

    @override
    def check(self, message: Outgoing) -> None:
        super().check(message)
        if len(message.body) > kokaq.WIRE_MAX_PAYLOAD:
            raise unsupported(self.abilities, "payload over 65,535 bytes")
        if _has_details(message):
            kokaq.encode_requests([_push(message, b"\0\0\0\0", "n", "q")])  # raises ValueError with the reason

    @override
    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> Sending:
        """The broker confirms each message."""
        namespace, name = split_name(self.name(queue))
        pending = PendingRequests(len(messages))
        opaques = self.opaques(len(messages))
        if any(map(_has_details, messages)):
            pushes: list[KokaqRequest] = [_push(*each, namespace, name) for each in zip(messages, opaques, strict=True)]
        else:
            bodies = tuple(message.body for message in messages)
            kind = MessageType.OPERATIONAL
            pushes = [kokaq.Pushes(kind, True, 0, namespace, name, opaques, bytes(len(bodies)), bodies)]
        with suppress(Disconnected, TimedOut):  # the missing answers report it
            self.send(pushes, pending)
            await self.link.drain(self.options.timeout)
        if self.failure is not None:
            pending.done.set()
        return PendingPushes(self, messages, pending)

    @override
    def _source(self, queue: str | None, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        return LockSource(self, self.name(queue), window, lock, poll)

    async def pop(self, queue: str | None) -> Received | None:
        """Remove the head of the queue. If the caller is cancelled, the next pop returns the message."""
        name = self.name(queue)
        kept = self._popped.setdefault(name, deque())
        if not kept:
            self.link.check()
            try:
                answer = await self.ask(Opcode.POP, name, keep=partial(_keep, kept))
            except (Disconnected, TimedOut) as error:
                raise Uncertain(f"a message may have been popped and lost in transit ({error})") from error
            found(answer, f"pop {name!r}")
        return received(kept.popleft()) if kept else None

    async def acquire(self, queue: str | None, lock: float | None) -> Delivery | None:
        """Lock the head of the queue, if there is one. If the caller is cancelled, the lock is released."""
        name = self.name(queue)
        pending = PendingRequests(1)
        sent_at = asyncio.get_running_loop().time()
        self.send([self.request(Opcode.ACQUIRE_PEEK_LOCK, name, locked_for(lock))], pending)
        try:
            await self.answered(pending)
        except asyncio.CancelledError:
            pending.keep = self.give_back
            raise
        answer = pending.answers[0]
        if answer is None:
            self.link.check()
        assert isinstance(answer, Response)
        if found(answer, f"lock a message of {name!r}") is None:
            return None
        return self.delivery(answer, name, sent_at, lock, None)

    def delivery(
        self, answer: Response, name: str, sent_at: float, lock: float | None, on_done: Callable[[Hold], None] | None
    ) -> Delivery:
        """A locked message. With a ``lock`` duration, our clock knows when it expires."""
        message = received(answer, locked=True)
        hold = Hold(self, name, uuid_of(answer), on_done)
        if lock is not None:
            hold.stale_at = sent_at + lock
        return Delivery(message, hold)

    def give_back(self, answer: Answer) -> None:
        """Release a lock that is not wanted any more, without waiting for the answer."""
        if isinstance(answer, Response) and answer.status == Status.SUCCESS:
            self.release_soon(uuid_of(answer))

    def release_soon(self, key: bytes) -> None:
        """Release the lock of this message with a one-way request."""
        if self.failure is None:
            request = self.request(Opcode.RELEASE_PEEK_LOCK, metadata=Metadata(uuid=key), two_way=False)
            self.link.write(kokaq.encode_requests([request], self._variant))

    @override
    async def settle(self, hold: Hold, action: Action, ttl: float | None) -> None:
        """The broker confirms it."""
        require(self.abilities, action.ability)
        if action is Action.ACK:
            await self._with_lock("acknowledge a message", Opcode.DELETE, Metadata(uuid=hold.key))
        else:
            await self._with_lock("release a message", Opcode.RELEASE_PEEK_LOCK, Metadata(uuid=hold.key))

    @override
    async def renew(self, hold: Hold, lock: float | None) -> None:
        metadata = Metadata(uuid=hold.key, lock_duration=milliseconds(lock))
        sent_at = asyncio.get_running_loop().time()
        await self._with_lock("renew a lock", Opcode.ACQUIRE_PEEK_LOCK, metadata)
        hold.stale_at = float("inf") if lock is None else sent_at + lock

    async def _with_lock(self, what: str, opcode: Opcode, metadata: Metadata) -> None:
        """Send a request on a locked message. Raises NotHeld if the lock has expired."""
        try:
            await self.succeed(what, opcode, metadata=metadata)
        except Refused as refusal:
            if refusal.reason != "bad":
                raise
            raise NotHeld("the lock expired; the broker delivers the message again") from refusal

    # Incoming frames.

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
            self.link.fail(ProtocolProblem(f"{self.address} answered a request that was not sent"))
            return
        pending, index = waiting
        pending.take(index, answer)

    def _lost(self) -> None:
        for pending, _ in self._waiting.values():
            pending.done.set()
        self._waiting.clear()
        for event in self.at_end:
            event.set()


class PendingPushes(Sending):
    """Pushes that await their confirmations."""

    def __init__(self, session: KokaqClientSession, messages: Sequence[Outgoing], pending: PendingRequests) -> None:
        self.messages = messages
        self._session = session
        self._pending = pending

    @override
    async def outcomes(self) -> Sequence[str | ClientError | None]:
        with suppress(TimedOut):  # the connection has ended, and missing answers are None
            await self._session.answered(self._pending)
        return [_outcome(answer) for answer in self._pending.answers]


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


def _choose(query: Mapping[str, str]) -> tuple[Variant, Abilities]:
    numbering = choice(query, "numbering", {each.value: each for each in Numbering}, Numbering.CANONICAL)
    order = choice(query, "bits", {each.value: each for each in BitOrder}, BitOrder.LOW)
    return Variant(numbering, order), ABILITIES


ABILITIES = Abilities(
    "Kokaq",
    COMMON
    | {"confirmed publishing", "release", "renew", "lock", "pop", "peek", "get", "queue_info", "create_queue"}
    | {"delete_queue", "create_namespace", "delete_namespace", "ping", "health", "counters", "queue", "ttl"}
    | {"priority", "delay", "expires_at", "correlation_id", "request_id", "id", "source_info"},
)
CLIENT = ClientProtocol(
    session=KokaqClientSession,
    abilities=(ABILITIES,),
    queue="namespace/name",
    url_options=("numbering", "bits"),
    variant=_choose,
    window=16,
)
