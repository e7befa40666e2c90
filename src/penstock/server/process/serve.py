"""``penstock serve``: the life of the process, from the first line of its log to the last."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from penstock.admin.settings import AdminSettings
from penstock.core.policy import SECOND, Policy
from penstock.endpoint.settings import EndpointSettings
from penstock.journal import Journal, open_journal
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.errors import JournalRefused, LogError, LogFull, is_full
from penstock.protocols import protocols
from penstock.server.admin.figures import BrokerMeasures
from penstock.server.admin.process import first_token, http_process, wanted_http
from penstock.server.admin.requests import AdminRequests
from penstock.server.admin.tokens import TokenStore, TokensUnreadable
from penstock.server.engine.commits import CommitDriver, GroupCommit, InlineCommit
from penstock.server.engine.engine import Engine
from penstock.server.engine.start import Opened, open_engine
from penstock.server.flight.process import flight_process, wanted_settings
from penstock.server.flight.readers import ReaderTable
from penstock.server.flight.socket import PrivateSocket
from penstock.server.maintenance.schedule import Maintenance
from penstock.server.maintenance.scrub import Scrub
from penstock.server.maintenance.upkeep import Retention, Upkeep
from penstock.server.network.listeners import ListenError, OpenListener, open_listeners
from penstock.server.process.allocator import give_memory_back
from penstock.server.process.endpoints import EndpointProcess
from penstock.server.process.environment import Sorted
from penstock.server.process.logs import LibraryLog, Logger
from penstock.server.process.options import BrokerOptions, QueueOptions
from penstock.server.runtime import Runtime

#: Exit codes: see ``penstock serve --help``.
OK, FAILED, WRONG_USE, REFUSED = 0, 1, 2, 3
#: Seconds that a stop goes on reading at most, while peers go on sending.
LAST_READS = 0.3
#: Seconds between two tries to start on a full disk; and those that a stop waits for room, at most.
WAIT_FOR_ROOM = 1.0
#: Seconds between two words to systemd while a start waits for its first commit.
STILL_SECONDS = 0.1
#: History that an ephemeral broker keeps for readers, and the part of ``limits.state_bytes`` that it is at most; how
#: many extents that are, the fewest bytes of one, and by how much one grows.
EPHEMERAL_HISTORY = 64 * 2**20
EPHEMERAL_PART = 8
EPHEMERAL_EXTENTS = 8
EPHEMERAL_EXTENT = 64 * 1024
EPHEMERAL_STEP = 64 * 1024
#: For systemd, which would end a start that takes long.
STILL_STARTING = "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=waiting for room on the disk"

T = TypeVar("T")


def serve(options: BrokerOptions, variables: Sorted | None = None) -> int:
    """Run a broker until a signal ends it. Returns the exit code. ``variables`` are those of its environment."""
    give_memory_back()
    log = Logger(level=options.log.level, as_json={"auto": None, "text": False, "json": True}[options.log.format])
    logging.basicConfig(handlers=[LibraryLog(log)])
    for unknown in variables.unknown if variables else ():
        log.warning("an environment variable names no option, and is passed over", **unknown.facts())
    if variables and variables.services:
        log.debug("environment variables of a service are passed over", variables=" ".join(variables.services))
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_Life(options, log).run())
    except JournalRefused as error:
        log.error("the journal can not be opened", reason=str(error))
        return REFUSED
    except TokensUnreadable as error:
        log.error("the tokens can not be read", reason=str(error))
        return REFUSED
    except ListenError as error:
        log.error("can not listen", reason=str(error))
        return REFUSED
    except (LogError, OSError) as error:
        log.error("the broker has ended", reason=str(error))
        return FAILED


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Life:
    """From start to end."""

    def __init__(self, options: BrokerOptions, log: Logger) -> None:
        self.options = options
        self.log = log
        self.stopping = asyncio.Event()
        self.failure: Exception | None = None
        self.runtime: Runtime | None = None
        self.private_socket: PrivateSocket | None = None
        self.listeners: list[OpenListener] = []
        #: Processes beside the broker, by what the ready file calls them.
        self.endpoints: dict[str, EndpointProcess] = {}
        self.admin: AdminRequests | None = None
        self.measures = BrokerMeasures()
        self._signals = 0

    async def run(self) -> int:
        """Start, serve, drain. Returns the exit code."""
        flight, http = wanted_settings(self.options, self.log), wanted_http(self.options, self.log)
        found = await self._when_room(self._open)
        if found is None:
            self.log.info("stopped")
            return OK
        upkeep, journal = found.upkeep, found.upkeep.journal
        self._listen_to_signals()
        readers = ReaderTable(self.log, journal.values, self.options.limits.readers_per_identity)
        runtime = self.runtime = Runtime(self.options, found.engine, self._commits(found.engine), self.log, readers)
        runtime.state_memory.stored = lambda: journal.memory_bytes
        tokens = TokenStore(None if self.options.ephemeral else Path(self.options.data))
        runtime.token_rules = tokens.rules
        self.admin = AdminRequests(runtime, tokens, self.measures, self._stop)
        values = None if self.options.ephemeral else journal.values
        self.private_socket = PrivateSocket(runtime, values, self.admin)
        runtime.fail = self._fail
        if runtime.most_connections < self.options.limits.connections:
            self.log.warning("fewer connections: there are not enough file descriptors", most=runtime.most_connections)
        maintenance, scrub = Maintenance(runtime, upkeep), Scrub(runtime, upkeep.log)
        asyncio.get_running_loop().set_exception_handler(self._report)
        try:
            self._prepare_queues(runtime)
            maintenance.watch_disk()  # before the first peer is let in
            maintenance.start()
            await self._first_commit(runtime)
            if not self.stopping.is_set():
                if http is not None:
                    first_token(self.options, tokens, runtime.now(), self.log)
                    self.measures.watch_loop(runtime.loop)
                where = journal.address
                await self._let_in(
                    runtime, flight and replace(flight, journal=where), http and replace(http, journal=where)
                )
                scrub.start()
            await self.stopping.wait()
        finally:
            _notify("STOPPING=1")
            with contextlib.suppress(FileNotFoundError):
                if self.options.ready_file:
                    os.unlink(self.options.ready_file)
            await self._drain(runtime)
            for endpoint in self.endpoints.values():
                await endpoint.stop()
            self.measures.stop()
            await maintenance.stop()
            await scrub.stop()
            await readers.save()
            self._finish(runtime, upkeep)
        self.log.tell_suppressed(everything=True)
        if self.failure is not None:
            self.log.error("the broker has ended: nothing was confirmed after this", reason=str(self.failure))
            return FAILED
        self.log.info("stopped")
        return OK

    # Starting

    async def _when_room(self, begin: Callable[[], Awaitable[T]]) -> T | None:
        """Do something that a start needs; on a full disk, once there is room. None: a signal came first."""
        while True:
            try:
                return await begin()
            except (LogFull, OSError) as error:
                if isinstance(error, OSError) and not is_full(error):
                    raise
                self.log.error("the broker can not start yet: it waits for room on the disk", reason=str(error))
            self._listen_to_signals()
            _notify(STILL_STARTING)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), WAIT_FOR_ROOM)
                return None

    async def _first_commit(self, runtime: Runtime) -> None:
        """Until the start is written down, so that who is told of it can rely on a disk that takes something."""
        durable = asyncio.ensure_future(runtime.durable())
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            while not (durable.done() or stopping.done()):
                await asyncio.wait({durable, stopping}, timeout=STILL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if runtime.commits.full is not None:
                    _notify(STILL_STARTING)
        finally:
            durable.cancel()
            stopping.cancel()

    async def _let_in(self, runtime: Runtime, flight: EndpointSettings | None, http: AdminSettings | None) -> None:
        """Open the listeners, and say so."""
        assert self.private_socket is not None
        await self._when_room(self.private_socket.open)
        self.listeners = await open_listeners(runtime)
        if flight is not None:
            self.endpoints["flight"] = flight_process(replace(flight, broker_socket=self.private_socket.path), self.log)
        if http is not None:
            self.endpoints["http"] = http_process(replace(http, broker_socket=self.private_socket.path), self.log)
        await asyncio.gather(*(endpoint.start() for endpoint in self.endpoints.values()))
        await self._when_room(self._say_ready)

    async def _open(self) -> Opened:
        began = time.monotonic()
        if self.options.ephemeral:
            self.log.warning("ephemeral: nothing is kept after the end")
        journal, retention = _journal(self.options)
        opened = open_engine(
            journal.own(), time.time_ns() // 1000, retention, min_free=self.options.journal.min_free_bytes
        )
        for line in opened.report:
            self.log.warning("the journal was put right", what=line)
        if not self.options.ephemeral:
            messages = sum(queue.counters.balance for queue in opened.engine.broker.queues.values())
            took = round(time.monotonic() - began, 3)
            self.log.info("journal opened", data=self.options.data, messages=messages, seconds=took)
        return opened

    def _commits(self, engine: Engine) -> CommitDriver:
        loop = asyncio.get_running_loop()

        def notify() -> None:
            assert self.runtime is not None
            loop.call_soon_threadsafe(self.runtime.committed)

        if self.options.ephemeral:
            return InlineCommit(engine, notify, self.measures.committed)
        journal = self.options.journal
        every = journal.interval_ms / 1000 if journal.durability == "interval" else None

        def fail(error: Exception) -> None:
            loop.call_soon_threadsafe(self._fail, error)

        def filled(error: LogFull | None) -> None:
            assert self.runtime is not None
            loop.call_soon_threadsafe(self.runtime.filled, error)

        commits = GroupCommit(engine, notify, fail, on_full=filled, sync_every=every, measure=self.measures.committed)
        commits.start()
        return commits

    def _prepare_queues(self, runtime: Runtime) -> None:
        """The default namespace, the queues of the options, and those of the listeners, exist from the start."""
        broker, now = runtime.broker, runtime.now()
        broker.create_namespace("default", now)
        listeners = [listener for name in protocols() for listener in self.options.listeners(name)]
        for namespace in {name: None for listener in listeners for name in listener.namespaces()}:
            broker.create_namespace(namespace, now)
        of_listeners = [queue for listener in listeners for queue in listener.queues().items()]
        wanted: dict[str, Policy | None] = {name: None for name, _ in of_listeners}
        wanted |= {name: _policy(options) for name, options in self.options.queues.items()}
        without_dead = {name for name, dead_letters in of_listeners if not dead_letters}
        for full_name, rules in wanted.items():
            namespace, _, name = full_name.partition("/")
            queue = broker.queue(namespace, name)
            policy = rules or (queue.policy if queue else Policy())
            if full_name in without_dead:
                policy = replace(policy, dead_letters=False)
            if queue is None:
                broker.create_namespace(namespace, now)
                broker.create_queue(namespace, name, now, policy)
            elif queue.policy != policy:
                broker.configure_queue(queue, policy, now)
        runtime.touched()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    async def _say_ready(self) -> None:
        listeners = [{"protocol": listener.protocol, "address": listener.address} for listener in self.listeners]
        for name, endpoint in self.endpoints.items():
            listeners.append({"protocol": name, "address": endpoint.address})
        if self.options.ready_file:
            path = Path(self.options.ready_file)
            temporary = path.with_name(f"{path.name}.{os.getpid()}")
            temporary.write_text(json.dumps({"pid": os.getpid(), "listeners": listeners}) + "\n")
            temporary.rename(path)
        told: dict[str, list[str]] = {}
        for listener in listeners:
            told.setdefault(listener["protocol"], []).append(listener["address"])
        if self.admin is not None:
            self.admin.listeners = told
        self.log.info("ready", **{protocol: " ".join(addresses) for protocol, addresses in told.items()})
        _notify("READY=1")

    # Running

    def _stop(self, name: str) -> None:
        self._signals += 1
        if self._signals > 1:
            # What was confirmed is on disk, and what was not has not been confirmed: ending here is safe.
            self.log.warning("ended at once", signal=name)
            sys.stderr.flush()
            os._exit(FAILED)
        self.log.info("stopping", signal=name)
        self.stopping.set()

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self.stopping.set()

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something went wrong in a corner that nobody looks after: say so, and go on."""
        self.log.error("unexpected error", reason=context["message"], error=repr(context.get("exception")))

    def _reload(self) -> None:
        for listener in self.listeners:
            try:
                if listener.reload_certificate():
                    self.log.info("certificate read again", protocol=listener.protocol, address=listener.address)
            except ListenError as error:
                self.log.error("certificate not changed", protocol=listener.protocol, reason=str(error))
        for name, endpoint in self.endpoints.items():
            if endpoint.reload_certificate():
                self.log.info("certificate read again", protocol=name, address=endpoint.address)

    # Ending

    async def _drain(self, runtime: Runtime) -> None:
        """Accept no more, tell those who wait, put back what is out, and send what can be sent."""
        patience = self.options.drain_seconds if runtime.commits.full is None else WAIT_FOR_ROOM
        deadline = time.monotonic() + patience
        await self._read_what_came(runtime)
        for listener in self.listeners:
            await listener.close()
        if self.failure is not None:
            for session in list(runtime.sessions.values()):
                session.transport.abort()
            await self._close_private_socket(0)
            return
        runtime.broker.drain(runtime.now())
        runtime.turn()
        await self._wait(lambda: runtime.broker.log.staged or runtime.awaiting, deadline)
        await self._close_private_socket(max(0.0, deadline - time.monotonic()))
        for session in list(runtime.sessions.values()):
            session.end()
        await self._wait(lambda: runtime.sessions, deadline)
        for session in list(runtime.sessions.values()):
            session.transport.abort()
        await asyncio.sleep(0)

    async def _close_private_socket(self, seconds: float) -> None:
        if self.private_socket is not None:
            await self.private_socket.close(seconds)

    async def _read_what_came(self, runtime: Runtime) -> None:
        """Peers that send and hang up have no other way to know: what arrived before the signal is still taken."""
        ends = time.monotonic() + LAST_READS
        while self.failure is None and time.monotonic() < ends:
            before = runtime.loop.time()
            await asyncio.sleep(0.02)
            if runtime.received_at < before and not runtime.congested:
                return

    async def _wait(self, busy: Callable[[], object], deadline: float) -> None:
        while busy() and self.failure is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def _finish(self, runtime: Runtime, upkeep: Upkeep) -> None:
        """Commit the rest, write the state down, and close the log."""
        runtime.stop()
        now = runtime.now()
        try:
            if self.failure is None:
                runtime.commits.close(now)
                if not self.options.ephemeral:
                    runtime.engine.log.sync()
                    self._last_checkpoint(upkeep, now)
        except (LogError, OSError) as error:
            self.failure = self.failure or error
        finally:
            with contextlib.suppress(LogError):
                upkeep.journal.close()

    def _last_checkpoint(self, upkeep: Upkeep, now: int) -> None:
        try:
            upkeep.checkpoint(now, clean=True)
        except LogFull as error:  # the next start reads more of the log: no reason to call this end a bad one
            self.log.warning("no room for a last checkpoint", reason=str(error))


