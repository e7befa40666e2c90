"""Namespaces and queues."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import QueueDetails, QueueRow
from penstock.admin.gatekeeper import Caller
from penstock.admin.http import Request, Response
from penstock.admin.journal_view import JournalView
from penstock.admin.mirror import Mirror, sum_queues
from penstock.admin.pages import decode_cursor, encode_cursor, slice_page
from penstock.admin.problems import ApiProblem, fail, problem
from penstock.admin.resources.common import Done, Page, resource_of
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
from penstock.admin.times import to_datetime, to_datetime_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.policy import Policy, policy_of, rules_of
from penstock.patterns import fits_queue

#: Sorts queues without ready messages after all others.
_LAST = 2**63 - 1


class QueueHandlers:
    """Handles requests about namespaces and queues."""

    def __init__(self, broker: WatchedBroker, mirror: Mirror, journal: JournalView) -> None:
        self._broker = broker
        self._mirror = mirror
        self._journal = journal

    # Namespaces

    async def namespaces(self, request: Request) -> Response:
        """By name, with sums over the queues that the caller may see."""
        await self._mirror.ensure_fresh()
        names = await self._broker.ask(requests.Namespaces(), list[str])
        caller = request.caller
        by_name: dict[str, list[QueueRow]] = {}
        for row in await self._mirror.select(caller.may_view):
            by_name.setdefault(row.namespace, []).append(row)
        found = [name for name in names if name in by_name or caller.may_namespace("view", name)]
        shown, following = slice_page(found, request.query, lambda name: (name,), tuple[str])
        items = [resource_of(NamespaceSummary, sum_queues(by_name.get(name, ())), name=name) for name in shown]
        return Response(Page[NamespaceSummary](items=items, next=following, total=len(found)))

    async def create_namespace(self, request: Request) -> Response:
        """Create a namespace, unless it exists."""
        asked = requests.CreateNamespace(namespace=request.namespace, by=request.caller.by)
        created = await self._broker.ask(asked, bool)
        return Response(Done(), after={"created": created})

    async def delete_namespace(self, request: Request) -> Response:
        """Delete an empty namespace."""
        await self._broker.ask(requests.DeleteNamespace(namespace=request.namespace, by=request.caller.by), bool)
        return Response(Done())

    # Queues

    async def queues(self, request: Request) -> Response:
        """A page, sorted and filtered."""
        query: QueuesQuery = request.query
        await self._mirror.ensure_fresh()
        wanted = self._wanted(query, request.caller)
        key = _sort_key(query.sort, self._mirror)
        descending = query.order == "descending"
        after: tuple[Any, str] | None = decode_cursor(query.cursor, tuple[int | float | str, str])
        rows = [(key(row), _full(row), row) for row in await self._mirror.select(wanted)]
        total = len(rows)
        if after is not None:
            if isinstance(after[0], str) != (query.sort == "name"):
                fail("bad-request", "this cursor belongs to a list with another order", field="query.cursor")
            rows = [each for each in rows if (each[:2] < after if descending else each[:2] > after)]
        first = heapq.nlargest if descending else heapq.nsmallest
        found = first(query.limit + 1, rows, key=lambda each: each[:2])
        shown = found[: query.limit]
        times = await self._journal.times([row.oldest for _, _, row in shown])
        items = [self._summary(row, times.get(row.oldest, 0)) for _, _, row in shown]
        following = encode_cursor(*shown[-1][:2]) if len(found) > query.limit else None
        return Response(Page[QueueSummary](items=items, next=following, total=total))

    def _wanted(self, query: QueuesQuery, caller: Caller) -> Callable[[QueueRow], bool]:
        contains, everything = query.contains.casefold(), caller.may_everywhere("view")

        def wanted(row: QueueRow) -> bool:
            return (
                fits_queue(query.pattern, row.namespace, row.name)
                and (not contains or contains in _full(row).casefold())
                and (query.state is None or query.state in _states(row, self._mirror.rates.get(row.number)))
                and (everything or caller.may_view(row))
            )

        return wanted

    async def queue(self, request: Request) -> Response:
        """One queue, with current figures."""
        return self._response(await self.detail(request.namespace, request.queue))

    async def detail(self, namespace: str, name: str) -> QueueDetail:
        """The resource of a queue, for the stream as well. Raises ApiProblem."""
        found = await self._broker.ask(requests.DescribeQueue(namespace=namespace, name=name), QueueDetails)
        return await self._detail(found)

    async def _detail(self, found: QueueDetails) -> QueueDetail:
        self._mirror.note(found.row)
        times = await self._journal.times([found.row.oldest])
        summary = self._summary(found.row, times.get(found.row.oldest, 0))
        names = ("published", "acknowledged", "popped", "dropped", "purged", "moved_in", "moved_out")
        counters = dict(zip((*names, "delivered", "redelivered"), found.row.counters, strict=True))
        return resource_of(
            QueueDetail,
            summary,
            created_at=to_datetime(found.row.created_at),
            rules=rules_of(found.policy),
            dead_by_reason=found.row.reasons,
            counters=Counters(**counters),
            version=_version(found.row.number, found.policy),
        )

    async def create_queue(self, request: Request) -> Response:
        """Create a queue."""
        body: NewQueue = request.body
        asked = requests.CreateQueue(
            namespace=request.namespace, name=request.queue, policy=policy_of(body.rules), by=request.caller.by
        )
        detail = await self._detail(await self._broker.ask(asked, QueueDetails))
        return self._response(detail)._replace(after=detail.rules)

    async def configure_queue(self, request: Request) -> Response:
        """Change some rules, if the caller has seen their current version."""
        found, version = await self._current(request), _if_match(request)
        if version is None:
            fail(
                "version-required",
                "name the version to change: If-Match with the ETag of the queue",
                field="header.If-Match",
            )
        if version not in ("*", _version(found.row.number, found.policy)):
            raise await self._stale(request)
        return await self._configure(request, found.policy, msgspec.to_builtins(request.body))

    async def pause_queue(self, request: Request) -> Response:
        """Stop deliveries."""
        return await self._configure(request, (await self._current(request)).policy, {"paused": True})

    async def resume_queue(self, request: Request) -> Response:
        """Resume deliveries."""
        return await self._configure(request, (await self._current(request)).policy, {"paused": False})

    async def _configure(self, request: Request, before: Policy, given: dict[str, Any]) -> Response:
        rules = rules_of(before)
        wanted = policy_of(msgspec.structs.replace(rules, **given))
        asked = requests.ConfigureQueue(
            namespace=request.namespace, name=request.queue, policy=wanted, expected=before, by=request.caller.by
        )
        try:
            full = await self._broker.ask(asked, QueueDetails)
        except ApiProblem as error:
            if error.problem.code == "stale":
                raise await self._stale(request) from None
            raise
        detail = await self._detail(full)
        return self._response(detail)._replace(before=rules, after=detail.rules)

    async def _current(self, request: Request) -> QueueDetails:
        return await self._broker.ask(
            requests.DescribeQueue(namespace=request.namespace, name=request.queue), QueueDetails
        )

    async def _stale(self, request: Request) -> ApiProblem:
        """The problem of a change to an old version, with the current queue."""
        current = await self.detail(request.namespace, request.queue)
        text = f"the rules of {request.full_name} have changed; their version is now {current.version}"
        return problem("stale", text, field="header.If-Match", current=current)

    async def delete_queue(self, request: Request) -> Response:
        """Delete an empty queue."""
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
        return Response(Done(), before=rules_of(found.policy))

    def _response(self, detail: QueueDetail) -> Response:
        return Response(detail, headers=(("etag", f'"{detail.version}"'),), target=detail.name)

    def _summary(self, row: QueueRow, oldest: int) -> QueueSummary:
        rates = self._mirror.rates.get(row.number, Rates())
        return resource_of(
            QueueSummary,
            row,
            name=_full(row),
            queue=row.name,
            oldest=to_datetime_or_none(oldest),
            rates=rates,
            states=_states(row, rates),
        )


def _full(row: QueueRow) -> str:
    return f"{row.namespace}/{row.name}"


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


def _version(number: int, policy: Policy) -> str:
    """A hash of a queue's rules. Undoing a change restores the version."""
    return hashlib.sha256(b"%d " % number + msgspec.json.encode(policy)).hexdigest()[:16]


def _if_match(request: Request) -> str | None:
    value = request.headers.get("if-match")
    return None if value is None else value.strip().removeprefix("W/").strip('"')
