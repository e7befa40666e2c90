"""The audit log: changes, with author, time, origin and the values before and after; and attempts.

Attempts are refusals, dry runs and logins. Callers without the right to change anything can cause any number of them,
so they have a table of their own and never displace changes. Both tables share one numbering.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from penstock.admin.gatekeeper import Actor, Caller
from penstock.admin.http import Response
from penstock.admin.pages import decode_numbers, encode_cursor, page
from penstock.admin.problems import ApiProblem
from penstock.admin.resources.access import AuditEntry, AuditQuery, Outcome
from penstock.admin.resources.common import Page
from penstock.admin.routes import Route
from penstock.admin.store import StateFile
from penstock.admin.times import to_datetime, to_micros

#: Entries kept in each table, and how many are added between two removals of the oldest.
MOST_ENTRIES = 100_000
LOOK_EVERY = 1_000
#: The most bytes of the value before, and of the value after.
MOST_VALUE = 10_000

Table = Literal["audit", "attempts"]
TABLES: tuple[Table, ...] = ("audit", "attempts")
#: The fields of ``AuditEntry``.
COLUMNS = ("number", "at", "who", "token", "origin", "action", "target", "outcome", "before", "after", "detail")
_COLUMNS = ", ".join(COLUMNS)


class Audit:
    """Writes and lists the entries."""

    def __init__(self, store: StateFile) -> None:
        self._store = store
        newest = [store.rows(f"select coalesce(max(number), 0) from {table}")[0][0] for table in TABLES]
        self._number: int = max(newest)

    def record_change(self, route: Route, params: Mapping[str, str], caller: Caller, response: Response) -> None:
        """Record a change, or a dry run of one."""
        target = response.target or "/".join(params.values())
        table: Table = "audit" if response.outcome == "done" else "attempts"
        self._add(table, caller.actor, route.name, target, response.outcome, response.before, response.after)

    def record_refusal(self, route: Route, params: Mapping[str, str], caller: Caller, refusal: ApiProblem) -> None:
        """Record a change that was refused or failed, possibly after a part of it was made."""
        target, detail = "/".join(params.values()), refusal.problem.detail
        if refusal.made is not None:
            self._add("audit", caller.actor, route.name, target, "partial", None, refusal.made, detail)
            return
        outcome: Outcome = "failed" if refusal.problem.status >= 500 else "refused"
        self._add("attempts", caller.actor, route.name, target, outcome, detail=detail)

    def record_login(self, caller: Caller) -> None:
        """Record a successful login."""
        self._add("attempts", caller.actor, "login", caller.identity, "done")

    def record_job(self, by: str, kind: str, target: str, detail: str, after: Any) -> None:
        """Record the end of a job."""
        self._add("audit", Actor.parse(by), f"{kind}-job", target, "done", None, after, detail)

    def _add(
        self,
        table: Table,
        actor: Actor,
        action: str,
        target: str,
        outcome: Outcome,
        before: Any = None,
        after: Any = None,
        detail: str = "",
    ) -> None:
        at, self._number = int(time.time() * 1e6), self._number + 1
        who = (actor.identity, actor.token_id, actor.address)
        values = (self._number, at, *who, action, target, outcome, _stored(before), _stored(after), detail[:1000])
        self._store.write(f"insert into {table} ({_COLUMNS}) values ({', '.join('?' * len(COLUMNS))})", values)
        if self._number % LOOK_EVERY == 0:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        for table in TABLES:
            last = f"select number from {table} order by number desc limit 1 offset {MOST_ENTRIES}"
            self._store.write(f"delete from {table} where number <= ({last})")

    def page(self, query: AuditQuery) -> Page[AuditEntry]:
        """A page of the entries that match, newest first."""
        before = decode_numbers(query.cursor, 1)
        filters = [
            ("number < ?", before[0] if before else None),
            ("who = ?", query.who or None),
            ("token = ?", query.token or None),
            ("action = ?", query.action or None),
            ("outcome = ?", query.outcome),
            ("instr(target, ?) > 0", query.target or None),
            ("at >= ?", to_micros(query.since)),
            ("at < ?", to_micros(query.until)),
        ]
        given = [(text, value) for text, value in filters if value is not None]
        where = " and ".join(["1", *(text for text, _ in given)])
        values = [*(value for _, value in given), query.limit + 1]
        rows = [
            row
            for table in TABLES
            for row in self._store.rows(
                f"select {_COLUMNS} from {table} where {where} order by number desc limit ?", values
            )
        ]
        entries = [_entry(row) for row in sorted(rows, reverse=True)[: query.limit + 1]]
        return page(entries, query.limit, lambda entry: encode_cursor(entry.number), Page[AuditEntry])

    def rows(self) -> list[dict[str, Any]]:
        """All entries, oldest first."""
        union = " union all ".join(f"select {_COLUMNS} from {table}" for table in TABLES)
        return [dict(zip(COLUMNS, row, strict=True)) for row in self._store.rows(f"{union} order by number")]


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    values = dict(zip(COLUMNS, row, strict=True))
    values |= {"at": to_datetime(values["at"])}
    values |= {name: msgspec.json.decode(values[name]) for name in ("before", "after")}
    return AuditEntry(**values)


def _stored(value: Any) -> str:
    text = msgspec.json.encode(value)
    return text.decode() if len(text) <= MOST_VALUE else '"too long to keep"'