def _journal(options: BrokerOptions) -> tuple[Journal, Retention]:
    """The journal that is asked for, and how much history it keeps. In memory that is little: it counts as state."""
    asked = options.journal
    ages = asked.retention_seconds * SECOND, asked.pin_seconds * SECOND
    if not options.ephemeral:
        durability, age = Durability[asked.durability.upper()], asked.segment_seconds * SECOND
        retention = Retention(ages[0], asked.retention_bytes, ages[1], asked.pin_bytes)
        return open_journal(f"file:{options.data}", OwnerOptions(durability, asked.segment_bytes, age)), retention
    history = min(EPHEMERAL_HISTORY, max(options.limits.state_bytes // EPHEMERAL_PART, 1))
    extent = min(asked.segment_bytes, max(history // EPHEMERAL_EXTENTS, EPHEMERAL_EXTENT))
    retention = Retention(
        ages[0], min(asked.retention_bytes or history, history), ages[1], min(asked.pin_bytes or history, history)
    )
    return open_journal("memory:", OwnerOptions(extent_bytes=extent, reserve=EPHEMERAL_STEP)), retention


def _policy(options: QueueOptions) -> Policy:
    return Policy(
        default_ttl=int(options.default_ttl_seconds * SECOND),
        on_expiry=options.on_expiry,
        max_deliveries=options.max_deliveries,
        dead_letters=options.dead_letters,
        max_depth=options.max_depth,
        max_bytes=options.max_bytes,
        on_full=options.on_full,
        lock_duration=int(options.lock_seconds * SECOND),
        deduplication=int(options.deduplication_seconds * SECOND),
        paused=options.paused,
    )


def _notify(state: str) -> None:
    """Tell systemd, if it started us and wants to know."""
    where = os.environ.get("NOTIFY_SOCKET")
    if where:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + where[1:] if where.startswith("@") else where)
            channel.send(state.encode())
