"""The life of the process: open the journal, or stand by for it; serve; drain; then stand by again, or end.

a journal of its own      open → serve → end
a shared journal          stand by → serve → end, or lose the journal to another broker → stand by → …
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock.journal import Journal
from penstock.journal.errors import LogAway
from penstock.server.admin.figures import BrokerMeasures
from penstock.server.companions.request_table import StandbyAnswers
from penstock.server.logs import Logger
from penstock.server.network.listeners import load_sessions
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.companions import Companions
from penstock.server.process.journals import chosen_journal, chosen_retention
from penstock.server.process.local_folder import LocalFolder
from penstock.server.process.opening import Opened, open_engine
from penstock.server.process.readiness import ReadyFile, notify
from penstock.server.process.serving import ProcessParts, Serving
from penstock.server.process.standing_by import StandingBy
from penstock.server.process.stopping import Stopping, when_room

#: Seconds after a drain in which a stop may still write to a shared journal and release it. A commit could wait for a
#: synchronous standby without end.
LAST_COMMIT = 1.0


class Life:
    """Runs the process from start to end."""

    def __init__(self, options: BrokerOptions, log: Logger) -> None:
        """Raises ListenError for a companion process that was configured but can't run."""
        self._options = options
        self._log = log
        self._stopping = Stopping(log, self._reload)
        self._parts = ProcessParts(
            options=options,
            log=log,
            stopping=self._stopping,
            ready=ReadyFile(options.ready_file),
            companions=Companions(options, log),
            measures=BrokerMeasures(),
        )
        self._serving: Serving | None = None
        self._standing_by: StandingBy | None = None

    async def run(self) -> Exception | None:
        """Run until a signal, or a failure, which is returned. Raises the reason why a start is not possible."""
        asyncio.get_running_loop().set_exception_handler(self._report)
        journal = chosen_journal(self._options)
        failure = await (self._take_turns(journal) if journal.shared else self._serve_alone(journal))
        self._log.report_suppressed(everything=True)
        return failure

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an exception that no task handles, and go on."""
        self._log.error("unexpected error", reason=context["message"], error=repr(context.get("exception")))

    def _reload(self) -> None:
        if self._serving is not None:
            self._serving.reload_certificates()
        self._parts.companions.reload_certificates()

    async def _serve(self, opened: Opened) -> Serving:
        """Serve until a signal, or a failure."""
        serving = self._serving = Serving(self._parts, opened)
        try:
            await serving.run()
        finally:
            self._serving = None
        return serving

    # On a journal of its own

    async def _serve_alone(self, journal: Journal) -> Exception | None:
        opened = await when_room(lambda: self._open(journal), self._stopping, self._log)
        if opened is None:
            return None
        self._stopping.listen_to_signals()
        return (await self._serve(opened)).failure

    async def _open(self, journal: Journal) -> Opened:
        began = time.monotonic()
        if self._options.ephemeral:
            self._log.warning("ephemeral: nothing is kept after the end")
        min_free = self._options.journal.min_free_bytes
        opened = open_engine(journal.own(), time.time_ns() // 1000, chosen_retention(self._options), min_free=min_free)
        self._report_opened(opened, time.monotonic() - began, data=self._options.data)
        return opened

    def _report_opened(self, opened: Opened, seconds: float, **where: str) -> None:
        for line in opened.report:
            self._log.warning("the journal was put right", what=line)
        for line in opened.upkeep.journal.warnings:
            self._log.warning("the journal's database promises less than it could", what=line)
        if not self._options.ephemeral:
            messages = sum(queue.counters.balance for queue in opened.engine.broker.queues.values())
            self._log.info("journal opened", **where, messages=messages, seconds=round(seconds, 3))

    # On a journal that brokers share

    async def _take_turns(self, journal: Journal) -> Exception | None:
        self._stopping.limit(self._options.drain_seconds + LAST_COMMIT, journal.abandon)
        self._stopping.listen_to_signals()
        folder = self._parts.folder = LocalFolder(self._options.data)
        try:
            return await self._take_turns_with(journal)
        finally:
            self._parts.ready.remove()
            await self._parts.companions.close()
            folder.close()

    async def _take_turns_with(self, journal: Journal) -> Exception | None:
        while not self._stopping.asked:
            waiting = self._standing_by = StandingBy(
                journal,
                chosen_retention(self._options),
                self._options.journal.min_free_bytes,
                self._stopping,
                self._log,
                self._stand_by,
            )
            opened = await waiting.run()
            if opened is None:
                return None
            self._report_opened(opened, waiting.took, journal=journal.where)
            reason: Exception | None
            try:
                serving = await self._serve(opened)
            except LogAway as error:  # before it began
                await asyncio.to_thread(opened.upkeep.journal.close)
                reason = error
            else:
                if not serving.gives_way:
                    return serving.failure
                reason = serving.failure
            self._log.error("the journal is lost to this broker, which stands by from now on", reason=str(reason))
        return None

    async def _stand_by(self, owner: str) -> None:
        """Another broker serves: answer requests and systemd with its name."""
        companions = self._parts.companions
        await companions.open_socket(StandbyAnswers(self._why), self._parts.folder)
        await companions.start(self._options.journal.url, flight=False)
        self._parts.ready.write("standby", companions.listening)
        self._log.info("standing by", owner=owner or "not known")
        notify(f"READY=1\nSTATUS={self._why()}")
        await asyncio.to_thread(load_sessions)

    def _why(self) -> str:
        waiting = self._standing_by
        assert waiting is not None
        serves = f"{waiting.owner} serves" if waiting.owner else "no broker serves yet"
        return f"this broker stands by: {waiting.trouble or serves}"
