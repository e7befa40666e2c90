"""The broker: overview, history, health, journal, draining, stopping, definitions and the OpenAPI document."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrokerFigures, Histogram
from penstock.admin.definitions import Importer, as_toml
from penstock.admin.gatekeeper import Caller
from penstock.admin.http import Request, Response, convert
from penstock.admin.journal_view import JournalView
from penstock.admin.mirror import Mirror, dead_by_reason, sum_queues
from penstock.admin.openapi import document
from penstock.admin.pages import slice_page
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.pulse import Pulse
from penstock.admin.resources.common import Done, Page, Role, Sample, resource_of
from penstock.admin.resources.operations import (
    Alarm,
    Commits,
    Definitions,
    Disk,
    Drain,
    Health,
    Imported,
    JournalStatus,
    Overview,
    Segment,
    Totals,
)
from penstock.admin.settings import AdminSettings
from penstock.admin.times import to_datetime, to_datetime_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.companions import bounded_toml

#: Queues that the overview lists.
BUSIEST = 10


class BrokerHandlers:
    """Handles requests about the broker."""

    def __init__(
        self,
        broker: WatchedBroker,
        pulse: Pulse,
        mirror: Mirror,
        journal: JournalView,
        settings: AdminSettings,
        cookie: str,
    ) -> None:
        """``cookie`` is the name of the login cookie."""
        self._broker = broker
        self._pulse = pulse
        self._mirror = mirror
        self._journal = journal
        self._settings = settings
        self._importer = Importer(broker, mirror)
        #: One TOML text at a time: parsing takes a hundred times its size in memory.
        self._parsing = asyncio.Semaphore(1)
        self._document = msgspec.json.encode(document(settings.version, cookie))

    # State

    async def overview(self, request: Request) -> Response:
        """The overview, limited to queues that the caller may see."""
        return Response(await self.build_overview(request.caller))

    async def build_overview(self, caller: Caller) -> Overview:
        """The overview, for the stream as well. While the broker is silent: its last figures, marked as not ready."""
        silence = await self._refresh()
        figures = self._mirror.figures
        assert figures is not None
        everything = caller.may_everywhere("view")
        rows = list(self._mirror.rows.values()) if everything else await self._mirror.select(caller.may_view)
        totals = sum_queues(rows)
        times = await self._journal.times([totals.oldest])
        reasons = [silence] if silence else reasons_of(figures)
        disk = disk_of(self._settings) if everything else None
        busiest = sorted(rows, key=lambda row: (-row.ready, row.namespace, row.name))[:BUSIEST]
        return Overview(
            name=os.uname().nodename if everything else "",
            version=self._settings.version,
            code=self._settings.code,
            started_at=to_datetime(figures.started_at),
            ready=not reasons,
            reasons=reasons,
            heard_at=datetime.fromtimestamp(self._pulse.heard_at, UTC),
            silent_seconds=self._pulse.silence if silence else 0.0,
            alarms=_alarms(figures, reasons, totals.damaged, disk, everything=everything),
            totals=resource_of(
                Totals,
                totals,
                namespaces=figures.namespaces if everything else len({row.namespace for row in rows}),
                oldest=to_datetime_or_none(times.get(totals.oldest, 0)),
                rates=self._mirror.total_rates(rows),
            ),
            commits=_commits(figures, self._mirror.previous_figures),
            disk=disk,
            **(_private_figures(figures) if everything else _NO_PRIVATE_FIGURES),
            dead_by_reason=dead_by_reason(rows),
            ephemeral=not self._settings.data,
            protocols=self._settings.protocols,
            draining=figures.draining,
            busiest=[f"{row.namespace}/{row.name}" for row in busiest if row.ready],
        )

    async def _refresh(self) -> str:
        """Refresh the figures. Returns why they are old, if the broker is silent."""
        try:
            async with self._pulse.patience():
                await self._mirror.ensure_fresh()
        except ApiProblem as error:
            if error.problem.code != "away" or self._mirror.figures is None:
                raise
            return error.problem.detail
        return ""

    async def history(self, request: Request) -> Response:
        """Recent samples."""
        await self._mirror.ensure_fresh()
        samples = list(self._mirror.samples)[-request.query.limit :]
        return Response(Page[Sample](items=samples, total=len(samples)))

    async def healthz(self, request: Request) -> Response:
        """Whether this process is alive. It ends with its broker, whose state is in ``/readyz``."""
        return Response(Health(ok=True))

    async def readyz(self, request: Request) -> Response:
        """Whether the broker accepts messages. Responds quickly even if the broker hangs."""
        try:
            figures = await self._pulse.figures()
        except ApiProblem as error:
            role: Role = "standby" if error.problem.code == "standby" else "serving"
            return Response(Health(ok=False, role=role, reasons=[error.problem.detail]), status=503)
        reasons = reasons_of(figures)
        return Response(Health(ok=not reasons, role="serving", reasons=reasons), status=503 if reasons else 200)

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI document."""
        return Response(body=self._document)

    # The journal

    async def journal(self, request: Request) -> Response:
        """State of the journal."""
        settings = self._settings
        figures = await self._broker.ask(requests.Figures(), BrokerFigures)
        common: dict[str, Any] = {
            "durability": settings.durability,
            "retention_seconds": settings.retention_seconds,
            "retention_bytes": settings.retention_bytes,
            "trouble": figures.upkeep_trouble,
            "disk": disk_of(settings),
        }
        facts = await self._journal.facts()
        return Response(JournalStatus(**common, **facts, folder=settings.folder))

    async def segments(self, request: Request) -> Response:
        """Segments, oldest first."""
        found = await self._journal.segments()
        shown, following = slice_page(found, request.query, lambda each: (each.first,), tuple[int])
        return Response(Page[Segment](items=shown, next=following, total=len(found)))

    # Draining and stopping

    async def drain(self, request: Request) -> Response:
        """The state of draining."""
        return Response(await self._drain())

    async def begin_drain(self, request: Request) -> Response:
        """Refuse publishing."""
        asked = requests.Drain(active=True, stop_when_empty=request.body.stop_when_empty, by=request.caller.by)
        await self._broker.ask(asked, bool)
        drain = await self._drain()
        return Response(drain, after={"stop_when_empty": drain.stop_when_empty})

    async def end_drain(self, request: Request) -> Response:
        """Accept publishing again."""
        await self._broker.ask(requests.Drain(active=False, by=request.caller.by), bool)
        return Response(await self._drain())

    async def _drain(self) -> Drain:
        await self._mirror.refresh()
        figures, totals = self._mirror.figures, self._mirror.totals()
        assert figures is not None
        return Drain(
            active=figures.draining,
            since=to_datetime_or_none(figures.drain_since),
            by=figures.drain_by,
            stop_when_empty=figures.drain_stops,
            messages_left=totals.ready + totals.out + totals.delayed,
            connections=sum(figures.connections.values()),
        )

    async def stop(self, request: Request) -> Response:
        """Stop the broker."""
        await self._broker.ask(requests.Stop(by=request.caller.by), bool)
        return Response(Done())

    # Definitions

    async def definitions(self, request: Request) -> Response:
        """Export the definitions."""
        found = await self._importer.exported(self._settings.limits)
        name = f'attachment; filename="penstock-definitions.{request.query.format}"'
        if request.query.format == "toml":
            return Response(
                body=as_toml(found).encode(), media="application/toml", headers=(("content-disposition", name),)
            )
        return Response(found)

    async def import_definitions(self, request: Request) -> Response:
        """Import definitions, or only compare them."""
        wanted = request.body
        if isinstance(wanted, bytes):
            async with self._parsing:
                wanted = await asyncio.to_thread(_parse_toml, wanted)
        changes = await self._importer.difference(wanted, self._settings.limits, remove=request.query.remove)
        if request.query.dry_run:
            return Response(Imported(applied=False, changes=changes), outcome="dry-run")
        await self._importer.apply(changes, request.caller.by)
        return Response(Imported(applied=True, changes=changes), after=changes)


