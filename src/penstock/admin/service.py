"""The parts of the HTTP process, put together."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrokerFigures
from penstock.admin.app import App
from penstock.admin.assets import assets
from penstock.admin.audit import Audit
from penstock.admin.backups import Backups
from penstock.admin.gatekeeper import Gatekeeper
from penstock.admin.handlers.access import AccessHandlers
from penstock.admin.handlers.broker import BrokerHandlers
from penstock.admin.handlers.jobs import JobHandlers
from penstock.admin.handlers.live import LiveHandlers
from penstock.admin.handlers.messages import MessageHandlers
from penstock.admin.handlers.peers import PeerHandlers
from penstock.admin.handlers.pipelines import PipelineHandlers
from penstock.admin.handlers.queues import QueueHandlers
from penstock.admin.handlers.sql import SqlHandlers
from penstock.admin.http import Handlers
from penstock.admin.jobs import Jobs
from penstock.admin.journal_view import JournalView
from penstock.admin.mirror import Mirror
from penstock.admin.origins import Origins
from penstock.admin.pulse import Pulse
from penstock.admin.routes import ROUTES
from penstock.admin.settings import AdminSettings
from penstock.admin.store import StateFile
from penstock.admin.watched_broker import WatchedBroker
from penstock.companions.rights import Allowed, AskRights
from penstock.companions.startup import Reporter
from penstock.sql.pool import Pool
from penstock.sql.requests import SqlSettings

if TYPE_CHECKING:
    from penstock.admin.traces import Tracer


class AdminService:
    """Everything that answers requests."""

    def __init__(self, settings: AdminSettings, reporter: Reporter) -> None:
        self._listening = WatchedBroker(settings.broker_socket)
        self.pulse = Pulse(lambda: self._listening.ask(requests.Figures(), BrokerFigures))
        self.broker = WatchedBroker(settings.broker_socket, self.pulse)
        self.mirror = Mirror(self.broker)
        self.store = StateFile(settings.data)
        self.journal = JournalView(settings.journal, settings.folder)
        audit = Audit(self.store)
        origins = Origins(
            settings.address,
            tls=bool(settings.tls_certificate),
            public_url=settings.public_url,
            host_names=settings.host_names,
            proxy_from=settings.proxy_from,
        )
        gatekeeper = Gatekeeper(self._rights, self.store)
        backups = Backups(settings.journal, settings.backups)
        self.jobs = Jobs(self.broker, self.mirror, self.journal, self.store, audit, backups.run, reporter.fault)
        broker_handlers = BrokerHandlers(
            self.broker, self.pulse, self.mirror, self.journal, settings, gatekeeper.cookie
        )
        queues = QueueHandlers(self.broker, self.mirror, self.journal)
        pipelines = PipelineHandlers(settings.lake)
        self.tracer = _tracer(settings, reporter)
        if self.tracer is not None:
            self.tracer.serving = lambda: self.mirror.serving
        self.live = LiveHandlers(
            self.broker,
            self.pulse,
            self.mirror,
            self.journal,
            settings,
            broker_handlers,
            queues,
            self.jobs,
            pipelines,
            self.tracer,
        )
        self.sql = Pool(SqlSettings(journal=settings.journal, broker_socket=settings.broker_socket))
        handlers = handlers_of(
            AccessHandlers(self.broker, gatekeeper, audit, origins),
            broker_handlers,
            queues,
            MessageHandlers(self.broker, self.mirror, self.journal),
            PeerHandlers(self.broker),
            JobHandlers(self.broker, self.jobs, backups),
            pipelines,
            self.live,
            SqlHandlers(self.broker, self.mirror, self.store, audit, self.sql, reporter),
        )
        self.app = App(
            handlers,
            gatekeeper,
            audit,
            reporter.fault,
            origins,
            changed=self.mirror.invalidate,
            files=assets(),
            open_routes=("metrics", "metrics-per-queue") if settings.public_metrics else (),
            largest_publish=largest_publish(settings),
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def _rights(self, asked: AskRights) -> Allowed:
        """Fails soon if the broker is silent: the gatekeeper then uses cached rights."""
        async with self.pulse.patience():
            return await self.broker.ask(asked, Allowed)

    async def start(self) -> None:
        """Start the background tasks."""
        self._tasks += [asyncio.create_task(self.pulse.run()), asyncio.create_task(self.mirror.run())]
        if self.tracer is not None:
            self.tracer.start()

    def stop(self) -> None:
        """Stop streams, jobs and background tasks."""
        self.live.end()
        self.jobs.stop()
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Stop, and close all connections and files."""
        self.stop()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)
        await self.sql.close()
        self.broker.close()
        self._listening.close()
        self.store.close()


def largest_publish(settings: AdminSettings) -> int:
    """Bytes of the largest body: a payload in hex, and the fields around it."""
    return 3 * settings.payload_bytes + 2**20


def handlers_of(*groups: object) -> Handlers:
    """The methods that are named like routes, by the routes' names."""
    names = {route.name: route.name.replace("-", "_") for route in ROUTES}
    return {
        name: getattr(group, method) for group in groups for name, method in names.items() if hasattr(group, method)
    }


def _tracer(settings: AdminSettings, reporter: Reporter) -> Tracer | None:
    if not settings.traces_endpoint:
        return None
    from penstock.admin.traces import Tracer  # noqa: PLC0415  # needs the extra otel

    return Tracer(settings, reporter)
