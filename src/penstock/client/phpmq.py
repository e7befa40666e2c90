"""PHPMQ: publish and forget; windows that the broker keeps filled; acknowledge, re-queue, reject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from typing_extensions import override

from penstock.client.abilities import require
from penstock.client.connection import Link
from penstock.client.errors import Busy
from penstock.client.messages import Action, Delivery, Hold, Outgoing, Received
from penstock.client.options import ClientOptions
from penstock.client.protocol import COMMON, Abilities, ClientProtocol
from penstock.client.session import ClientSession, Inbox, MessageSource
from penstock.client.urls import Address, choice
from penstock.wire import phpmq
from penstock.wire.phpmq import Dialect, PhpmqFrame, Style

_FORMS = {"compact": b"", "lined": b"\n", "crlf": b"\r\n"}


class PhpmqVariant(NamedTuple):
    """The dialect, and the width and line ends, that the client sends."""

    dialect: Dialect
    style: Style


class PhpmqClientSession(ClientSession):
    """One PHPMQ connection."""

    link: Link[PhpmqFrame]

    def __init__(self, address: Address, options: ClientOptions) -> None:
        super().__init__(address, options)
        self._variant: PhpmqVariant = address.variant
        self.link = Link(address, phpmq.ClientDecoder(options.max_message), self._take, self._lost)
        #: By queue. An inbox outlives its consumer: the next one gets what the broker had already sent.
        self._inboxes: dict[str, Inbox] = {}
        self._consumed: set[str] = set()

    @override
    def check(self, message: Outgoing) -> None:
        super().check(message)
        ttl = message.ttl_seconds
        if ttl is not None and not 0 <= ttl <= phpmq.MAX_TTL:
            raise ValueError(f"a time to live is 0 to {phpmq.MAX_TTL} seconds, not {ttl}")

    @override
    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> None:
        """The broker does not confirm it."""
        self._write(self._publishes(self.name(queue), messages))
        await self.link.drain(self.options.timeout)

    @override
    def _source(self, queue: str | None, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        return PhpmqSource(self, self.name(queue), window)

    @override
    async def settle(self, hold: Hold, action: Action, ttl: float | None) -> None:
        """The broker does not confirm it."""
        require(self.abilities, action.ability)
        if action is Action.ACK:
            frame: PhpmqFrame = phpmq.Acknowledge(hold.queue, (hold.key,))
        elif action is Action.REJECT:
            frame = phpmq.Reject(hold.queue, (hold.key,))
        else:
            frame = phpmq.Requeue(hold.queue, hold.key, Outgoing(b"", ttl or 0).ttl_seconds or 0)
        self._write([frame])
        await self.link.drain(self.options.timeout, at_once=False)

    def start(self, queue: str, window: int) -> Inbox:
        """Open a window of ``window`` unsettled messages."""
        if queue in self._consumed:
            raise Busy(f"this client already consumes {queue!r}; use another client for a second consumer")
        self._write([phpmq.Consume(queue, window)])
        self._consumed.add(queue)
        return self._inbox(queue)

    def stop(self, queue: str) -> None:
        """Close the window. Messages in flight stay in flight."""
        self._consumed.discard(queue)
        if self.failure is None:
            self._write([phpmq.Consume(queue, 0)])

    def _write(self, frames: Iterable[PhpmqFrame]) -> None:
        self.link.write(phpmq.encode(frames, self._variant.style))

    def _publishes(self, queue: str, messages: Sequence[Outgoing]) -> Iterator[PhpmqFrame]:
        for ttl, run in groupby(messages, lambda message: message.ttl_seconds):
            yield phpmq.Publish(queue, tuple(message.body for message in run), ttl)

    def _inbox(self, queue: str) -> Inbox:
        if queue not in self._inboxes:
            self._inboxes[queue] = Inbox(self.link)
        return self._inboxes[queue]

    def _take(self, frames: list[PhpmqFrame]) -> None:
        for frame in frames:
            assert isinstance(frame, phpmq.Dispatch)
            put = self._inbox(frame.queue).put
            ttls = frame.ttls or (None,) * len(frame.ids)
            for key, body, ttl in zip(frame.ids, frame.payloads, ttls, strict=True):
                received = Received(body, frame.queue, key.decode("ascii", "backslashreplace"), ttl)
                put(Delivery(received, Hold(self, frame.queue, key)))

    def _lost(self) -> None:
        for inbox in self._inboxes.values():
            inbox.wake()


class PhpmqSource(MessageSource):
    """One queue's window. The broker pushes whenever there is a message and a free slot."""

    def __init__(self, session: PhpmqClientSession, queue: str, window: int) -> None:
        self._session = session
        self._queue = queue
        self._inbox = session.start(queue, window)

    @override
    async def next(self) -> Delivery:
        self._session.link.check()
        while (delivery := self._inbox.take()) is None:
            await self._inbox.news()
        return delivery

    @override
    def close(self) -> None:
        self._session.stop(self._queue)


def _variant(query: Mapping[str, str]) -> tuple[PhpmqVariant, Abilities]:
    dialect = choice(query, "dialect", {each.value: each for each in Dialect}, Dialect.TTL)
    style = Style(36 if dialect is Dialect.WIDE else 32, choice(query, "form", _FORMS, b""))
    return PhpmqVariant(dialect, style), WITH_TTL if dialect is Dialect.TTL else PLAIN


#: The two dialects without TTL, re-queue and reject.
PLAIN = Abilities("PHPMQ (dialects 32 and 36)", COMMON | {"queue", "payload over 65,535 bytes"})
WITH_TTL = Abilities("PHPMQ", PLAIN.operations | {"requeue", "reject", "ttl"})

CLIENT = ClientProtocol(
    session=PhpmqClientSession,
    abilities=(WITH_TTL, PLAIN),
    url_options=("dialect", "form"),
    variant=_variant,
)
