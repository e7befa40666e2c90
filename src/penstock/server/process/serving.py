"""Serving: from an engine on a journal that is ours to the end of the last session.

A process on a journal of its own serves once. On a shared journal it may serve several times, and stand by in between.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from penstock import compiled
from penstock.journal.errors import DecisionNeeded, Fenced, LogError, LogFailed
from penstock.server.admin.broker_requests import AdminRequests
from penstock.server.admin.figures import BrokerMeasures
from penstock.server.admin.http_companion import first_token
from penstock.server.admin.tokens import KeptTokens, TokenFile, TokenStore
from penstock.server.companions.request_table import RequestTable
from penstock.server.companions.shared_requests import SharedRequests
from penstock.server.engine.engine import Engine
from penstock.server.flight.lease_requests import LeaseRequests
from penstock.server.flight.write_requests import WriteRequests
from penstock.server.logs import Logger
from penstock.server.maintenance.lease_keeper import LeaseKeeper
from penstock.server.maintenance.schedule import Maintenance
from penstock.server.maintenance.scrub import Scrub
from penstock.server.network.listeners import ListenError, OpenListener, open_listeners
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.closing import Closing
from penstock.server.process.commit_driver import commit_driver
from penstock.server.process.companions import Companions
from penstock.server.process.configured_queues import configure_queues
from penstock.server.process.drain import Drain
from penstock.server.process.local_folder import LocalFolder
from penstock.server.process.opening import Opened
from penstock.server.process.readiness import STILL_STARTING, Listening, ReadyFile, notify
from penstock.server.process.stopping import Stopping, when_room
from penstock.server.registry.readers import ReaderTable

#: Seconds between two messages to systemd while a start waits for its first commit.
STILL_SECONDS = 0.1


@dataclass
class ProcessParts:
    """The parts of a process that serve and stand by alike."""

    options: BrokerOptions
    log: Logger
    stopping: Stopping
    ready: ReadyFile
    companions: Companions
    measures: BrokerMeasures
    #: The process's own folder, if its journal is shared.
    folder: LocalFolder | None = None


class Serving:
    """Serves clients until a signal, a failure, or the loss of the journal."""

    def __init__(self, parts: ProcessParts, opened: Opened) -> None:
        """Raises LogAway, and TokensUnreadable."""
        self._parts = parts
        self._options, self._log, self._stopping = parts.options, parts.log, parts.stopping
        self._upkeep, self._journal = opened.upkeep, opened.upkeep.journal
        self.failure: Exception | None = None
        self._over = asyncio.Event()
        self._listeners: list[OpenListener] = []
        # Read from the journal first: if that fails, there is no thread to end yet.
        self._readers = ReaderTable(
            self._log, opened.engine.broker, self._journal.values, self._options.limits.readers_per_identity
        )
        self._tokens = TokenStore(self._kept_tokens())
        self._runtime = self._make_runtime(opened.engine)
        self._runtime.peers.token_rules = self._tokens.rules
        self._admin = AdminRequests(self._runtime, self._tokens, parts.measures, self._stopping.stop)
        self._maintenance = Maintenance(self._runtime, self._upkeep)
        self._scrub = Scrub(self._runtime, self._upkeep.log)
        lease = self._journal.lease
        self._lease_keeper = LeaseKeeper(self._runtime, lease) if lease is not None else None

    def _kept_tokens(self) -> KeptTokens | None:
        """Tokens are in a shared journal, since the next owner needs them; otherwise in a file."""
        if self._options.ephemeral:
            return None
        return TokenFile(Path(self._options.data)) if self._journal.lease is None else self._journal.values

    def _make_runtime(self, engine: Engine) -> Runtime:
        commits = commit_driver(
            self._options, engine, self._journal, self._parts.measures, lambda: self._runtime, self.fail
        )
        runtime = Runtime(self._options, engine, commits, self._log, self._readers)
        runtime.state_memory.stored = lambda: self._journal.memory_bytes
        if self._journal.lease is not None:
            runtime.lease_hold.begin(self._journal.lease)
        runtime.fail = self.fail
        if runtime.peers.most < self._options.limits.connections:
            self._log.warning("fewer connections: there are not enough file descriptors", most=runtime.peers.most)
        return runtime

    def fail(self, error: Exception) -> None:
        """End serving: nothing more is confirmed or delivered."""
        if self.failure is None:
            self.failure = error
            self._runtime.lease_hold.lose()
            self._over.set()

    async def run(self) -> Exception | None:
        """Serve until a signal, or a failure, which is returned."""
        self._stopping.on_stop(self._over.set)
        try:
            await self._start()
            await self._over.wait()
        finally:
            await self._end()
        return self.failure

    # Starting

    async def _start(self) -> None:
        configure_queues(self._options, self._runtime)
        self._maintenance.check_disk()  # before the first client connects
        self._maintenance.start()
        if self._lease_keeper is not None:
            self._lease_keeper.start()
        await self._first_commit()
        if not self._over.is_set():
            if self._parts.companions.has_http:
                self._parts.measures.watch_loop(self._runtime.loop)
            if await self._accept_clients():
                self._scrub.start()

    async def _ensure_token(self) -> bool:
        """Create the first admin token if there is none. False: the database does not store it, so we give way."""
        try:
            await first_token(self._options, self._tokens, self._runtime.now(), self._log)
        except (OSError, LogError) as error:
            if self._journal.lease is None:
                raise
            self.fail(LogFailed(f"the first admin token cannot be kept: {error}"))
            return False
        return True

    async def _first_commit(self) -> None:
        """Wait until the start is committed: a ready broker has a disk that accepts writes."""
        durable = asyncio.ensure_future(self._runtime.durable())
        over = asyncio.ensure_future(self._over.wait())
        try:
            while not (durable.done() or over.done()):
                await asyncio.wait({durable, over}, timeout=STILL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if self._runtime.commits.full is not None:
                    notify(STILL_STARTING)
        finally:
            durable.cancel()
            over.cancel()

    async def _accept_clients(self) -> bool:
        """Open the listeners, and report readiness. False: the first token can't be stored, so we give way."""
        companions, answers = self._parts.companions, self._answers()
        notes = None if self._options.ephemeral else self._parts.folder or self._journal.values

        async def open_socket() -> None:
            await companions.open_socket(answers, notes)

        await when_room(open_socket, self._stopping, self._log)
        self._listeners = await open_listeners(self._runtime)
        await companions.start(self._journal.address, flight=True)
        # The first token is shown once, so it comes after everything that may fail.
        if companions.has_http and not await self._ensure_token():
            return False
        await when_room(self._report_ready, self._stopping, self._log)
        return True

    def _answers(self) -> RequestTable:
        runtime = self._runtime
        handlers = {
            **SharedRequests(runtime).handlers,
            **LeaseRequests(runtime).handlers,
            **WriteRequests(runtime).handlers,
            **self._admin.handlers,
        }
        return RequestTable(runtime, handlers)

    async def _report_ready(self) -> None:
        listening = [Listening(listener.protocol, listener.address) for listener in self._listeners]
        listening += self._parts.companions.listening
        self._parts.ready.write("serving", listening)
        for each in listening:
            self._admin.add_listener(each.protocol, each.address)
        self._log.info("ready", **self._admin.listeners, code=compiled.state.value)
        notify("READY=1\nSTATUS=serving")

    def reload_certificates(self) -> None:
        """Reload the certificates of the listeners."""
        for listener in self._listeners:
            try:
                if listener.reload_certificate():
                    self._log.info("certificate read again", protocol=listener.protocol, address=listener.address)
            except ListenError as error:
                self._log.error("certificate not changed", protocol=listener.protocol, reason=str(error))

    # Ending

    @property
    def gives_way(self) -> bool:
        """Whether the process stands by next: another broker has taken over, or can, since the database was away.

        After a database has lost commits, an operator must decide.
        """
        temporary = isinstance(self.failure, Fenced | LogFailed) and not isinstance(self.failure, DecisionNeeded)
        return temporary and self._journal.lease is not None

    async def _end(self) -> None:
        companions = self._parts.companions
        if not self.gives_way:
            notify("STOPPING=1")
            self._parts.ready.remove()
        closing = Closing(self._runtime, self._upkeep, self._maintenance, self._scrub)
        drain = Drain(self._runtime, self._listeners, companions, lambda: self.failure is not None)
        await drain.run(self._options.drain_seconds)
        if self._journal.lease is None:
            await companions.close()
        self._parts.measures.stop()
        for each in (self._maintenance, self._scrub, self._lease_keeper):
            if each is not None:
                await each.stop()
        if self._journal.lease is None:
            await closing.join_readers()
        if not (self.gives_way or self._runtime.lease_hold.suspended):
            await self._readers.save()
        self.failure = await closing.run(self.failure, gives_way=self.gives_way)
        if self._journal.lease is not None:  # late, so that the next owner does not wait for them
            await (companions.stop_flight() if self.gives_way else companions.close())
