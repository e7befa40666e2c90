"""Requests to end the process, and waits that such a request ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.journal.errors import LogFull, is_full
from penstock.server.logs import Logger
from penstock.server.process.readiness import STILL_STARTING, notify

#: Exit code after a second request to end.
ENDED_AT_ONCE = 1
#: Seconds between two attempts to start on a full disk.
WAIT_FOR_ROOM = 1.0

T = TypeVar("T")


class Stopping:
    """Requests to end the process: the first ends it in order, the second at once."""

    def __init__(self, log: Logger, reload: Callable[[], None]) -> None:
        """``reload`` is called for SIGHUP."""
        self._log = log
        self._reload = reload
        self._asked = asyncio.Event()
        self._requests = 0
        self._then: Callable[[], None] = lambda: None
        self._give_up: Callable[[], None] = lambda: None

    @property
    def asked(self) -> bool:
        """Whether the process has been asked to end."""
        return self._asked.is_set()

    def on_stop(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the process is asked to end, or now if it has been."""
        self._then = then
        if self.asked:
            then()

    def limit(self, seconds: float, give_up: Callable[[], None]) -> None:
        """Call ``give_up`` in a thread if the process still runs this long after the first request."""

        def start() -> None:
            timer = threading.Timer(seconds, give_up)  # the loop may be waiting as well
            timer.daemon = True
            timer.start()

        self._give_up = start

    def stop(self, name: str) -> None:
        """Ask the process to end. ``name`` is the signal's, or a user's."""
        self._requests += 1
        if self._requests > 1:
            # Safe at any moment: everything that was confirmed is on disk.
            self._log.warning("ended at once", signal=name)
            sys.stderr.flush()
            os._exit(ENDED_AT_ONCE)
        self._log.info("stopping", signal=name)
        self._asked.set()
        self._give_up()
        self._then()

    def listen_to_signals(self) -> None:
        """End on SIGTERM and SIGINT, and reload on SIGHUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    async def wait(self, seconds: float) -> bool:
        """Wait, at most until the process is asked to end. Returns whether it has been."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._asked.wait(), seconds)
        return self.asked


async def when_room(begin: Callable[[], Awaitable[T]], stopping: Stopping, log: Logger) -> T | None:
    """Run a step of the start, and repeat it while the disk is full. None: the process was asked to end."""
    while True:
        try:
            return await begin()
        except (LogFull, OSError) as error:
            if isinstance(error, OSError) and not is_full(error):
                raise
            log.error("the broker cannot start yet: it waits for room on the disk", reason=str(error))
        stopping.listen_to_signals()
        notify(STILL_STARTING)
        if await stopping.wait(WAIT_FOR_ROOM):
            return None
