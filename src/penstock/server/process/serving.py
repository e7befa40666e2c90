"""A time of serving: from an engine on a journal that is ours to the end of the last session.

A process on a journal of its own has one. On a journal that others may take over it may have several, and stands by in
between.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

from penstock import compiled
from penstock.journal.errors import DecisionNeeded, Fenced, LogAway, LogError, LogFailed, LogFull
from penstock.server.admin.broker_requests import AdminRequests
from penstock.server.admin.figures import BrokerMeasures
from penstock.server.admin.http_companion import first_token
from penstock.server.admin.tokens import KeptTokens, TokenFile, TokenStore
from penstock.server.companions.request_table import RequestTable
from penstock.server.companions.shared_requests import SharedRequests
from penstock.server.engine.commits import SMALL, SMALL_UNSYNCED, CommitDriver, GroupCommit, InlineCommit
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
from penstock.server.process.companions import Companions
from penstock.server.process.configured_queues import configure_queues
from penstock.server.process.drain import Drain
from penstock.server.process.local_folder import LocalFolder
from penstock.server.process.opening import Opened
from penstock.server.process.readiness import STILL_STARTING, Listening, ReadyFile, notify
from penstock.server.process.stopping import Stopping, when_room
from penstock.server.registry.readers import ReaderTable

#: Seconds between two words to systemd while a start waits for its first commit.
STILL_SECONDS = 0.1
#: Peers up to which the loop writes commits itself that are not synced, though they are larger.
FEW_PEERS = 2
#: A last checkpoint may keep another broker from taking over, so it is only written where it is a small one: of so many
#: messages, and events since the one before. Who stands by has the state anyway.
SMALL_CHECKPOINT = 200_000


@dataclass
class ProcessParts:
    """What a process has, whether it serves or stands by."""

    options: BrokerOptions
    log: Logger
    stopping: Stopping
    ready: ReadyFile
    companions: Companions
    measures: BrokerMeasures
    #: The process's own folder, where that is not the journal's.
    folder: LocalFolder | None = None


class Serving:
    """One of them."""

    def __init__(self, parts: ProcessParts, opened: Opened) -> None:
        """Raises LogAway, and TokensUnreadable."""
        self._parts = parts
        self._options, self._log, self._stopping = parts.options, parts.log, parts.stopping
        self._upkeep, self._journal = opened.upkeep, opened.upkeep.journal
        self.failure: Exception | None = None
        self._over = asyncio.Event()
        self._listeners: list[OpenListener] = []
        # What is read from the journal comes first: no thread has to be ended where that is not possible now.
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
        """Others that take over must know the tokens, so they are in the journal; else in a file of their own."""
        if self._options.ephemeral:
            return None
        return TokenFile(Path(self._options.data)) if self._journal.lease is None else self._journal.values

    def _make_runtime(self, engine: Engine) -> Runtime:
        runtime = Runtime(self._options, engine, self._commits(engine), self._log, self._readers)
        runtime.state_memory.stored = lambda: self._journal.memory_bytes
        if self._journal.lease is not None:
            runtime.lease_hold.begin(self._journal.lease)
        runtime.fail = self.fail
        if runtime.peers.most < self._options.limits.connections:
            self._log.warning("fewer connections: there are not enough file descriptors", most=runtime.peers.most)
        return runtime

    def _commits(self, engine: Engine) -> CommitDriver:
        loop, measure = asyncio.get_running_loop(), self._parts.measures.committed

        def notify_runtime() -> None:
            loop.call_soon_threadsafe(self._runtime.committed)

        if self._options.ephemeral:
            return InlineCommit(engine, measure)
        journal = self._options.journal
        every = journal.interval_ms / 1000 if journal.durability == "interval" else None

        def fail(error: Exception) -> None:
            loop.call_soon_threadsafe(self.fail, error)

        def filled(error: LogFull | None) -> None:
            loop.call_soon_threadsafe(self._runtime.health.note_full, error)

        commits = GroupCommit(
            engine,
            notify_runtime,
            fail,
            on_full=filled,
            sync_every=every,
            measure=measure,
            at_once=self._most_at_once,
        )
        commits.start()
        return commits

    def _most_at_once(self) -> int:
        """Bytes of a commit that the loop may write itself: nobody must wait for long, or for a database.

        Without a sync it is a copy to the system's memory. With more peers the thread is worth it all the same: the
        loop reads from the others meanwhile, and the next commit is a larger one.
        """
        if self._journal.lease is not None:
            return 0
        synced = self._options.journal.durability != "os"
        return SMALL if synced or len(self._runtime.sessions) > FEW_PEERS else SMALL_UNSYNCED

    def fail(self, error: Exception) -> None:
        """The broker can't go on: nothing more is confirmed, or handed out."""
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
        self._maintenance.check_disk()  # before the first peer is let in
        self._maintenance.start()
        if self._lease_keeper is not None:
            self._lease_keeper.start()
        await self._first_commit()
        if not self._over.is_set():
            if self._parts.companions.has_http:
                self._parts.measures.watch_loop(self._runtime.loop)
            if await self._let_in():
                self._scrub.start()

    async def _has_token(self) -> bool:
        """Make the first one where there is none. False: the database does not take it now, so we give way."""
        try:
            await first_token(self._options, self._tokens, self._runtime.now(), self._log)
        except (OSError, LogError) as error:
            if self._journal.lease is None:
                raise
            self.fail(LogFailed(f"the first admin token can not be kept: {error}"))
            return False
        return True

    async def _first_commit(self) -> None:
        """Until the start is written down, so that who is told of it can rely on a disk that takes something."""
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

    async def _let_in(self) -> bool:
        """Open the listeners, and say so. False: the first token can't be kept, so we give way."""
        companions, answers = self._parts.companions, self._answers()
        values = None if self._options.ephemeral else self._parts.folder or self._journal.values

        async def open_socket() -> None:
            await companions.open_socket(answers, values)

        await when_room(open_socket, self._stopping, self._log)
        self._listeners = await open_listeners(self._runtime)
        await companions.start(self._journal.address, flight=True)
        # It is shown once, so a start that fails must not have used it up.
        if companions.has_http and not await self._has_token():
            return False
        await when_room(self._say_ready, self._stopping, self._log)
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

    async def _say_ready(self) -> None:
        listening = [Listening(listener.protocol, listener.address) for listener in self._listeners]
        listening += self._parts.companions.listening
        self._parts.ready.write("serving", listening)
        for each in listening:
            self._admin.add_listener(each.protocol, each.address)
        self._log.info("ready", **self._admin.listeners, code=compiled.state.value)
        notify("READY=1\nSTATUS=serving")

    def reload_certificates(self) -> None:
        """Read the files of the listeners again."""
        for listener in self._listeners:
            try:
                if listener.reload_certificate():
                    self._log.info("certificate read again", protocol=listener.protocol, address=listener.address)
            except ListenError as error:
                self._log.error("certificate not changed", protocol=listener.protocol, reason=str(error))

    # Ending

    @property
    def gives_way(self) -> bool:
        """Whether this process stands by next: another broker has taken over, or could, for the database was away.

        A database that has lost commits is a matter for an operator.
        """
        temporary = isinstance(self.failure, Fenced | LogFailed) and not isinstance(self.failure, DecisionNeeded)
        return temporary and self._journal.lease is not None

    async def _end(self) -> None:
        companions = self._parts.companions
        if not self.gives_way:
            notify("STOPPING=1")
            self._parts.ready.remove()
        drain = Drain(self._runtime, self._listeners, companions, lambda: self.failure is not None)
        await drain.run(self._options.drain_seconds)
        if self._journal.lease is None:
            await companions.close()
        self._parts.measures.stop()
        for each in (self._maintenance, self._scrub, self._lease_keeper):
            if each is not None:
                await each.stop()
        if self._journal.lease is None:
            await self._end_threads()
        if not (self.gives_way or self._runtime.lease_hold.suspended):
            await self._readers.save()
        await self._finish()
        if self._journal.lease is not None:  # another broker takes over meanwhile
            await (companions.stop_flight() if self.gives_way else companions.close())

    async def _finish(self) -> None:
        """Commit the rest, write the state down, and close the log."""
        runtime, now = self._runtime, self._runtime.now()
        runtime.stop()
        try:
            if self.failure is None and runtime.lease_hold.suspended:
                self.failure = LogAway("the database did not answer when the broker was stopped")
            elif self.failure is None:
                runtime.commits.close(now)
                self._write_down(now)
            elif self.gives_way:
                runtime.pacing.give_up(self.failure)
                await asyncio.to_thread(self._end_commits, now)
        except (LogError, OSError) as error:
            self.failure = self.failure or error
        finally:
            await self._end_threads()  # another broker need not wait for them: the lease was given back
            with contextlib.suppress(LogError):
                await asyncio.to_thread(self._journal.close)

    async def _end_threads(self) -> None:
        """Wait for those who read the log."""
        self._runtime.backlog.close()
        await asyncio.to_thread(self._runtime.backlog.join)
        await self._maintenance.finish()
        await self._scrub.finish()

    def _end_commits(self, now: int) -> None:
        """End the thread that writes the log, which takes nothing of it any more."""
        with contextlib.suppress(LogError):
            self._runtime.commits.close(now)

    def _write_down(self, now: int) -> None:
        """The last checkpoint; then others may own the journal."""
        if self._options.ephemeral:
            return
        self._runtime.engine.log.sync()
        if self._journal.lease is None or (not self._maintenance.busy and self._is_small()):
            self._last_checkpoint(now)
        if self._journal.lease is not None:
            self._journal.lease.release()

    def _is_small(self) -> bool:
        newest = self._upkeep.checkpoints.positions()[-1:]
        events = self._upkeep.log.end - (newest[0] if newest else self._upkeep.log.start)
        messages = sum(queue.counters.balance for queue in self._runtime.broker.queues.values())
        return max(events, messages) <= SMALL_CHECKPOINT

    def _last_checkpoint(self, now: int) -> None:
        try:
            self._upkeep.checkpoint(now, clean=True)
        except LogFull as error:  # the next start reads more of the log: no reason to call this end a bad one
            self._log.warning("no room for a last checkpoint", reason=str(error))
