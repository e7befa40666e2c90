"""Busy polling: the loop looks for bytes again and again for a moment, instead of sleeping until they come.

Waking a sleeping thread takes tens of microseconds of CPU time, about as long as handling a lone message without its
sync. A peer that waits for one answer before it sends the next request pays that on each round trip, once for its own
thread and once for ours. So if the last bytes came within a moment of the loop becoming idle, the next ones probably
will too, and the loop polls instead of sleeping. If they do not, the loop sleeps until bytes come that soon again: an
idle broker never polls.

Fruitless polling costs more than it gains if it happens in a few of a hundred rounds: with peers that pause sometimes,
or if other processes compete for the CPUs. Then an interrupted peer waits for milliseconds to be scheduled, because the
polling loop occupies its CPU. So polling pauses for a while, longer each time, until it pays off again.

It is off if the broker has less than two CPUs: the peer may need one, or polling would use up a container's quota.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Protocol

#: Seconds in which bytes have to come for polling to be worth it.
MOMENT: Final = 100e-6
#: Polling pays off if at least ROUNDS polls find bytes for each one that does not; at most MOST_ROUNDS are counted.
ROUNDS: Final = 30
MOST_ROUNDS: Final = 300
#: Seconds for which polling pauses when they do not: the first time, and at most.
LEAST_PAUSE: Final = 0.01
MOST_PAUSE: Final = 1.0


class Loop(Protocol):
    """The part of an event loop that is used."""

    def call_soon(self, callback: Callable[[], None], /) -> Any:
        """Call this in the next iteration, before which the loop does not sleep."""


class BusyPoll:
    """Keeps a loop awake while that pays off."""

    def __init__(self, loop: Loop, processors: float, clock: Callable[[], float] = monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._possible = processors >= 2
        #: Whether the last bytes came in time.
        self._worth = False
        #: Since when there is nothing to do, after the last bytes; 0: there is.
        self._idle_since = 0.0
        self._polling = False
        #: Rounds in which bytes came while it polled, less ``ROUNDS`` for each in which none did.
        self._proved = 0
        self._pause = LEAST_PAUSE
        self._paused_until = 0.0

    def idle(self) -> None:
        """There is nothing to do until bytes come. Calling it again in between changes nothing."""
        if not self._idle_since:
            self._idle_since = self._clock()
        if self._worth and not self._polling:
            self._polling = True
            self._loop.call_soon(self._poll)

    def wait(self) -> None:
        """A thread is at work, which needs the interpreter and reports its end: the moment begins after that."""
        self._idle_since = 0.0

    def busy(self) -> None:
        """Bytes have come."""
        if self._idle_since:
            now = self._clock()
            soon = now - self._idle_since < MOMENT
            if self._polling:
                self._count(now, soon)
            self._worth = soon and self._possible and now >= self._paused_until
            self._idle_since = 0.0

    def _poll(self) -> None:
        """One look is an iteration of the loop; as long as this asks for another one, it does not sleep."""
        if not self._idle_since or not self._worth:
            self._polling = False
        elif (now := self._clock()) - self._idle_since < MOMENT:
            self._loop.call_soon(self._poll)
        else:
            self._count(now, soon=False)
            self._polling = self._worth = False

    def _count(self, now: float, soon: bool) -> None:
        """A round in which it has polled is over. ``soon``: bytes came in time."""
        if soon:
            self._proved += 1
            if self._proved >= MOST_ROUNDS:
                self._proved, self._pause = MOST_ROUNDS, LEAST_PAUSE
            return
        self._proved -= ROUNDS
        if self._proved < 0:
            self._proved = 0
            self._paused_until = now + self._pause
            self._pause = min(2 * self._pause, MOST_PAUSE)
