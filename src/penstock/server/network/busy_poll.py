"""Busy polling: the loop looks for bytes again and again for a moment, instead of sleeping until they come.

Waking a thread that sleeps takes a processor tens of microseconds, about as long as everything that a lone message
needs but its sync. A peer that waits for one answer before it sends the next request pays that on each round trip, once
for its own thread and once for ours. So where the last bytes came within a moment of our having nothing to do, the next
ones probably will, and sleeping is not worth it. Where they do not come in that time, the loop sleeps, and goes on
doing so until some have come as soon as that again: a broker that is idle, or has long pauses, polls for nothing.

Not where the broker may use one processor only: the peer may need it, or the quota of a container would be used up.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Protocol

#: Seconds in which bytes have to come for polling to be worth it.
MOMENT: Final = 100e-6


class Loop(Protocol):
    """What is needed of an event loop."""

    def call_soon(self, callback: Callable[[], None], /) -> Any:
        """Call this in the next iteration, before which the loop does not sleep."""


class BusyPoll:
    """Keeps a loop awake while that pays."""

    def __init__(self, loop: Loop, processors: float, clock: Callable[[], float] = monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._possible = processors > 1
        #: Whether the last bytes came in time.
        self._worth = False
        #: Since when there is nothing to do, after the last bytes; 0: there is.
        self._idle_since = 0.0
        self._polling = False

    def idle(self) -> None:
        """There is nothing to do until bytes come. Told again without any, that changes nothing: the moment goes on."""
        if not self._idle_since:
            self._idle_since = self._clock()
        if self._worth and not self._polling:
            self._polling = True
            self._loop.call_soon(self._poll)

    def wait(self) -> None:
        """A thread is at work, which needs the interpreter and tells of its end: the moment begins after that."""
        self._idle_since = 0.0

    def busy(self) -> None:
        """Bytes have come."""
        if self._idle_since:
            self._worth = self._possible and self._clock() - self._idle_since < MOMENT
            self._idle_since = 0.0

    def _poll(self) -> None:
        """One look is an iteration of the loop; as long as this asks for another one, it does not sleep."""
        if not self._idle_since:
            self._polling = False
        elif self._clock() - self._idle_since < MOMENT:
            self._loop.call_soon(self._poll)
        else:
            self._polling = self._worth = False