def _parse_toml(data: bytes) -> Definitions:
    try:
        values: Any = bounded_toml.parse(data.decode())
    except ValueError as error:
        fail("bad-request", f"the body is not valid TOML: {error}", field="body")
    return convert(values, Definitions, "body")


def reasons_of(figures: BrokerFigures) -> list[str]:
    """Why the broker does not accept messages; empty if it does."""
    reasons = []
    if figures.trouble and not figures.trouble.startswith("upkeep"):
        reasons.append(figures.trouble)
    if figures.draining:
        reasons.append("an operator is draining the queues: publishing is refused")
    return reasons


def disk_of(settings: AdminSettings) -> Disk | None:
    """The disk of the journal."""
    if not settings.folder:
        return None
    found = os.statvfs(settings.folder)
    return Disk(
        free_bytes=found.f_bavail * found.f_frsize,
        total_bytes=found.f_blocks * found.f_frsize,
        min_free_bytes=settings.min_free_bytes,
    )


#: Replaces ``_private_figures`` for a caller that may not view all queues.
_NO_PRIVATE_FIGURES: dict[str, Any] = {
    "connections": None, "connections_by_protocol": {}, "readers": None, "memory_bytes": None, "listeners": {}
}  # fmt: skip


def _private_figures(figures: BrokerFigures) -> dict[str, Any]:
    """Fields of the overview that belong to no queue."""
    return {
        "connections": sum(figures.connections.values()),
        "connections_by_protocol": {name: count for name, count in figures.connections.items() if count},
        "readers": figures.readers,
        "memory_bytes": figures.state_bytes + figures.held_input + figures.held_output + figures.unwritten,
        "listeners": figures.listeners,
    }


