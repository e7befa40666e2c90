"""The audit log: who changed what, when, from where, before and after; and what was asked for and changed nothing.

Changes are in a table of their own. Refusals, dry runs and logins, which callers without the right to change anything
can bring about without end, are in another one, so they drop none of the changes. One count numbers both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from penstock.admin.access import Actor, Caller
from penstock.admin.http import Answer, Request
from penstock.admin.pages import cursor_of, numbers_of, page
from penstock.admin.problems import ApiProblem
from penstock.admin.resources.access import AuditEntry, AuditQuery, Outcome
from penstock.admin.resources.common import Page
from penstock.admin.routes import Route
from penstock.admin.store import StateFile
from penstock.admin.times import micros, moment

#: Entries of each table that are kept, and every how many the oldest are dropped.
MOST_ENTRIES = 100_000
LOOK_EVERY = 1_000
#: Bytes of a value before and after.
MOST_VALUE = 10_000

Table = Literal["audit", "attempts"]
TABLES: tuple[Table, ...] = ("audit", "attempts")
#: As ``AuditEntry`` has them.
COLUMNS = ("number", "at", "who", "token", "origin", "action", "target", "outcome", "before", "after", "detail")
_COLUMNS = ", ".join(COLUMNS)


class Audit:
    """Writes it down, and lists it."""

    def __init__(self, store: StateFile) -> None:
        self._store = store
        newest = [store.rows(f"select coalesce(max(number), 0) from {table}")[0][0] for table in TABLES]
        self._number: int = max(newest)

    def done(self, route: Route, places: Mapping[str, str], caller: Caller, answer: Answer) -> None:
        """A change was made, or looked at in a dry run."""
        target = answer.target or "/".join(places.values())
        table: Table = "audit" if answer.outcome == "done" else "attempts"
        self._add(table, caller.actor, route.name, target, answer.outcome, answer.before, answer.after)

    def refused(self, route: Route, places: Mapping[str, str], caller: Caller, refusal: ApiProblem) -> None:
        """One was not, or in part."""
        target, detail = "/".join(places.values()), refusal.problem.detail
        if refusal.made is not None:
            self._add("audit", caller.actor, route.name, target, "partial", None, refusal.made, detail)
            return
        outcome: Outcome = "failed" if refusal.problem.status >= 500 else "refused"
        self._add("attempts", caller.actor, route.name, target, outcome, detail=detail)

    def login(self, caller: Caller) -> None:
        """Somebody has logged in."""
        self._add("attempts", caller.actor, "login", caller.identity, "done")

    def job(self, by: str, kind: str, target: str, detail: str, after: Any) -> None:
        """A job has ended."""
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
        values = (self._number, at, *who, action, target, outcome, _kept(before), _kept(after), detail[:1000])
        self._store.write(f"insert into {table} ({_COLUMNS}) values ({', '.join('?' * len(COLUMNS))})", values)
        if self._number % LOOK_EVERY == 0:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        for table in TABLES:
            kept = f"select number from {table} order by number desc limit 1 offset {MOST_ENTRIES}"
            self._store.write(f"delete from {table} where number <= ({kept})")

    async def listed(self, request: Request) -> Answer:
        """Some entries, the newest first."""
        query: AuditQuery = request.query
        before = numbers_of(query.cursor, 1)
        wanted = [
            ("number < ?", before[0] if before else None),
            ("who = ?", query.who or None),
            ("token = ?", query.token or None),
            ("action = ?", query.action or None),
            ("outcome = ?", query.outcome),
            ("instr(target, ?) > 0", query.target or None),
            ("at >= ?", micros(query.since)),
            ("at < ?", micros(query.until)),
        ]
        given = [(text, value) for text, value in wanted if value is not None]
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
        return Answer(page(entries, query.limit, lambda entry: cursor_of(entry.number), Page[AuditEntry]))

    def rows(self) -> list[dict[str, Any]]:
        """All entries, the oldest first."""
        union = " union all ".join(f"select {_COLUMNS} from {table}" for table in TABLES)
        return [dict(zip(COLUMNS, row, strict=True)) for row in self._store.rows(f"{union} order by number")]


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    values = dict(zip(COLUMNS, row, strict=True))
    values |= {"at": moment(values["at"])}
    values |= {name: msgspec.json.decode(values[name]) for name in ("before", "after")}
    return AuditEntry(**values)


def _kept(value: Any) -> str:
    text = msgspec.json.encode(value)
    return text.decode() if len(text) <= MOST_VALUE else '"too long to keep"'
