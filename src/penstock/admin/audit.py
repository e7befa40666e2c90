"""The audit log: who changed what, when, from where, before and after; and what was refused."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.admin.access import Caller
from penstock.admin.http import Answer, Request
from penstock.admin.pages import cursor_of, numbers_of, page
from penstock.admin.resources.access import AuditEntry, AuditQuery
from penstock.admin.resources.common import Page, Problem
from penstock.admin.routes import Route
from penstock.admin.store import StateFile
from penstock.admin.times import micros, moment

#: Entries that are kept, and every how many the oldest are looked at.
MOST_ENTRIES = 100_000
LOOK_EVERY = 1_000
#: Bytes of a value before and after.
MOST_VALUE = 10_000


class Audit:
    """Writes it down, and lists it."""

    def __init__(self, store: StateFile) -> None:
        self._store = store

    def done(self, route: Route, places: Mapping[str, str], caller: Caller, answer: Answer) -> None:
        """A change was made."""
        target = answer.target or "/".join(places.values())
        self._add(caller, route.name, target, "done", _told(answer.before), _told(answer.after), "")

    def refused(self, route: Route, places: Mapping[str, str], caller: Caller, problem: Problem) -> None:
        """One was not."""
        outcome = "failed" if problem.status >= 500 else "refused"
        self._add(caller, route.name, "/".join(places.values()), outcome, "null", "null", problem.detail)

    def note(self, who: str, action: str, target: str, detail: str, after: Any = None) -> None:
        """Something that was done in the background, or a login."""
        caller, _, address = who.rpartition(" ")
        values = (int(time.time() * 1e6), caller, address, action, target, "done", "null", _told(after), detail)
        self._write(values)

    def _add(
        self, caller: Caller, action: str, target: str, outcome: str, before: str, after: str, detail: str
    ) -> None:
        at = int(time.time() * 1e6)
        self._write((at, caller.identity, caller.address, action, target, outcome, before, after, detail[:1000]))

    def _write(self, values: tuple[Any, ...]) -> None:
        number = self._store.write(
            "insert into audit (at, who, origin, action, target, outcome, before, after, detail) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        if number % LOOK_EVERY == 0:
            self._store.write("delete from audit where number <= ?", (number - MOST_ENTRIES,))

    async def listed(self, request: Request) -> Answer:
        """Some entries, the newest first."""
        query: AuditQuery = request.query
        before = numbers_of(query.cursor, 1)
        wanted = [
            ("number < ?", before[0] if before else None),
            ("who = ?", query.who or None),
            ("action = ?", query.action or None),
            ("instr(target, ?) > 0", query.target or None),
            ("at >= ?", micros(query.since)),
            ("at < ?", micros(query.until)),
        ]
        given = [(text, value) for text, value in wanted if value is not None]
        where = " and ".join(["1", *(text for text, _ in given)])
        rows = self._store.rows(
            f"select * from audit where {where} order by number desc limit ?",
            [*(value for _, value in given), query.limit + 1],
        )
        entries = [_entry(row) for row in rows]
        return Answer(page(entries, query.limit, lambda entry: cursor_of(entry.number), Page[AuditEntry]))


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    number, at, who, origin, action, target, outcome, before, after, detail = row
    return AuditEntry(
        number=number,
        at=moment(at),
        who=who,
        origin=origin,
        action=action,
        target=target,
        outcome=outcome,
        before=msgspec.json.decode(before),
        after=msgspec.json.decode(after),
        detail=detail,
    )


def _told(value: Any) -> str:
    text = msgspec.json.encode(value)
    return text.decode() if len(text) <= MOST_VALUE else '"too long to keep"'
