"""SQL: queries, files of them, the tables, and queries that are kept."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, BinaryIO

import msgspec

from penstock.admin.access import Caller
from penstock.admin.admin_requests import QueueRow
from penstock.admin.audit import Audit
from penstock.admin.http import Answer, Request
from penstock.admin.mirror import Mirror, settled
from penstock.admin.pages import cursor_of, page, values_of
from penstock.admin.problems import fail
from penstock.admin.resources.common import Done, Page
from penstock.admin.resources.sql import (
    MOST_FILE_BYTES,
    SavedQuery,
    SavedQuerySummary,
    SqlExport,
    SqlQuery,
    SqlTable,
)
from penstock.admin.store import StateFile
from penstock.admin.watched_broker import WatchedBroker
from penstock.endpoint.companion import Reporter
from penstock.endpoint.readers_and_writers import ReaderRow, Readers
from penstock.sql.pool import Died, Pool, SqlRefused, TookTooLong
from penstock.sql.requests import GIVEN, VIEWS, Format, ListTables, Outcome, Query
from penstock.sql.requests import Request as Asked

#: Queries that are kept, and the longest name of one.
MOST_SAVED = 1_000
NAME_CHARACTERS = 255
#: Bytes of a file that go out at a time.
PIECE_BYTES = 2**18
#: Seconds that the list of tables may take.
TABLES_SECONDS = 30.0
_MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class SqlHandlers:
    """Handles what is about SQL."""

    def __init__(
        self, broker: WatchedBroker, mirror: Mirror, store: StateFile, audit: Audit, pool: Pool, reporter: Reporter
    ) -> None:
        self._broker = broker
        self._mirror = mirror
        self._store = store
        self._audit = audit
        self._pool = pool
        self._reporter = reporter
        self._known: list[SqlTable] | None = None
        self.handlers: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "sql": self.sql,
            "sql-export": self.export,
            "sql-tables": self.tables,
            "saved-queries": self.saved,
            "save-query": self.save,
            "forget-query": self.forget,
        }

    # Queries

    async def sql(self, request: Request) -> Answer:
        """Rows as JSON."""
        body: SqlQuery = request.body
        outcome = await self._ask(await self._query(body, request.caller), body.seconds)
        return Answer(body=outcome.body)

    async def export(self, request: Request) -> Answer:
        """Rows as a file, which is on the disk only as long as it is being sent."""
        body: SqlExport = request.body
        handle, path = tempfile.mkstemp(prefix="penstock-sql-")
        try:
            query = await self._query(body, request.caller, format=body.format, file=path)
            outcome = await self._ask(query, body.seconds)
            file = open(path, "rb")  # noqa: SIM115
        finally:
            os.close(handle)
            os.unlink(path)
        headers = (
            ("content-disposition", f'attachment; filename="query.{body.format}"'),
            ("penstock-truncated", "true" if outcome.truncated else "false"),
        )
        return Answer(stream=_pieces(file), media=_MEDIA[body.format], headers=headers)

    async def _query(self, body: SqlQuery, caller: Caller, format: Format = "json", file: str = "") -> Query:  # noqa: A002
        tables = _visible(caller)
        words = set(re.findall(r"\w+", body.query.lower()))
        given = {name: await self._given(name, caller) for name in GIVEN if name in tables and name in words}
        return Query(
            text=body.query,
            rows=body.rows,
            memory_bytes=body.memory_bytes,
            format=format,
            file=file,
            file_bytes=MOST_FILE_BYTES,
            tables=tables,
            allowed=None if caller.may_everywhere("view") else caller.patterns("view"),
            given=given,
        )

    async def _given(self, table: str, caller: Caller) -> list[dict[str, Any]]:
        """The rows of a table that this process has, or the broker."""
        if table == "queues":
            await self._mirror.fresh()
            rows = await self._mirror.chosen(lambda row: caller.may("view", row.namespace, row.name))
            return [_queue(row) for row in rows]
        if table == "readers":
            found = await self._broker.ask(Readers(), list[ReaderRow])
            return [_reader(row) for row in found]
        return self._audit.rows()

    async def _ask(self, asked: Asked, seconds: float) -> Outcome:
        """The outcome of what went well. Raises ApiProblem."""
        try:
            outcome = await self._pool.ask(asked, seconds)
        except SqlRefused as error:
            fail("refused", str(error))
        except TookTooLong:
            text = (
                f"the query took longer than {seconds:g} seconds and was stopped; ask for less: by queue, by position"
            )
            fail("bad-request", text, field="body.seconds")
        except Died:
            text = "the query needed more memory than it may have, and was stopped; ask for fewer rows or columns"
            fail("bad-request", text, field="body.memory_bytes")
        if outcome.fault:
            self._reporter.fault(RuntimeError(outcome.fault))
            fail("internal", "a fault of the broker, which its log describes")
        if outcome.problem:
            fail("bad-request" if outcome.field else "refused", outcome.problem, field=outcome.field)
        return outcome

    async def tables(self, request: Request) -> Answer:
        """Those that the caller may see."""
        if self._known is None:
            outcome = await self._ask(ListTables(), TABLES_SECONDS)
            self._known = msgspec.json.decode(outcome.body, type=list[SqlTable])
        visible = _visible(request.caller)
        shown = [table for table in self._known if table.name in visible]
        after: tuple[int] | None = values_of(request.query.cursor, tuple[int])
        rest = [(number, table) for number, table in enumerate(shown) if after is None or number > after[0]]
        limit = request.query.limit
        following = cursor_of(rest[limit - 1][0]) if len(rest) > limit else None
        return Answer(Page[SqlTable](items=[table for _, table in rest[:limit]], next=following, total=len(shown)))

    # Queries that are kept

    async def saved(self, request: Request) -> Answer:
        """By name."""
        after: tuple[str] | None = values_of(request.query.cursor, tuple[str])
        rows = self._store.rows(
            "select name, query, about, by from queries where name > ? order by name limit ?",
            (after[0] if after else "", request.query.limit + 1),
        )
        items = [SavedQuerySummary(name=name, query=query, about=about, by=by) for name, query, about, by in rows]
        [(total,)] = self._store.rows("select count(*) from queries")
        return Answer(
            page(items, request.query.limit, lambda each: cursor_of(each.name), Page[SavedQuerySummary], total)
        )

    async def save(self, request: Request) -> Answer:
        """Keep one, in place of the one of that name."""
        name, body = _name(request), request.body
        assert isinstance(body, SavedQuery)
        before = self._found(name)
        [(total,)] = self._store.rows("select count(*) from queries")
        if before is None and total >= MOST_SAVED:
            fail("bad-request", f"{MOST_SAVED} queries are kept already; drop one first", field="path.name")
        self._store.write(
            "insert or replace into queries (name, query, about, by) values (?, ?, ?, ?)",
            (name, body.query, body.about, request.caller.identity),
        )
        return Answer(Done(), before=before, after=body)

    async def forget(self, request: Request) -> Answer:
        """Drop one."""
        name = _name(request)
        before = self._found(name)
        if before is None:
            fail("not-found", f"there is no saved query {name!r}", field="path.name")
        self._store.write("delete from queries where name = ?", (name,))
        return Answer(Done(), before=before)

    def _found(self, name: str) -> dict[str, str] | None:
        rows = self._store.rows("select query, about, by from queries where name = ?", (name,))
        return dict(zip(("query", "about", "by"), rows[0], strict=True)) if rows else None


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _visible(caller: Caller) -> list[str]:
    """The tables that a caller may see; of those about queues the rows of its own."""
    more = [
        name
        for name, seen in (("readers", caller.may_everywhere("view")), ("audit", caller.may_everywhere("admin")))
        if seen
    ]
    return [*VIEWS, "queues", *more]


def _name(request: Request) -> str:
    name = request.places["name"]
    if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
        text = f"a name has 1 to {NAME_CHARACTERS} characters that can be printed, not {name[:64]!r}"
        fail("bad-request", text, field="path.name")
    return name


def _queue(row: QueueRow) -> dict[str, Any]:
    same = ("namespace", "ready", "out", "delayed", "dead", "damaged", "bytes", "consumers", "paused", "created_at")
    return {
        **{name: getattr(row, name) for name in same},
        "queue": row.name,
        "published": row.counters[0],
        "delivered": row.counters[7],
        "redelivered": row.counters[8],
        "settled": settled(row),
    }


def _reader(row: ReaderRow) -> dict[str, Any]:
    same = ("reader", "view", "position", "lag_rows", "lag_seconds", "pin", "peer", "leased", "owner")
    return {**{name: getattr(row, name) for name in same}, "of": row.where, "heard_at": row.at}
