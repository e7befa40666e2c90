"""Processes that end with the one that started them, also where that is killed and can stop nobody.

There are two ways. A process that takes its orders from standard input ends when that does: the processes beside a
broker, those that answer SQL, the pipelines of ``penstock up``. Every other one asks Linux for a signal when the thread
that started it is gone. So it has to be started by a thread that outlives it; on other systems it may be left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from functools import partial

_PR_SET_PDEATHSIG = 1


def end_with(parent: int, number: int = signal.SIGTERM) -> None:
    """Get this signal when our parent, whose number this is, ends; at once if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def with_parent(number: int = signal.SIGTERM) -> Callable[[], None]:
    """What a process that we start has to run first (``preexec_fn``) to end with us."""
    return partial(end_with, os.getpid(), number)
