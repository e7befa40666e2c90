"""Standing by: another broker owns the journal, and this process waits to take over.

It checks the journal a few times a second and follows its blocks, so that a take-over reads only the last of them.
Once the owner's lease has expired, by the database's clock, it tries to become the owner.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.journal import Journal, OwnedJournal
from penstock.journal.contract import Standby
from penstock.journal.errors import Fenced, JournalOwned, LogAway, LogDenied, LogError, LogFull
from penstock.server.engine.followed_state import FollowedState
from penstock.server.logs import Logger
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened, open_engine
from penstock.server.process.stopping import Stopping

#: Seconds between two checks of the journal, at most and at least.
INTERVAL = 0.2
SHORTEST = 0.02
#: Seconds between two attempts while the database does not answer.
AWAY = 0.5

T = TypeVar("T")


class StandingBy:
    """Waits until the journal is ours. ``on_owner`` is awaited with the name of each new owner."""

    def __init__(
        self,
        journal: Journal,
        retention: Retention,
        min_free: int,
        stopping: Stopping,
        log: Logger,
        on_owner: Callable[[str], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._retention = retention
        self._min_free = min_free
        self._stopping = stopping
        self._log = log
        self._on_owner = on_owner
        #: The owner's name; empty if unknown, None before the first answer.
        self.owner: str | None = None
        self._trouble: LogFull | None = None
        #: Seconds from owning the journal to having its state.
        self.took = 0.0

    @property
    def trouble(self) -> str:
        """Why a take-over is not possible now. Anyone may read it: names and addresses are in the log alone."""
        if self._trouble is None:
            return ""
        if isinstance(self._trouble, LogDenied):
            return "the database turns it away (the log says why)"
        return "the database does not answer" if isinstance(self._trouble, LogAway) else "the database is full"

    async def run(self) -> Opened | None:
        """Return an engine on the journal once it is ours, or None when the process is to end. Raises LogError."""
        opened = await self._attempt(lambda: self._open(self._journal.own()))
        if opened is None and self.owner is None:
            await self._note("")  # the database does not answer
        while opened is None and self._trouble and not self._stopping.asked:  # it may have no tables to follow yet
            await self._stopping.wait(AWAY)
            opened = await self._attempt(lambda: self._open(self._journal.own()))
        if opened is not None or self._stopping.asked:
            return opened
        standby = self._journal.stand_by()
        try:
            return await self._follow(standby)
        finally:
            await asyncio.to_thread(standby.close)

    async def _follow(self, standby: Standby) -> Opened | None:
        state = FollowedState(standby)
        while not self._stopping.asked:
            await self._try(lambda: state.catch_up(time.time_ns() // 1000))
            if self._trouble or standby.seconds <= 0:  # there may be no journal yet
                opened = await self._attempt(lambda: self._open(standby.own(), state))
                if opened is not None:
                    return opened
            else:
                await self._note(standby.owner)
            await self._stopping.wait(AWAY if self._trouble else min(INTERVAL, max(standby.seconds, SHORTEST)))
        return None

    def _open(self, owned: OwnedJournal, state: FollowedState | None = None) -> Opened:
        """In a thread."""
        began, now = time.monotonic(), time.time_ns() // 1000
        followed = state.take() if state is not None else None
        opened = open_engine(owned, now, self._retention, min_free=self._min_free, followed=followed)
        self.took = time.monotonic() - began
        return opened

    async def _attempt(self, attempt: Callable[[], Opened]) -> Opened | None:
        """Become the owner, unless another broker is."""
        try:
            return await self._try(attempt)
        except JournalOwned as error:
            await self._note(error.owner)
        except Fenced:
            self._log.warning("another broker was quicker to take over")
        return None

    async def _note(self, owner: str) -> None:
        """Report a new owner."""
        if owner != self.owner:
            self.owner = owner
            await self._on_owner(owner)

    async def _try(self, work: Callable[[], T]) -> T | None:
        """Run ``work`` in a thread. None: the database does not answer."""
        try:
            done = await asyncio.to_thread(work)
        except LogFull as error:
            if type(self._trouble) is not type(error):
                self._log.error("the journal is not available: trying again", reason=str(error))
            self._trouble = error
            return None
        except LogError:
            self._recovered()
            raise
        self._recovered()
        return done

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = None
            self._log.warning("the journal answers again")
