"""The order in which to try the hosts of a group, of which one serves at a time and all serve one journal.

The same rules for every client, blocking or not: begin with the host that served last, go on to the next one when a
host cannot be reached or stands by, and fail only when none of them serves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

#: Seconds that a connection may take to open while another host could be tried.
CONNECT_SECONDS = 3.0


class HostRing(Generic[T]):
    """The hosts of a group, beginning with the current one."""

    def __init__(self, hosts: Sequence[T], first: T | None = None) -> None:
        """``first`` is the host to begin with, if it is one of them."""
        self._hosts = deque(hosts)
        self._failed = 0
        if first is not None and first in self._hosts:
            self.served(first)

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def current(self) -> T:
        """The host that served last, or is to be tried next."""
        return self._hosts[0]

    def in_order(self) -> tuple[T, ...]:
        """All hosts in the order in which to try them."""
        return tuple(self._hosts)

    def served(self, host: T) -> None:
        """Note that this host serves: it is the current one from now on."""
        self._hosts.rotate(-self._hosts.index(host))
        self._failed = 0

    def failed(self) -> bool:
        """Go on to the next host. False if all have failed since one served."""
        self._hosts.rotate(-1)
        self._failed = (self._failed + 1) % len(self._hosts)
        return self._failed > 0
