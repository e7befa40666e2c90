"""Why the broker is not well: a full disk, a database that is away, too much memory. For the log and the operator."""

from __future__ import annotations

from typing import Final

from penstock.core.broker import Broker
from penstock.journal.errors import LogAway, LogDenied, LogFull
from penstock.server.engine.commits import CommitDriver
from penstock.server.engine.lease_hold import LeaseHold
from penstock.server.logs import Logger
from penstock.server.network.memory import Memory

#: While a journal in a database can't be written. The reason, with names and addresses, is in the log.
_AWAY: Final = "the database does not answer: nothing is confirmed until it does"
_DENIED: Final = "the database turns this broker away (the log says why): nothing is confirmed until it takes commits"


class Health:
    """What ails a running broker."""

    def __init__(self, broker: Broker, commits: CommitDriver, lease: LeaseHold, memory: Memory, log: Logger) -> None:
        self._broker = broker
        self._commits = commits
        self._lease = lease
        self._memory = memory
        self._log = log
        #: Why the last commit had to wait, if it had to.
        self._waited_for: LogFull | None = None
        #: Why compaction is blocked, or an empty string.
        self.upkeep_trouble = ""

    def note_upkeep(self, trouble: str) -> None:
        """Why compaction is blocked, or an empty string."""
        self.upkeep_trouble = trouble

    def note_full(self, error: LogFull | None) -> None:
        """A commit waits because the disk is full, or the database away; or (None) it is done. Call it in the loop."""
        if isinstance(error, LogAway):  # that is over soon, or another broker takes over: publishers just wait
            self._log.error(_DENIED if isinstance(error, LogDenied) else _AWAY, reason=str(error))
        elif error is not None:
            self._broker.disk_full = True
            self._log.error("the disk is full: nothing is confirmed until there is room", reason=str(error))
        elif isinstance(self._waited_for, LogAway):
            self._log.warning("the database answers again: service continues")
        else:
            self._log.warning("there is room on the disk again: service continues")
        self._waited_for = error

    def trouble(self) -> str:
        """The most important reason, or an empty string."""
        broker, full, lease = self._broker, self._commits.full, self._lease
        if broker.draining:
            return "shutting down"
        if isinstance(full, LogDenied) or (lease.suspended and isinstance(lease.renewal_error, LogDenied)):
            return _DENIED
        if lease.suspended or isinstance(full, LogAway):
            return _AWAY
        if full is not None:
            return "the disk is full: nothing is confirmed until there is room"
        if broker.disk_full:
            return "the disk is nearly full: publishing is refused"
        if broker.memory_full:
            return "the queues take too much memory: publishing is refused"
        if self._memory.congested:
            return "the disk is slower than the publishers"
        return f"upkeep fails: {self.upkeep_trouble}" if self.upkeep_trouble else ""
