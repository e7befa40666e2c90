"""A process beside the broker: started with it, started again when it dies, gone with it.

The broker owes it nothing: whatever happens to it is a line in the log. It ends when its standard input does, so that
even a broker that is killed leaves none behind.
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

from penstock.endpoint.lines import BEAT_SECONDS, HUNG_SECONDS, Failed, Line, Ready, Said
from penstock.endpoint.settings import EndpointSettings
from penstock.server.logs import Logger
from penstock.server.network.listeners import ListenError

#: Seconds within which it must be ready: it reads no history to begin with.
START_SECONDS = 60.0
#: Seconds that it may take to end.
STOP_SECONDS = 5.0
#: Seconds before it is started again: the first time, and at most. Each time in a row it is twice as long.
FIRST_WAIT = 0.1
LONGEST_WAIT = 30.0
#: After so many seconds without trouble it begins with the shortest wait again.
GOOD_SECONDS = 60.0
#: The longest line that is taken from it.
LINE_BYTES = 1024 * 1024

_LINES = msgspec.json.Decoder(Line)


class CompanionProcess:
    """Keeps one running. ``module`` is what Python runs, ``name`` what the log calls it."""

    def __init__(
        self,
        module: str,
        name: str,
        settings: EndpointSettings,
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
        #: Where it listens: "grpc://127.0.0.1:8815".
        self.address = ""

    async def start(self) -> None:
        """Start it, and wait until it accepts calls, or can't for now. Raises ListenError."""
        self._process = await self._spawn()
        said = await self._first_word(self._process)
        if isinstance(said, Ready):
            self._take(said)
        elif said.passes:
            self._log.error(f"{self._name} does not start", reason=said.reason)
        else:
            raise ListenError(said.reason)
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Let it end, and see to it."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self._process is not None:
            await _end(self._process)
        path = self._settings.address.removeprefix("unix:")
        if self.address and path != self._settings.address:  # else it is not ours
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def reload_certificate(self) -> bool:
        """Start it anew with the certificate files as they are now. False: it has none."""
        if not self._settings.tls_certificate or self._process is None:
            return False
        self._reloading = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        return True

    async def _spawn(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", self._module,  # nothing is imported from wherever the broker was started
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES,
            env={**os.environ, **self._environment},
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
        return process

    async def _first_word(self, process: asyncio.subprocess.Process) -> Ready | Failed:
        try:
            async with asyncio.timeout(START_SECONDS):
                while (said := await self._next(process)) is not None:
                    if isinstance(said, Ready | Failed):
                        return said
        except TimeoutError:
            process.kill()
        await process.wait()
        return Failed(reason=f"{self._name} did not start (exit code {process.returncode})")

    def _take(self, said: Ready) -> None:
        """It listens. Should it have to start again, then where it was."""
        self.address = said.address
        if not self._settings.address.startswith("unix:"):
            where = said.address.partition("://")[2]
            self._settings = msgspec.structs.replace(self._settings, address=where)

    async def _watch(self) -> None:
        """Pass on what it says, and start it again when it ends."""
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
            except OSError as error:  # no memory, or too many processes, at this moment
                self._log.error(f"{self._name} does not start", reason=str(error))
                continue
            said = await self._first_word(self._process)
            if isinstance(said, Ready):
                self._take(said)
                self._log.info(f"{self._name} is ready", address=self.address)
            else:
                self._log.error(f"{self._name} does not start", reason=said.reason)

    async def _until_it_ends(self, process: asyncio.subprocess.Process) -> int:
        """Pass on what it says. One that hangs is killed.

        Its silence is counted in beats that were missed while the broker had its own turns: a broker that was stopped
        for a while must not blame others.
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

    async def _next(self, process: asyncio.subprocess.Process) -> Line | None:
        """What it says next, logged if it is for the log; None at its end."""
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            said: Line | None = _LINES.decode(line) if line else None
        except (ValueError, msgspec.DecodeError):
            return Said(level="debug", event="")  # a library has printed something
        if isinstance(said, Said):
            level = said.level if said.level in ("debug", "info", "warning", "error") else "error"
            getattr(self._log, level)(said.event, **said.facts)
        return said


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
