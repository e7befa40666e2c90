"""The broker as a whole: overview, history, health, journal, draining, stopping, definitions, the OpenAPI document."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.access import Caller
from penstock.admin.admin_requests import BrokerFigures, Histogram, QueueRow
from penstock.admin.definitions import Importer, as_toml
from penstock.admin.http import Answer, Request, converted
from penstock.admin.journal import JournalView
from penstock.admin.mirror import Mirror, dead_by_reason, total_of
from penstock.admin.openapi import document
from penstock.admin.pages import cursor_of, numbers_of, page
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.pulse import Pulse
from penstock.admin.resources.common import Done, Page, Role, Sample
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
from penstock.admin.times import moment, moment_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.endpoint import bounded_toml

#: Queues that the overview names.
BUSIEST = 10


class BrokerHandlers:
    """Handles what is about the whole."""

    def __init__(
        self,
        broker: WatchedBroker,
        pulse: Pulse,
        mirror: Mirror,
        journal: JournalView,
        settings: AdminSettings,
        cookie: str,
    ) -> None:
        """``cookie``: the name of that of logins."""
        self._broker = broker
        self._pulse = pulse
        self._mirror = mirror
        self._journal = journal
        self._settings = settings
        self._importer = Importer(broker, mirror)
        #: One text at a time: a large one takes a hundred times its size.
        self._parsing = asyncio.Semaphore(1)
        self._document = msgspec.json.encode(document(settings.version, cookie))
        self.handlers: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "overview": self.overview_of,
            "history": self.history,
            "healthz": self.alive,
            "readyz": self.ready,
            "openapi": self.openapi,
            "journal": self.journal,
            "segments": self.segments,
            "drain": self.drain,
            "begin-drain": self.begin_drain,
            "end-drain": self.end_drain,
            "stop": self.stop,
            "definitions": self.definitions,
            "import-definitions": self.import_definitions,
        }

    # How it is

    async def overview_of(self, request: Request) -> Answer:
        """For the queues that the caller may see."""
        return Answer(await self.overview(request.caller))

    async def overview(self, caller: Caller) -> Overview:
        """The same, for the stream. While the broker is silent: what was heard last, which is not ready."""
        silent = await self._refreshed()
        figures = self._mirror.figures
        assert figures is not None
        wanted = _seen_by(caller)
        rows = list(self._mirror.rows.values()) if wanted is None else await self._mirror.chosen(wanted)
        totals = total_of(rows)
        times = await self._journal.times([totals.oldest])
        reasons = [silent] if silent else reasons_of(figures)
        disk = disk_of(self._settings) if wanted is None else None
        busiest = sorted(rows, key=lambda row: (-row.ready, row.namespace, row.name))[:BUSIEST]
        sums = totals._asdict()
        return Overview(
            name=os.uname().nodename if wanted is None else "",
            version=self._settings.version,
            code=self._settings.code,
            started_at=moment(figures.started_at),
            ready=not reasons,
            reasons=reasons,
            heard_at=datetime.fromtimestamp(self._pulse.heard_at, UTC),
            silent_seconds=self._pulse.silence if silent else 0.0,
            alarms=_alarms(figures, reasons, totals.damaged, disk, everything=wanted is None),
            totals=Totals(
                **{name: sums[name] for name in ("queues", "ready", "out", "delayed", "dead", "damaged", "bytes")},
                consumers=totals.consumers,
                namespaces=figures.namespaces if wanted is None else len({row.namespace for row in rows}),
                oldest=moment_or_none(times.get(totals.oldest, 0)),
                rates=self._mirror.total_rates(rows),
            ),
            commits=_commits(figures, self._mirror.before),
            disk=disk,
            **(_of_all(figures) if wanted is None else _OF_NOBODY),
            dead_by_reason=dead_by_reason(rows),
            ephemeral=not self._settings.data,
            protocols=self._settings.protocols,
            draining=figures.draining,
            busiest=[f"{row.namespace}/{row.name}" for row in busiest if row.ready],
        )

    async def _refreshed(self) -> str:
        """Have figures of this moment; if the broker is silent, and there are some, that it is."""
        try:
            async with self._pulse.patience():
                await self._mirror.fresh()
        except ApiProblem as error:
            if error.problem.code != "away" or self._mirror.figures is None:
                raise
            return error.problem.detail
        return ""

    async def history(self, request: Request) -> Answer:
        """What was sampled lately."""
        await self._mirror.fresh()
        samples = list(self._mirror.samples)[-request.query.limit :]
        return Answer(Page[Sample](items=samples, total=len(samples)))

    async def alive(self, request: Request) -> Answer:
        """Whether this process lives: it ends with its broker. What that one does is for ``/readyz``."""
        return Answer(Health(ok=True))

    async def ready(self, request: Request) -> Answer:
        """Whether the broker takes messages. Answered soon, whatever the broker does."""
        try:
            figures = await self._pulse.figures()
        except ApiProblem as error:
            role: Role = "standby" if error.problem.code == "standby" else "serving"
            return Answer(Health(ok=False, role=role, reasons=[error.problem.detail]), status=503)
        reasons = reasons_of(figures)
        return Answer(Health(ok=not reasons, role="serving", reasons=reasons), status=503 if reasons else 200)

    async def openapi(self, request: Request) -> Answer:
        """The document."""
        return Answer(body=self._document)

    # The journal

    async def journal(self, request: Request) -> Answer:
        """Range, size, retention, disk."""
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
        return Answer(JournalStatus(**common, **facts, folder=settings.folder))

    async def segments(self, request: Request) -> Answer:
        """Its files, oldest first."""
        after = numbers_of(request.query.cursor, 1)
        found = await self._journal.segments()
        rest = [each for each in found if after is None or each.first > after[0]]
        limit = request.query.limit
        return Answer(page(rest[: limit + 1], limit, lambda each: cursor_of(each.first), Page[Segment], len(found)))

    # The end

    async def drain(self, request: Request) -> Answer:
        """Whether it drains, and what is left."""
        return Answer(await self._drained())

    async def begin_drain(self, request: Request) -> Answer:
        """Refuse publishing."""
        asked = requests.Drain(active=True, stop_when_empty=request.body.stop_when_empty, by=request.caller.by)
        await self._broker.ask(asked, bool)
        told = await self._drained()
        return Answer(told, after={"stop_when_empty": told.stop_when_empty})

    async def end_drain(self, request: Request) -> Answer:
        """Take messages again."""
        await self._broker.ask(requests.Drain(active=False, by=request.caller.by), bool)
        return Answer(await self._drained())

    async def _drained(self) -> Drain:
        await self._mirror.refresh()
        figures, totals = self._mirror.figures, self._mirror.totals()
        assert figures is not None
        return Drain(
            active=figures.draining,
            since=moment_or_none(figures.drain_since),
            by=figures.drain_by,
            stop_when_empty=figures.drain_stops,
            messages_left=totals.ready + totals.out + totals.delayed,
            connections=sum(figures.connections.values()),
        )

    async def stop(self, request: Request) -> Answer:
        """As SIGTERM does."""
        await self._broker.ask(requests.Stop(by=request.caller.by), bool)
        return Answer(Done())

    # Definitions

    async def definitions(self, request: Request) -> Answer:
        """What makes a broker like this one."""
        found = await self._importer.exported(self._settings.limits)
        name = f'attachment; filename="penstock-definitions.{request.query.format}"'
        if request.query.format == "toml":
            return Answer(
                body=as_toml(found).encode(), media="application/toml", headers=(("content-disposition", name),)
            )
        return Answer(found)

    async def import_definitions(self, request: Request) -> Answer:
        """The difference, and whether it was applied."""
        wanted = request.body
        if isinstance(wanted, bytes):
            async with self._parsing:
                wanted = await asyncio.to_thread(_parsed, wanted)
        changes = await self._importer.difference(wanted, self._settings.limits, remove=request.query.remove)
        if request.query.dry_run:
            return Answer(Imported(applied=False, changes=changes), outcome="dry-run")
        await self._importer.apply(changes, request.caller.by)
        return Answer(Imported(applied=True, changes=changes), after=changes)


def _parsed(data: bytes) -> Definitions:
    try:
        values: Any = bounded_toml.parse(data.decode())
    except ValueError as error:
        fail("bad-request", f"this is not TOML that can be read: {error}", field="body")
    return converted(values, Definitions, "body")


def _seen_by(caller: Caller) -> Callable[[QueueRow], bool] | None:
    """Which queues a caller may see; None for all."""
    if caller.may_everywhere("view"):
        return None
    return lambda row: caller.may("view", row.namespace, row.name)


def reasons_of(figures: BrokerFigures) -> list[str]:
    """Why the broker does not take messages."""
    reasons = []
    if figures.trouble and not figures.trouble.startswith("upkeep"):
        reasons.append(figures.trouble)
    if figures.draining:
        reasons.append("an operator lets the queues get empty: publishing is refused")
    return reasons


def disk_of(settings: AdminSettings) -> Disk | None:
    """The disk that the journal is on."""
    if not settings.folder:
        return None
    found = os.statvfs(settings.folder)
    return Disk(
        free_bytes=found.f_bavail * found.f_frsize,
        total_bytes=found.f_blocks * found.f_frsize,
        min_free_bytes=settings.min_free_bytes,
    )


#: Instead of ``_of_all``, for a caller that may not view all queues.
_OF_NOBODY: dict[str, Any] = {
    "connections": None, "connections_by_protocol": {}, "readers": None, "memory_bytes": None, "listeners": {}
}  # fmt: skip


def _of_all(figures: BrokerFigures) -> dict[str, Any]:
    """Facts of the overview that belong to no queue."""
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
        alarms.append(Alarm(level="error", code="damaged", text=f"{damaged} messages can not be read"))
    if disk is not None and disk.free_bytes < 2 * disk.min_free_bytes:
        text = f"{disk.free_bytes // 2**20} MiB are free; below {disk.min_free_bytes // 2**20} publishing is refused"
        alarms.append(Alarm(level="warning", code="disk", text=text))
    if figures.stalled and everything:
        text = f"{figures.stalled} connections wait because a publish of theirs is refused"
        alarms.append(Alarm(level="warning", code="refused", text=text))
    return alarms


def _commits(figures: BrokerFigures, before: BrokerFigures | None) -> Commits:
    """Means of what has happened since the figures before, or since the start."""
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
