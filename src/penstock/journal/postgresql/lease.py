"""The lease of a journal's owner, as the owner sees it: by its own clock, and ending earlier than for all others."""

from __future__ import annotations

from collections.abc import Callable

#: This part of a lease is left out, for clocks that run at different speeds and what is on its way meanwhile.
MARGIN = 1 / 6


class DatabaseLease:
    """See ``contract.Lease``."""

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
        """The database has renewed it, after it was asked to at this moment."""
        self.deadline = max(self.deadline, asked_at + self.seconds * (1 - MARGIN))
        if self._is_over:  # it may have ended meanwhile, in another thread
            self.deadline = float("-inf")

    def end(self) -> None:
        """It is over for good: nothing may be handed out any more."""
        self._is_over = True
        self.deadline = float("-inf")
