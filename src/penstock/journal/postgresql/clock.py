"""The time, as the journal in PostgreSQL takes it: handed in, so that the simulator can have its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """What shows how much time has passed, the time of day in microseconds since 1970, and waiting."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], int] = lambda: time.time_ns() // 1000
    sleep: Callable[[float], None] = time.sleep
