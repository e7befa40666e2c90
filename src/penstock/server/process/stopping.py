"""The wish that the process ends, and waiting for something unless it comes."""

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

#: Exit code of a process that is told to end at once.
ENDED_AT_ONCE = 1
#: Seconds between two tries to start on a full disk.
WAIT_FOR_ROOM = 1.0

T = TypeVar("T")


class Stopping:
    """Whether the process is to end. The first wish ends it in order, the second at once."""

    def __init__(self, log: Logger, reload: Callable[[], None]) -> None:
        """``reload`` is called for SIGHUP."""
        self._log = log
        self._reload = reload
        self._asked = asyncio.Event()
        self._wishes = 0
        self._then: Callable[[], None] = lambda: None
        self._give_up: Callable[[], None] = lambda: None

    @property
    def asked(self) -> bool:
        """Whether the process is to end."""
        return self._asked.is_set()

    def on_stop(self, then: Callable[[], None]) -> None:
        """Have this called when the process is to end; at once if that is so already."""
        self._then = then
        if self.asked:
            then()

    def limit(self, seconds: float, give_up: Callable[[], None]) -> None:
        """Have this called in a thread if the process still runs so many seconds after the first wish."""

        def start() -> None:
            timer = threading.Timer(seconds, give_up)  # the loop may be waiting as well
            timer.daemon = True
            timer.start()

        self._give_up = start

    def stop(self, name: str) -> None:
        """End, by this signal, or by the wish of somebody."""
        self._wishes += 1
        if self._wishes > 1:
            # What was confirmed is on disk, and what was not has not been confirmed: ending here is safe.
            self._log.warning("ended at once", signal=name)
            sys.stderr.flush()
            os._exit(ENDED_AT_ONCE)
        self._log.info("stopping", signal=name)
        self._asked.set()
        self._give_up()
        self._then()

    def listen_to_signals(self) -> None:
        """Let SIGTERM and SIGINT be such wishes, and SIGHUP read certificates again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    async def wait(self, seconds: float) -> bool:
        """Wait so long, or until the process is to end. Returns whether it is."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._asked.wait(), seconds)
        return self.asked


async def when_room(begin: Callable[[], Awaitable[T]], stopping: Stopping, log: Logger) -> T | None:
    """Do something that a start needs; on a full disk, once there is room. None: the process is to end before."""
    while True:
        try:
            return await begin()
        except (LogFull, OSError) as error:
            if isinstance(error, OSError) and not is_full(error):
                raise
            log.error("the broker can not start yet: it waits for room on the disk", reason=str(error))
        stopping.listen_to_signals()
        notify(STILL_STARTING)
        if await stopping.wait(WAIT_FOR_ROOM):
            return None
