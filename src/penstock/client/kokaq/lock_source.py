"""Consuming from Kokaq: messages are locked, not pushed, so waiting is polling."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from penstock.client.kokaq.answers import found, locked_for
from penstock.client.kokaq.requests import Answer, PendingRequests
from penstock.client.messages import Delivery, Hold
from penstock.client.session import MessageSource
from penstock.wire.kokaq import Opcode, Response, Status

if TYPE_CHECKING:
    from penstock.client.kokaq.session import KokaqClientSession


class LockSource(MessageSource):
    """Locks messages in small batches and polls with growing pauses while the queue is empty.

    Kokaq answers an empty queue at once, so the pauses double from `FIRST_PAUSE` to ``poll`` seconds. A lock already
    runs while its message waits for the consumer. So the first batch is one message, and batches double, up to the
    window, only while each is consumed within `QUICK` seconds.
    """

    FIRST_PAUSE = 0.01
    QUICK = 1.0

    def __init__(self, session: KokaqClientSession, name: str, window: int, lock: float | None, poll: float) -> None:
        self._session = session
        self._name = name
        self._window = window
        self._lock = lock
        self._poll = poll
        self._ready: deque[Delivery] = deque()
        self._held: set[Hold] = set()
        #: Set when a message was settled, and when the connection ends.
        self._settled = asyncio.Event()
        session.at_end.add(self._settled)
        self._pending: PendingRequests | None = None
        self._batch = 1
        self._batch_at = 0.0
        self._pause = 0.0
        self._closed = False

    @override
    async def next(self) -> Delivery:
        while True:
            self._session.link.check()
            if (delivery := self._fresh()) is not None:
                return delivery
            if self._pending is None:
                await self._room()
                await asyncio.sleep(self._pause)
                self._ask()
            await self._take_answers()

    @override
    def close(self) -> None:
        """Locks of messages that were not consumed are released."""
        self._closed = True
        for delivery in self._ready:
            self._session.release_soon(delivery.hold.key)
        self._ready.clear()

    def _fresh(self) -> Delivery | None:
        """The next message whose lock still holds. The others are back in the queue."""
        now = asyncio.get_running_loop().time()
        while self._ready:
            delivery = self._ready.popleft()
            if delivery.hold.stale_at > now:
                return delivery
            self._held.discard(delivery.hold)
        return None

    async def _room(self) -> None:
        """Wait until the window has room."""
        clock = asyncio.get_running_loop().time
        while True:
            self._held = {hold for hold in self._held if hold.stale_at > clock()}
            if len(self._held) < self._window:
                return
            self._settled.clear()
            soonest = min(hold.stale_at for hold in self._held)
            try:
                async with asyncio.timeout_at(soonest if soonest != math.inf else None):
                    await self._settled.wait()
            except TimeoutError:
                continue
            self._session.link.check()

    def _ask(self) -> None:
        """Request the next batch."""
        now = asyncio.get_running_loop().time()
        quick = self._pause == 0 and now - self._batch_at < self.QUICK
        self._batch = min(2 * self._batch, self._window) if quick else 1
        self._batch_at = now
        count = min(self._batch, self._window - len(self._held))
        metadata = locked_for(self._lock)
        requests = [self._session.request(Opcode.ACQUIRE_PEEK_LOCK, self._name, metadata) for _ in range(count)]
        self._pending = PendingRequests(count, partial(self._keep, now))
        self._session.send(requests, self._pending)

    async def _take_answers(self) -> None:
        """Wait for the answers to the last batch, even if the caller that requested it was cancelled."""
        pending = self._pending
        assert pending is not None
        await self._session.answered(pending)
        self._pending = None
        answers = [
            found(answer, f"consume {self._name!r}") for answer in pending.answers if isinstance(answer, Response)
        ]
        empty = not any(answers)
        self._pause = min(max(2 * self._pause, self.FIRST_PAUSE), self._poll) if empty else 0.0

    def _keep(self, sent_at: float, answer: Answer) -> None:
        """Keep a message as soon as it arrives, so that no cancellation loses it."""
        if self._closed:
            self._session.give_back(answer)
        elif isinstance(answer, Response) and answer.status == Status.SUCCESS:
            delivery = self._session.delivery(answer, self._name, sent_at, self._lock, self._done)
            self._held.add(delivery.hold)
            self._ready.append(delivery)

    def _done(self, hold: Hold) -> None:
        self._held.discard(hold)
        self._settled.set()
