"""Several processes in one thread, under one simulated clock: who runs next is decided by when each wants to go on.

A *task* is a function that calls ``sleep`` wherever a real one would wait for something; anything may happen
meanwhile. The same functions run as in a real process: none of them knows that it is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import greenlet


class Killed(BaseException):
    """The process is no more. No handler of errors catches it, as none would run after ``kill -9``."""


class Scheduler:
    """Tasks and callbacks by the time at which they go on. ``now`` is in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = count()
        self._hub = greenlet.getcurrent()
        #: What a task has raised, which ends the run.
        self._failure: BaseException | None = None

    def call(self, delay: float, do: Callable[[], object]) -> None:
        """Do something later."""
        heappush(self._due, (self.now + delay, next(self._serial), do))

    def spawn(self, task: Callable[[], object], delay: float = 0.0) -> greenlet.greenlet:
        """Begin a task."""

        def run() -> None:
            try:
                task()
            except Killed:
                pass
            except BaseException as error:  # it is the finding
                self._failure = error

        started = greenlet.greenlet(run, self._hub)
        self.call(delay, started.switch)
        return started

    def sleep(self, seconds: float) -> None:
        """Let a task wait. Whoever is due before goes first."""
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
        """Let time pass. Raises what a task has raised."""
        while self._due and self._due[0][0] <= until:
            when, _, do = heappop(self._due)
            self.now = max(self.now, when)
            do()
            if self._failure is not None:
                raise self._failure
        self.now = until


class TaskLock:
    """A lock for tasks, which are all in one thread: who waits for it lets the others run. As ``threading.RLock``."""

    #: Seconds between two looks.
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
