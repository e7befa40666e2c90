"""Namespaces and queues."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.access import Caller
from penstock.admin.admin_requests import QueueFull, QueueRow
from penstock.admin.http import Answer, Request
from penstock.admin.journal import JournalView
from penstock.admin.mirror import Mirror, QueueTotals, total_of
from penstock.admin.pages import cursor_of, page, values_of
from penstock.admin.problems import ApiProblem, fail, problem
from penstock.admin.resources.common import Done, Page
from penstock.admin.resources.queues import (
    Counters,
    NamespaceSummary,
    NewQueue,
    QueueDetail,
    QueuesQuery,
    QueueState,
    QueueSummary,
    Rates,
)
from penstock.admin.times import moment, moment_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.policy import Policy, policy_of, rules_of
from penstock.patterns import fits_queue

#: What a queue is sorted by. Ages are positions: what is older lies before what is newer.
_LAST = 2**63 - 1


class QueueHandlers:
    """Handles what is about queues."""

    def __init__(self, broker: WatchedBroker, mirror: Mirror, journal: JournalView) -> None:
        self._broker = broker
        self._mirror = mirror
        self._journal = journal
        self.handlers = {
            "namespaces": self.namespaces,
            "create-namespace": self.create_namespace,
            "delete-namespace": self.delete_namespace,
            "queues": self.queues,
            "queue": self.queue,
            "create-queue": self.create,
            "configure-queue": self.configure,
            "pause-queue": self.pause,
            "resume-queue": self.resume,
            "delete-queue": self.delete,
        }

    # Namespaces

    async def namespaces(self, request: Request) -> Answer:
        """By name, with sums of what the caller may see."""
        await self._mirror.fresh()
        names = await self._broker.ask(requests.Namespaces(), list[str])
        caller = request.caller
        by_name: dict[str, list[QueueRow]] = {}
        for row in await self._mirror.chosen(lambda row: caller.may("view", row.namespace, row.name)):
            by_name.setdefault(row.namespace, []).append(row)
        shown = [name for name in names if name in by_name or caller.may_namespace("view", name)]
        after: tuple[str] | None = values_of(request.query.cursor, tuple[str])
        rest = [name for name in shown if after is None or name > after[0]]
        items = [_namespace(name, total_of(by_name.get(name, ()))) for name in rest[: request.query.limit + 1]]
        cursor: Callable[[NamespaceSummary], str] = lambda each: cursor_of(each.name)  # noqa: E731
        return Answer(page(items, request.query.limit, cursor, Page[NamespaceSummary], len(shown)))

    async def create_namespace(self, request: Request) -> Answer:
        """Make one, or leave it as it is."""
        asked = requests.CreateNamespace(namespace=request.namespace, by=request.caller.by)
        is_new = await self._broker.ask(asked, bool)
        return Answer(Done(), after={"created": is_new})

    async def delete_namespace(self, request: Request) -> Answer:
        """Delete an empty one."""
        await self._broker.ask(requests.DeleteNamespace(namespace=request.namespace, by=request.caller.by), bool)
        return Answer(Done())

    # Queues

    async def queues(self, request: Request) -> Answer:
        """A page, sorted and filtered."""
        query: QueuesQuery = request.query
        await self._mirror.fresh()
        wanted = self._wanted(query, request.caller)
        key = _sort_key(query.sort, self._mirror)
        down = query.order == "descending"
        after: tuple[Any, str] | None = values_of(query.cursor, tuple[int | float | str, str])
        rows = [(key(row), _full(row), row) for row in await self._mirror.chosen(wanted)]
        total = len(rows)
        if after is not None:
            if isinstance(after[0], str) != (query.sort == "name"):
                fail("bad-request", "this cursor is of a list that was sorted otherwise", field="query.cursor")
            rows = [each for each in rows if _is_behind(each, after, down=down)]
        if down:
            chosen = heapq.nlargest(query.limit + 1, rows, key=lambda each: (each[0], each[1]))
        else:
            chosen = heapq.nsmallest(query.limit + 1, rows, key=lambda each: (each[0], each[1]))
        shown = chosen[: query.limit]
        times = await self._journal.times([row.oldest for _, _, row in shown])
        items = [self._summary(row, times.get(row.oldest, 0)) for _, _, row in shown]
        following = cursor_of(shown[-1][0], shown[-1][1]) if len(chosen) > query.limit else None
        return Answer(Page[QueueSummary](items=items, next=following, total=total))

    def _wanted(self, query: QueuesQuery, caller: Caller) -> Callable[[QueueRow], bool]:
        contains, everything = query.contains.casefold(), caller.may_everywhere("view")

        def wanted(row: QueueRow) -> bool:
            return (
                fits_queue(query.pattern, row.namespace, row.name)
                and (not contains or contains in _full(row).casefold())
                and (query.state is None or query.state in _states(row, self._mirror.rates.get(row.number)))
                and (everything or caller.may("view", row.namespace, row.name))
            )

        return wanted

    async def queue(self, request: Request) -> Answer:
        """One, as it is at this moment."""
        return self._told(await self.detail(request.namespace, request.queue))

    async def detail(self, namespace: str, name: str) -> QueueDetail:
        """All about a queue. Raises ApiProblem."""
        found = await self._broker.ask(requests.QueueNamed(namespace=namespace, name=name), QueueFull)
        return await self._detail(found)

    async def _detail(self, found: QueueFull) -> QueueDetail:
        self._mirror.note(found.row)
        times = await self._journal.times([found.row.oldest])
        summary = self._summary(found.row, times.get(found.row.oldest, 0))
        names = ("published", "acknowledged", "popped", "dropped", "purged", "moved_in", "moved_out")
        counters = dict(zip((*names, "delivered", "redelivered"), found.row.counters, strict=True))
        return QueueDetail(
            **msgspec.structs.asdict(summary),
            created_at=moment(found.row.created_at),
            rules=rules_of(found.policy),
            dead_by_reason=found.row.reasons,
            counters=Counters(**counters),
            version=_version(found.row.number, found.policy),
        )

    async def create(self, request: Request) -> Answer:
        """Make one."""
        body: NewQueue = request.body
        asked = requests.CreateQueue(
            namespace=request.namespace, name=request.queue, policy=policy_of(body.rules), by=request.caller.by
        )
        detail = await self._detail(await self._broker.ask(asked, QueueFull))
        return self._told(detail)._replace(after=detail.rules)

    async def configure(self, request: Request) -> Answer:
        """Change some rules, if they are as the caller has seen them."""
        found, version = await self._current(request), _if_match(request)
        if version is None:
            fail(
                "version-required",
                "name the version that is to be changed: If-Match with the ETag of the queue",
                field="header.If-Match",
            )
        if version not in ("*", _version(found.row.number, found.policy)):
            raise await self._stale(request)
        return await self._configure(request, found.policy, msgspec.to_builtins(request.body))

    async def pause(self, request: Request) -> Answer:
        """Give no more out."""
        return await self._configure(request, (await self._current(request)).policy, {"paused": True})

    async def resume(self, request: Request) -> Answer:
        """Give out again."""
        return await self._configure(request, (await self._current(request)).policy, {"paused": False})

    async def _configure(self, request: Request, before: Policy, given: dict[str, Any]) -> Answer:
        rules = rules_of(before)
        wanted = policy_of(msgspec.structs.replace(rules, **given))
        asked = requests.ConfigureQueue(
            namespace=request.namespace, name=request.queue, policy=wanted, expected=before, by=request.caller.by
        )
        try:
            full = await self._broker.ask(asked, QueueFull)
        except ApiProblem as error:
            if error.problem.code == "stale":
                raise await self._stale(request) from None
            raise
        detail = await self._detail(full)
        return self._told(detail)._replace(before=rules, after=detail.rules)

    async def _current(self, request: Request) -> QueueFull:
        return await self._broker.ask(requests.QueueNamed(namespace=request.namespace, name=request.queue), QueueFull)

    async def _stale(self, request: Request) -> ApiProblem:
        """Somebody was faster: how it is now."""
        current = await self.detail(request.namespace, request.queue)
        text = f"the rules of {request.full_name} were changed meanwhile; their version is {current.version}"
        return problem("stale", text, field="header.If-Match", current=current)

    async def delete(self, request: Request) -> Answer:
        """Delete an empty one."""
        version = _if_match(request)
        found = await self._current(request)
        if version not in (None, "*", _version(found.row.number, found.policy)):
            raise await self._stale(request)
        asked = requests.DeleteQueue(
            namespace=request.namespace,
            name=request.queue,
            expected=None if version is None else found.policy,
            by=request.caller.by,
        )
        await self._broker.ask(asked, bool)
        self._mirror.forget(request.full_name)
        return Answer(Done(), before=rules_of(found.policy))

    def _told(self, detail: QueueDetail) -> Answer:
        return Answer(detail, headers=(("etag", f'"{detail.version}"'),), target=detail.name)

    def _summary(self, row: QueueRow, oldest: int) -> QueueSummary:
        rates = self._mirror.rates.get(row.number, Rates())
        return QueueSummary(
            name=_full(row),
            namespace=row.namespace,
            queue=row.name,
            ready=row.ready,
            out=row.out,
            delayed=row.delayed,
            dead=row.dead,
            damaged=row.damaged,
            bytes=row.bytes,
            consumers=row.consumers,
            paused=row.paused,
            oldest=moment_or_none(oldest),
            rates=rates,
            states=_states(row, rates),
        )


def _full(row: QueueRow) -> str:
    return f"{row.namespace}/{row.name}"


def _namespace(name: str, totals: QueueTotals) -> NamespaceSummary:
    return NamespaceSummary(
        name=name,
        queues=totals.queues,
        ready=totals.ready,
        out=totals.out,
        delayed=totals.delayed,
        dead=totals.dead,
    )


def _states(row: QueueRow, rates: Rates | None) -> list[QueueState]:
    found: list[QueueState] = ["active" if rates is not None and rates != Rates() else "idle"]
    if row.paused:
        found.append("paused")
    if row.ready and not row.consumers:
        found.append("backlog")
    if row.dead:
        found.append("dead")
    if not (row.ready or row.out or row.delayed or row.dead or row.damaged):
        found.append("empty")
    return found


def _sort_key(sort: str, mirror: Mirror) -> Callable[[QueueRow], Any]:
    match sort:
        case "name":
            return _full
        case "oldest":
            return lambda row: row.oldest or _LAST
        case "published" | "delivered" | "settled":
            return lambda row: float(getattr(mirror.rates.get(row.number, Rates()), sort))
        case _:
            return lambda row: int(getattr(row, sort))


def _is_behind(each: tuple[Any, str, QueueRow], after: tuple[Any, str], *, down: bool) -> bool:
    place = (each[0], each[1])
    return place < after if down else place > after


def _version(number: int, policy: Policy) -> str:
    """A hash of a queue's rules: who changes them and changes them back has the same version again."""
    return hashlib.sha256(b"%d " % number + msgspec.json.encode(policy)).hexdigest()[:16]


def _if_match(request: Request) -> str | None:
    value = request.headers.get("if-match")
    return None if value is None else value.strip().removeprefix("W/").strip('"')
