"""The owner's view of its lease: by its own clock, and ending earlier than for other brokers."""

from __future__ import annotations

from collections.abc import Callable

#: The owner gives up this part of a lease, for clocks of different speed and for messages in transit.
MARGIN = 1 / 6


class DatabaseLease:
    """A ``contract.Lease``. The functions do what its methods of the same names promise."""

    def __init__(
        self, seconds: float, renew: Callable[[], None], keep: Callable[[], bool], release: Callable[[], None]
    ) -> None:
        self.seconds = seconds
        self.deadline = float("-inf")
        self._is_over = False
        self.renew = renew
        self.keep = keep
        self.release = release

    def extend(self, asked_at: float) -> None:
        """Extend it after a renewal that was requested at this time of the clock."""
        self.deadline = max(self.deadline, asked_at + self.seconds * (1 - MARGIN))
        if self._is_over:  # another thread may have ended it meanwhile
            self.deadline = float("-inf")

    def end(self) -> None:
        """End the lease permanently: nothing may be delivered any more."""
        self._is_over = True
        self.deadline = float("-inf")
