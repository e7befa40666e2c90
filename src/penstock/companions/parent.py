"""Processes that end with their parent, even if the parent is killed and can stop nothing.

There are two ways. A process that reads from standard input ends when that does: companion processes, those that answer
SQL, the pipelines of ``penstock up``. All others ask Linux for a signal when the thread that started them ends, so they
must be started by a thread that outlives them. On other systems they may be left behind.
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
    """Deliver this signal to us when the parent with this process number ends; at once if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def with_parent(number: int = signal.SIGTERM) -> Callable[[], None]:
    """A ``preexec_fn`` that makes a child process end with us."""
    return partial(end_with, os.getpid(), number)
