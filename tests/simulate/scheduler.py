"""Several processes in one thread under one simulated clock: the task with the earliest wake-up time runs next.

A *task* is a function that calls ``sleep`` wherever a real one would wait for something; anything may happen
meanwhile. The functions are those of a real process and do not know that they are simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import greenlet


class Killed(BaseException):
    """The process was killed. Error handlers do not catch this, as none would run after ``kill -9``."""


class Scheduler:
    """Tasks and callbacks, ordered by wake-up time. ``now`` is in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = count()
        self._hub = greenlet.getcurrent()
        #: The exception that a task raised, which ends the run.
        self._failure: BaseException | None = None

    def call(self, delay: float, do: Callable[[], object]) -> None:
        """Call a function later."""
        heappush(self._due, (self.now + delay, next(self._serial), do))

    def spawn(self, task: Callable[[], object], delay: float = 0.0) -> greenlet.greenlet:
        """Start a task."""

        def run() -> None:
            try:
                task()
            except Killed:
                pass
            except BaseException as error:  # any failure is a finding
                self._failure = error

        started = greenlet.greenlet(run, self._hub)
        self.call(delay, started.switch)
        return started

    def sleep(self, seconds: float) -> None:
        """Let the current task wait; earlier ones run first."""
        waiting = greenlet.getcurrent()
        self.call(seconds, lambda: None if waiting.dead else waiting.switch())
        self._hub.switch()

    def kill(self, task: greenlet.greenlet) -> None:
        """End a task where it waits. A task that ends itself raises Killed instead."""
        if task is greenlet.getcurrent():
            raise Killed
        if not task.dead:
            task.throw(Killed)

    def run(self, until: float) -> None:
        """Let time pass. Raises the first exception of a task."""
        while self._due and self._due[0][0] <= until:
            when, _, do = heappop(self._due)
            self.now = max(self.now, when)
            do()
            if self._failure is not None:
                raise self._failure
        self.now = until


class TaskLock:
    """An equivalent of ``threading.RLock`` for tasks in one thread: a waiting task lets the other tasks run."""

    #: Seconds between attempts.
    _PAUSE = 0.001

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: object = None
        self._depth = 0

    def __enter__(self) -> None:
        me = greenlet.getcurrent()
        while self._owner not in (None, me):
            self._scheduler.sleep(self._PAUSE)
        self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
