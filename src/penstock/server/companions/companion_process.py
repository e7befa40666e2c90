"""Running a companion process: started with the broker, restarted when it dies, ended with the broker.

Whatever happens to the process is only a line in the broker's log. The process ends when its standard input does, so
that even a killed broker leaves none behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.companions.process_reports import BEAT_SECONDS, HUNG_SECONDS, Failed, LogEvent, ProcessReport, Ready
from penstock.companions.settings import CompanionSettings
from penstock.server.logs import Logger
from penstock.server.network.listeners import ListenError

#: Seconds within which it must be ready. It reads no history at its start.
START_SECONDS = 60.0
#: Seconds until a process that does not end is killed.
STOP_SECONDS = 5.0
#: Seconds before a restart: first, and at most. Each failure in a row doubles the wait.
FIRST_WAIT = 0.1
LONGEST_WAIT = 30.0
#: After this many seconds without a failure the next wait is the first one again.
GOOD_SECONDS = 60.0
#: The longest line that it may write.
LINE_BYTES = 1024 * 1024

_REPORTS = msgspec.json.Decoder(ProcessReport)


class CompanionProcess:
    """Keeps a process running. ``module`` is the Python module; ``name`` is for the log."""

    def __init__(
        self,
        module: str,
        name: str,
        settings: CompanionSettings,
        log: Logger,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._name = name
        self._settings: Any = settings
        self._log = log
        self._environment = environment or {}
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._reloading = False
        #: Its address, such as "grpc://127.0.0.1:8815".
        self.address = ""

    async def start(self) -> None:
        """Start it, and wait until it accepts calls or reports a temporary failure. Raises ListenError."""
        self._process = await self._spawn()
        report = await self._first_report(self._process)
        if isinstance(report, Ready):
            self._use_address(report)
        elif report.passes:
            self._log.error(f"{self._name} does not start", reason=report.reason)
        else:
            raise ListenError(report.reason)
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End the process."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self._process is not None:
            await _end(self._process)
        path = self._settings.address.removeprefix("unix:")
        if self.address and path != self._settings.address:  # otherwise the socket file is not ours
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def reload_certificate(self) -> bool:
        """Restart the process with the current certificate files. False: it has none."""
        if not self._settings.tls_certificate or self._process is None:
            return False
        self._reloading = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        return True

    async def _spawn(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", self._module,  # do not import from the current folder
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES,
            env={**os.environ, **self._environment},
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
        return process

    async def _first_report(self, process: asyncio.subprocess.Process) -> Ready | Failed:
        try:
            async with asyncio.timeout(START_SECONDS):
                while (report := await self._next(process)) is not None:
                    if isinstance(report, Ready | Failed):
                        return report
        except TimeoutError:
            process.kill()
        await process.wait()
        return Failed(reason=f"{self._name} did not start (exit code {process.returncode})")

    def _use_address(self, report: Ready) -> None:
        """Note its address, which a restart must use again even if the system has chosen the port."""
        self.address = report.address
        if not self._settings.address.startswith("unix:"):
            where = report.address.partition("://")[2]
            self._settings = msgspec.structs.replace(self._settings, address=where)

    async def _watch(self) -> None:
        """Log its reports, and restart it when it ends."""
        assert self._process is not None
        wait, since = FIRST_WAIT, time.monotonic()
        while True:
            code = await self._until_it_ends(self._process)
            if time.monotonic() - since > GOOD_SECONDS or self._reloading:
                wait = FIRST_WAIT
            if not self._reloading:
                self._log.error(f"{self._name} has ended and is started again", code=code, seconds=wait)
                await asyncio.sleep(wait)
            self._reloading = False
            wait, since = min(2 * wait, LONGEST_WAIT), time.monotonic()
            try:
                self._process = await self._spawn()
            except OSError as error:  # short of memory or processes
                self._log.error(f"{self._name} does not start", reason=str(error))
                continue
            report = await self._first_report(self._process)
            if isinstance(report, Ready):
                self._use_address(report)
                self._log.info(f"{self._name} is ready", address=self.address)
            else:
                self._log.error(f"{self._name} does not start", reason=report.reason)

    async def _until_it_ends(self, process: asyncio.subprocess.Process) -> int:
        """Log its reports, and kill it if it hangs. Returns its exit code.

        Silence is counted in missed beats, not by the clock, so that a broker that was itself stopped does not take a
        healthy process for a hung one.
        """
        missed = 0
        while True:
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    if await self._next(process) is None:
                        return await process.wait()
                missed = 0
            except TimeoutError:
                missed += 1
                if missed * BEAT_SECONDS >= HUNG_SECONDS and process.returncode is None:
                    self._log.error(f"{self._name} hangs and is killed", silent_seconds=missed * BEAT_SECONDS)
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()

    async def _next(self, process: asyncio.subprocess.Process) -> ProcessReport | None:
        """The next report, which is logged if it is for the log; None at the end."""
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            report: ProcessReport | None = _REPORTS.decode(line) if line else None
        except (ValueError, msgspec.DecodeError):
            return LogEvent(level="debug", event="")  # output of a library
        if isinstance(report, LogEvent):
            level = report.level if report.level in ("debug", "info", "warning", "error") else "error"
            getattr(self._log, level)(report.event, **report.facts)
        return report


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
