"""The lease on a journal that other brokers may take over: without it, nothing may leave this one."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from penstock.journal.contract import Lease
from penstock.journal.errors import LogFull
from penstock.server.logs import Logger


class LeaseHold:
    """Whether the broker holds its lease. A journal of its own has none, and needs none."""

    def __init__(self, log: Logger, count: Callable[[str], None], on_renewed: Callable[[], None]) -> None:
        self._log = log
        self._count = count
        self._on_renewed = on_renewed
        self._lease: Lease | None = None
        self._lost = False
        #: There is a lease.
        self.needed = False
        #: The lease has run out, or is lost for good: nothing leaves.
        self.suspended = False
        #: Why the last renewal failed; None if it succeeded.
        self.renewal_error: LogFull | None = None

    def begin(self, lease: Lease) -> None:
        """The journal has a lease, and this broker holds it."""
        self._lease = lease
        self.needed = True

    def is_valid(self) -> bool:
        """Whether something may leave now: what leaves is no event by which the journal would notice another owner."""
        lease = self._lease
        valid = lease is None or (monotonic() < lease.deadline and not self._lost)
        if valid == self.suspended:
            self.suspended = not valid
            if not valid:
                self._count("leases_run_out")
                self._log.error("the lease on the journal has run out: nothing is handed out until it is renewed")
            else:
                self._log.warning("the lease on the journal is renewed: service continues")
                self._on_renewed()
        return valid

    def lose(self) -> None:
        """Hand out nothing from now on: another broker may have taken over."""
        self._lost = self.suspended = self.needed

    def note_renewal(self, error: LogFull | None) -> None:
        """A renewal has failed, or (None) succeeded. A failure of a kind that is new is logged."""
        before, self.renewal_error = self.renewal_error, error
        if error is not None and type(error) is not type(before):
            self._log.warning("the lease on the journal cannot be renewed", reason=str(error))