def _alarms(
    figures: BrokerFigures, reasons: list[str], damaged: int, disk: Disk | None, *, everything: bool
) -> list[Alarm]:
    """``everything``: the caller may view all queues."""
    alarms = [Alarm(level="error", code="not-ready", text=reason) for reason in reasons]
    if figures.upkeep_trouble and everything:
        alarms.append(Alarm(level="error", code="upkeep", text=f"upkeep fails: {figures.upkeep_trouble}"))
    if damaged:
        alarms.append(Alarm(level="error", code="damaged", text=f"{damaged} messages can't be read"))
    if disk is not None and disk.free_bytes < 2 * disk.min_free_bytes:
        text = (
            f"{disk.free_bytes // 2**20} MiB are free; below {disk.min_free_bytes // 2**20} MiB publishing is refused"
        )
        alarms.append(Alarm(level="warning", code="disk", text=text))
    if figures.stalled and everything:
        text = f"{figures.stalled} connections are blocked because their publish is refused"
        alarms.append(Alarm(level="warning", code="refused", text=text))
    return alarms


def _commits(figures: BrokerFigures, before: BrokerFigures | None) -> Commits:
    """Means since the previous figures, or since the start."""
    seconds = (figures.now - (before.now if before else figures.started_at)) / 1e6

    def mean(now: Histogram, then: Histogram | None) -> tuple[int, float]:
        count = sum(now.counts) - (sum(then.counts) if then else 0)
        total = now.sum - (then.sum if then else 0.0)
        return count, total / count if count > 0 else 0.0

    count, events = mean(figures.commit_events, before.commit_events if before else None)
    lag = figures.loop_lag
    fresh = [now - then for now, then in zip(lag.counts, before.loop_lag.counts, strict=True)] if before else lag.counts
    worst = max((index for index, number in enumerate(fresh) if number > 0), default=-1)
    return Commits(
        per_second=round(max(0, count) / seconds, 3) if seconds > 0 else 0.0,
        events=round(events, 3),
        seconds=round(mean(figures.commit_seconds, before.commit_seconds if before else None)[1], 6),
        sync_seconds=round(mean(figures.sync_seconds, before.sync_seconds if before else None)[1], 6),
        loop_lag=lag.bounds[min(worst, len(lag.bounds) - 1)] if worst >= 0 else 0.0,
    )
