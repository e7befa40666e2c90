"""The pool of processes that answer SQL for the HTTP process.

Each runs one query at a time, so that killing a query that takes too long affects no other. Idle processes end after a
while.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec

import msgspec

from penstock.sql.requests import FRAME_BYTES, LENGTH, ListTables, Outcome, Ping, Request, SqlSettings

#: Concurrent queries, and queries that may wait for their turn.
AT_A_TIME = 2
MOST_WAITING = 8
#: Seconds after which an idle process is ended, and seconds for a process to start.
IDLE_SECONDS = 120.0
START_SECONDS = 60.0
#: Seconds in which an idle process must answer a ping.
PING_SECONDS = 5.0


class SqlRefused(Exception):
    """The query is not accepted now; the text says why."""


class TookTooLong(Exception):
    """The query was killed, with its process."""


class Died(Exception):
    """The process ended by itself, most likely out of memory."""


class _Worker:
    """One process for SQL."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self.idle: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, settings: SqlSettings) -> _Worker:
        """Start a process."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock.sql", stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
        worker = cls(process)
        worker._send(settings)
        return worker

    def _send(self, value: msgspec.Struct) -> None:
        data = msgspec.msgpack.encode(value)
        self._in.writelines([LENGTH.pack(len(data)), data])

    async def ask(self, request: Request, seconds: float) -> Outcome:
        """Send a request and await the answer. After TookTooLong or Died the process is gone."""
        try:
            async with asyncio.timeout(seconds):
                self._send(request)
                (size,) = LENGTH.unpack(await self._out.readexactly(LENGTH.size))
                if size > FRAME_BYTES:
                    raise Died
                return msgspec.msgpack.decode(await self._out.readexactly(size), type=Outcome)
        except TimeoutError:
            raise TookTooLong from None
        except (OSError, EOFError):
            raise Died from None

    async def end(self) -> None:
        """Kill the process and wait until it is gone."""
        if self.idle is not None:
            self.idle.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class Pool:
    """The processes, at most ``AT_A_TIME``."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings
        self._turn = asyncio.Semaphore(AT_A_TIME)
        self._waiting = 0
        self._free: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def ask(self, request: Request, seconds: float) -> Outcome:
        """The answer of a process. Raises SqlRefused, TookTooLong or Died."""
        missing = [name for name in ("duckdb", "pyarrow") if find_spec(name) is None]
        if missing:
            raise SqlRefused(f"SQL needs {missing[0]}: pip install 'penstock[sql]'")
        if self._waiting >= MOST_WAITING:
            raise SqlRefused(f"{AT_A_TIME} queries run, and {self._waiting} wait already; try again in a moment")
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._ask(request, seconds)
        finally:
            self._turn.release()

    async def close(self) -> None:
        """End all processes."""
        workers = [*self._free, *self._busy]
        self._free.clear()
        await asyncio.gather(*(worker.end() for worker in workers), *self._ending)

    async def _ask(self, request: Request, seconds: float) -> Outcome:
        worker = await self._idle_worker() or await self._start()
        return await self._ask_one(worker, request, seconds)

    async def _idle_worker(self) -> _Worker | None:
        """An idle process that still answers; those that died or hang are ended."""
        while self._free:
            worker = self._free.pop()
            if worker.idle is not None:
                worker.idle.cancel()
            with contextlib.suppress(TookTooLong, Died):
                async with self._track(worker):
                    await worker.ask(Ping(), PING_SECONDS)
                return worker
        return None

    async def _ask_one(self, worker: _Worker, request: Request, seconds: float) -> Outcome:
        async with self._track(worker):
            outcome = await worker.ask(request, seconds)
        worker.idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle, worker)
        self._free.append(worker)
        return outcome

    async def _start(self) -> _Worker:
        """A new process, ready for queries: its start does not count towards a query's time."""
        worker = await _Worker.start(self._settings)
        try:
            async with self._track(worker):
                await worker.ask(ListTables(), START_SECONDS)
        except (TookTooLong, Died):
            raise SqlRefused("the process for SQL does not start; try again") from None
        return worker

    @contextlib.asynccontextmanager
    async def _track(self, worker: _Worker) -> AsyncIterator[None]:
        """Track a process at work, and end it if that fails."""
        self._busy.add(worker)
        try:
            yield
        except BaseException:
            await worker.end()
            raise
        finally:
            self._busy.discard(worker)

    def _end_idle(self, worker: _Worker) -> None:
        if worker in self._free:
            self._free.remove(worker)
            task = asyncio.create_task(worker.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
