"""Publishing: batches on their way, in order, never more than a few, and never sent twice on the quiet."""

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

#: A batch ends at this many messages or bytes, whichever comes first: enough to make the cost of a write small.
BATCH_MESSAGES = 256
BATCH_BYTES = 1024 * 1024
#: How many batches may be unconfirmed at a time. Together with the batch this bounds what a publisher holds in memory.
BATCHES_UNDER_WAY = 4
#: How long after its first sending a push may be sent again. The broker notices repetitions for five minutes; the rest
#: is for clocks and for the way.
RESEND_WITHIN = 240.0
#: How long after a refusal for reasons of its own a broker may take to end the connection, if it shuts down.
FAREWELL = 2.0


class Batcher:
    """Gathers messages into batches."""

    def __init__(self, details: Details) -> None:
        self._details = details
        self._batch: list[Outgoing] = []
        self._bytes = 0

    def add(self, message: Outgoing | bytes | str) -> list[Outgoing] | None:
        """The batch that this message completes, if it does."""
        made = outgoing(message, self._details)
        self._batch.append(made)
        self._bytes += len(made.body)
        return self.rest() if len(self._batch) >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES else None

    def rest(self) -> list[Outgoing]:
        """What has been gathered so far."""
        batch, self._batch, self._bytes = self._batch, [], 0
        return batch


def in_batches(messages: Iterable[Outgoing | bytes | str], details: Details) -> Iterator[list[Outgoing]]:
    """All messages, batch by batch, none read before its turn."""
    batcher = Batcher(details)
    for message in messages:
        if (batch := batcher.add(message)) is not None:
            yield batch
    if rest := batcher.rest():
        yield rest


class _UnderWay(NamedTuple):
    sending: Sending
    session: ClientSession
    first_sent: float


class Publisher:
    """One publish, of any length: add batches, then finish.

    Errors leave nothing open: whatever was under way is waited for first, and the error tells of it.
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
        self._under_way: deque[_UnderWay] = deque()
        self._count = 0
        self._confirmed = True
        self._ids: list[str] = []
        self._refused: list[Outgoing] = []
        self._refusal: Refused | None = None

    async def add(self, batch: Sequence[Outgoing]) -> None:
        """Send a batch, as soon as there is room for it."""
        if not batch:
            return
        sent = False
        try:
            if self._under_way and self._under_way[0].session.failure is not None:
                await self._wait_for_all()  # what has to be sent again comes before what is new
            session = await self._session()
            batch = await self._ready(session, batch)
            sent = True
            await self._send(session, batch, asyncio.get_running_loop().time())
            while len(self._under_way) >= BATCHES_UNDER_WAY:
                await self._wait_for_oldest()
        except ClientError as error:
            error.published = self._published()
            error.unsent = () if sent else tuple(batch)
            if isinstance(error, Disconnected | Uncertain) and self._sent.count:
                error.add_note(await self._why_closed())
                self._sent.told = True
            raise

    async def finish(self) -> Published:
        """Wait for all confirmations. Raises :class:`Refused` if a message was refused."""
        await self._wait_for_all()
        return self._published()

    async def _ready(self, session: ClientSession, batch: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """The batch as it is sent, if the protocol can carry all of it."""
        try:
            for message in batch:
                session.check(message)
        except (ClientError, ValueError) as error:
            await self._wait_for_all()
            error.add_note(f"nothing of its batch was sent; {self._count} message(s) before it were")
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
            self._under_way.append(_UnderWay(sending, session, first_sent))

    async def _wait_for_all(self) -> None:
        while self._under_way:
            await self._wait_for_oldest()

    async def _wait_for_oldest(self) -> None:
        """Wait for the answers to the oldest batch. If they don't come, decide about all that is under way."""
        sending, session, first_sent = self._under_way.popleft()
        unanswered = self._note(sending, await sending.outcomes())
        if not unanswered and self._refusal is None:
            return
        while self._under_way:
            sending = self._under_way.popleft().sending
            unanswered += self._note(sending, await sending.outcomes())
        if self._refusal is None:
            await self._again(unanswered, first_sent, session.failure)
        elif unanswered or not await self._left(session):
            raise self._refused_with(unanswered)
        else:
            refused, self._refused, self._refusal = self._refused, [], None
            await self._resend(refused, first_sent)

    async def _left(self, session: ClientSession) -> bool:
        """Whether the broker has refused because it shuts down, and the client goes on with the next one.

        What was refused was not taken, so it can be sent again whatever it is.
        """
        refusal = self._refusal
        assert refusal is not None
        return self._options.returning is not None and refusal.retriable and await session.link.ended(FAREWELL)

    async def _again(self, messages: list[Outgoing], first_sent: float, failure: ClientError | None) -> None:
        """Send again what the broker would notice as a repetition, and raise :class:`Uncertain` for anything else."""
        in_time = asyncio.get_running_loop().time() - first_sent < RESEND_WITHIN
        if self._options.returning is None or not in_time or not _noticed(messages):
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
        """Note what became of each message. Returns those of which nothing is known."""
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
            refusal.add_note(f"of {len(unanswered)} more message(s) it is not known whether they were taken")
        return refusal

    def _uncertain(self, messages: Sequence[Outgoing], cause: ClientError | None) -> Uncertain:
        before = f", {self._count} before them were {'confirmed' if self._confirmed else 'sent'}" if self._count else ""
        error = Uncertain(f"whether {len(messages)} message(s) were taken is not known{before} ({cause})")
        error.messages = tuple(messages)
        error.published = self._published()
        error.retriable = _noticed(messages)
        return error


def _noticed(messages: Sequence[Outgoing]) -> bool:
    """Whether the broker would notice if all of these were sent once more."""
    return all(message.request_id is not None for message in messages)
