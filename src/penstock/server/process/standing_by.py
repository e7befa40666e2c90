"""Standing by: another broker owns the journal, and this process waits to take over, with the state at hand.

It asks for the journal a few times a second; the lease of the owner, by the database's clock, decides. Meanwhile it
follows the blocks, so that a take-over reads what came last and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.journal import Journal, OwnedJournal
from penstock.journal.contract import Standby
from penstock.journal.errors import Fenced, JournalOwned, LogError, LogFull
from penstock.server.engine.followed_state import FollowedState
from penstock.server.engine.start import Opened, open_engine
from penstock.server.maintenance.upkeep import Retention
from penstock.server.process.logs import Logger
from penstock.server.process.stopping import Stopping

#: Seconds between two tries to own the journal.
LOOK = 0.2
#: Seconds between two steps of following, at least; and how many times as long as a step took.
FOLLOW = 1.0
FOLLOW_PART = 5
#: Seconds between two tries of a database that does not answer.
AWAY = 0.5

T = TypeVar("T")


class StandingBy:
    """Waits until the journal is ours. ``told`` is awaited when it turns out whose it is, with that owner's name."""

    def __init__(
        self,
        journal: Journal,
        retention: Retention,
        min_free: int,
        stopping: Stopping,
        log: Logger,
        told: Callable[[str], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._retention = retention
        self._min_free = min_free
        self._stopping = stopping
        self._log = log
        self._told = told
        #: Who has it, for people.
        self.owner = ""
        self._trouble = ""
        #: Seconds that the state took to be there, once the journal was ours.
        self.took = 0.0

    async def run(self) -> Opened | None:
        """The engine on the journal that is ours now. None: the process is to end. Raises LogError."""
        opened = await self._attempt(lambda: self._open(self._journal.own()))
        while opened is None and not self._stopping.asked:
            standby = await self._try(self._journal.stand_by)
            if standby is not None:
                try:
                    return await self._follow(standby)
                finally:
                    await asyncio.to_thread(standby.close)
            await self._stopping.wait(AWAY)
        return opened

    async def _follow(self, standby: Standby) -> Opened | None:
        state, due = FollowedState(standby), 0.0
        while not self._stopping.asked:
            opened = await self._attempt(lambda: self._open(standby.own(), state))
            if opened is not None:
                return opened
            if time.monotonic() >= due and not self._trouble:
                began = time.monotonic()
                await self._try(lambda: state.catch_up(time.time_ns() // 1000))
                due = time.monotonic() + max(FOLLOW, FOLLOW_PART * (time.monotonic() - began))
            await self._stopping.wait(AWAY if self._trouble else LOOK)
        return None

    def _open(self, owned: OwnedJournal, state: FollowedState | None = None) -> Opened:
        """In a thread."""
        began, now = time.monotonic(), time.time_ns() // 1000
        followed = state.take() if state is not None else None
        opened = open_engine(owned, now, self._retention, min_free=self._min_free, followed=followed)
        self.took = time.monotonic() - began
        return opened

    async def _attempt(self, attempt: Callable[[], Opened]) -> Opened | None:
        """Own it, if nobody else does."""
        try:
            return await self._try(attempt)
        except JournalOwned as error:
            if error.owner != self.owner:
                self.owner = error.owner
                await self._told(error.owner)
        except Fenced:
            self._log.warning("another broker was quicker to take over")
        return None

    async def _try(self, work: Callable[[], T]) -> T | None:
        """Do something with the journal in a thread. None: the database does not answer."""
        try:
            done = await asyncio.to_thread(work)
        except LogFull as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._log.error("the journal can not be had: it is tried again", reason=self._trouble)
            return None
        except LogError:
            self._recovered()
            raise
        self._recovered()
        return done

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = ""
            self._log.warning("the journal answers again")
