"""Publishing in batches: in order, a few in flight at a time, and never resent without the caller's consent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from penstock.client.close_reasons import Unconfirmed
from penstock.client.errors import ClientError, Disconnected, Refused, TimedOut, Uncertain
from penstock.client.messages import Details, Outgoing, Published, new_request_id, outgoing
from penstock.client.options import ClientOptions
from penstock.client.session import ClientSession, Sending

#: A batch ends at this many messages or bytes, whichever comes first: enough to make the cost of a write negligible.
BATCH_MESSAGES = 256
BATCH_BYTES = 1024 * 1024
#: Unconfirmed batches at a time. With the size of a batch this bounds a publisher's memory.
BATCHES_IN_FLIGHT = 4
#: Seconds after its first attempt within which a push may be resent. The broker detects duplicates for five minutes;
#: the difference allows for clocks and the network.
RESEND_WITHIN = 240.0
#: Seconds that a broker which refuses because it shuts down may take to close the connection.
FAREWELL = 2.0


class Batcher:
    """Gathers messages into batches."""

    def __init__(self, details: Details) -> None:
        self._details = details
        self._batch: list[Outgoing] = []
        self._bytes = 0

    def add(self, message: Outgoing | bytes | str) -> list[Outgoing] | None:
        """Add a message; returns the batch that it completes, if any."""
        made = outgoing(message, self._details)
        self._batch.append(made)
        self._bytes += len(made.body)
        return self.rest() if len(self._batch) >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES else None

    def rest(self) -> list[Outgoing]:
        """The incomplete batch."""
        batch, self._batch, self._bytes = self._batch, [], 0
        return batch


def in_batches(messages: Iterable[Outgoing | bytes | str], details: Details) -> Iterator[list[Outgoing]]:
    """All messages in batches, read lazily."""
    batcher = Batcher(details)
    for message in messages:
        if (batch := batcher.add(message)) is not None:
            yield batch
    if rest := batcher.rest():
        yield rest


class _InFlight(NamedTuple):
    sending: Sending
    session: ClientSession
    first_sent: float


class Publisher:
    """One publish of any length: add batches, then finish.

    An error is raised only after all batches in flight were answered, and reports what became of them.
    """

    def __init__(
        self,
        session: Callable[[], Awaitable[ClientSession]],
        queue: str | None,
        options: ClientOptions,
        sent: Unconfirmed,
        why_closed: Callable[[], Awaitable[str]],
    ) -> None:
        self._session = session
        self._sent = sent
        self._why_closed = why_closed
        self._queue = queue
        self._options = options
        self._in_flight: deque[_InFlight] = deque()
        self._count = 0
        self._confirmed = True
        self._ids: list[str] = []
        self._refused: list[Outgoing] = []
        self._refusal: Refused | None = None

    async def add(self, batch: Sequence[Outgoing]) -> None:
        """Send a batch as soon as there is room."""
        if not batch:
            return
        sent = False
        try:
            if self._in_flight and self._in_flight[0].session.failure is not None:
                await self._wait_for_all()  # resends come before new messages
            session = await self._session()
            batch = await self._ready(session, batch)
            sent = True
            await self._send(session, batch, asyncio.get_running_loop().time())
            while len(self._in_flight) >= BATCHES_IN_FLIGHT:
                await self._wait_for_oldest()
        except ClientError as error:
            error.published = self._published()
            error.unsent = () if sent else tuple(batch)
            if isinstance(error, Disconnected | Uncertain) and self._sent.count:
                error.add_note(await self._why_closed())
                self._sent.reported = True
            raise

    async def finish(self) -> Published:
        """Wait for all confirmations. Raises :class:`Refused` if a message was refused."""
        await self._wait_for_all()
        return self._published()

    async def _ready(self, session: ClientSession, batch: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """The batch as it will be sent. Raises if the protocol can't carry all of it."""
        try:
            for message in batch:
                session.check(message)
        except (ClientError, ValueError) as error:
            await self._wait_for_all()
            error.add_note(f"its batch was not sent; {self._count} message(s) before it were")
            raise
        if not (self._options.idempotent and session.can("request_id")):
            return batch
        return [m if m.request_id is not None else replace(m, request_id=new_request_id()) for m in batch]

    def _published(self) -> Published:
        return Published(self._count, self._confirmed and self._count > 0, tuple(self._ids))

    async def _send(self, session: ClientSession, batch: Sequence[Outgoing], first_sent: float) -> None:
        if not session.can("confirmed publishing"):
            self._sent.note(self._queue or session.address.queue, [len(message.body) for message in batch])
        try:
            sending = await session.publish(self._queue, batch)
        except (Disconnected, TimedOut) as error:
            raise self._uncertain(batch, error) from error
        if sending is None:
            self._confirmed = False
            self._count += len(batch)
        else:
            self._in_flight.append(_InFlight(sending, session, first_sent))

    async def _wait_for_all(self) -> None:
        while self._in_flight:
            await self._wait_for_oldest()

    async def _wait_for_oldest(self) -> None:
        """Wait for the answers to the oldest batch. If some are missing, settle everything in flight."""
        sending, session, first_sent = self._in_flight.popleft()
        unanswered = self._note(sending, await sending.outcomes())
        if not unanswered and self._refusal is None:
            return
        while self._in_flight:
            sending = self._in_flight.popleft().sending
            unanswered += self._note(sending, await sending.outcomes())
        if self._refusal is None:
            await self._again(unanswered, first_sent, session.failure)
        elif unanswered or not await self._left(session):
            raise self._refused_with(unanswered)
        else:
            refused, self._refused, self._refusal = self._refused, [], None
            await self._resend(refused, first_sent)

    async def _left(self, session: ClientSession) -> bool:
        """Whether the broker refused because it shuts down, and the client reconnects.

        Refused messages were not accepted, so they can always be resent.
        """
        refusal = self._refusal
        assert refusal is not None
        return self._options.returning is not None and refusal.retriable and await session.link.ended(FAREWELL)

    async def _again(self, messages: list[Outgoing], first_sent: float, failure: ClientError | None) -> None:
        """Resend what the broker would detect as duplicates. Raises :class:`Uncertain` for anything else."""
        in_time = asyncio.get_running_loop().time() - first_sent < RESEND_WITHIN
        if self._options.returning is None or not in_time or not _detectable(messages):
            raise self._uncertain(messages, failure) from failure
        await self._resend(messages, first_sent)

    async def _resend(self, messages: list[Outgoing], first_sent: float) -> None:
        try:
            session = await self._session()
        except ClientError as error:
            raise self._uncertain(messages, error) from error
        for start in range(0, len(messages), BATCH_MESSAGES):
            await self._send(session, messages[start : start + BATCH_MESSAGES], first_sent)

    def _note(self, sending: Sending, outcomes: Sequence[str | ClientError | None]) -> list[Outgoing]:
        """Record the outcome of each message. Returns those without an answer."""
        unanswered = []
        for message, outcome in zip(sending.messages, outcomes, strict=True):
            if isinstance(outcome, str):
                self._ids.append(outcome)
                self._count += 1
            elif outcome is None:
                unanswered.append(message)
            else:
                assert isinstance(outcome, Refused)
                self._refused.append(message)
                self._refusal = self._refusal or outcome
        return unanswered

    def _refused_with(self, unanswered: list[Outgoing]) -> Refused:
        refusal = self._refusal
        assert refusal is not None
        refusal.messages = tuple(self._refused)
        refusal.published = self._published()
        if unanswered:
            refusal.add_note(f"whether {len(unanswered)} more message(s) were accepted is unknown")
        return refusal

    def _uncertain(self, messages: Sequence[Outgoing], cause: ClientError | None) -> Uncertain:
        before = f", {self._count} before them were {'confirmed' if self._confirmed else 'sent'}" if self._count else ""
        error = Uncertain(f"whether {len(messages)} message(s) were accepted is unknown{before} ({cause})")
        error.messages = tuple(messages)
        error.published = self._published()
        error.retriable = _detectable(messages)
        return error


def _detectable(messages: Sequence[Outgoing]) -> bool:
    """Whether the broker would detect all of these as duplicates."""
    return all(message.request_id is not None for message in messages)
