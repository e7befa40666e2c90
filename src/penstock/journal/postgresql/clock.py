"""The clock of the journal in PostgreSQL, which the simulator replaces by its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """Elapsed seconds, the time of day in microseconds since 1970, and sleeping."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], int] = lambda: time.time_ns() // 1000
    sleep: Callable[[float], None] = time.sleep
