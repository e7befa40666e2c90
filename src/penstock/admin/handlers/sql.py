"""SQL: queries, exports, tables and saved queries."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncGenerator
from typing import Any, BinaryIO

import msgspec

from penstock.admin.admin_requests import QueueRow
from penstock.admin.audit import Audit
from penstock.admin.gatekeeper import Caller
from penstock.admin.http import Request, Response
from penstock.admin.mirror import Mirror, counts_of
from penstock.admin.pages import decode_cursor, encode_cursor, page, slice_page
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
from penstock.companions.readers_and_writers import ReaderRow, Readers
from penstock.companions.startup import Reporter
from penstock.sql.pool import Died, Pool, SqlRefused, TookTooLong
from penstock.sql.requests import GIVEN, VIEWS, Format, ListTables, Outcome, Query
from penstock.sql.requests import Request as Asked

#: Saved queries, and the longest name of one.
MOST_SAVED = 1_000
NAME_CHARACTERS = 255
#: Bytes of an export that are sent at a time.
PIECE_BYTES = 2**18
#: Seconds for the list of tables.
TABLES_SECONDS = 30.0
_MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class SqlHandlers:
    """Handles requests about SQL."""

    def __init__(
        self, broker: WatchedBroker, mirror: Mirror, store: StateFile, audit: Audit, pool: Pool, reporter: Reporter
    ) -> None:
        self._broker = broker
        self._mirror = mirror
        self._store = store
        self._audit = audit
        self._pool = pool
        self._reporter = reporter
        self._tables: list[SqlTable] | None = None

    # Queries

    async def sql(self, request: Request) -> Response:
        """Rows as JSON."""
        body: SqlQuery = request.body
        outcome = await self._ask(await self._query(body, request.caller), body.seconds)
        return Response(body=outcome.body)

    async def sql_export(self, request: Request) -> Response:
        """Rows as a file, which is unlinked before it is sent."""
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
        return Response(stream=_pieces(file), media=_MEDIA[body.format], headers=headers)

    async def _query(self, body: SqlQuery, caller: Caller, format: Format = "json", file: str = "") -> Query:  # noqa: A002
        tables = _visible(caller)
        words = set(re.findall(r"\w+", body.query.lower()))
        given = {name: await self._rows(name, caller) for name in GIVEN if name in tables and name in words}
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

    async def _rows(self, table: str, caller: Caller) -> list[dict[str, Any]]:
        """The rows of a table that does not come from the journal."""
        if table == "queues":
            await self._mirror.ensure_fresh()
            rows = await self._mirror.select(caller.may_view)
            return [_queue(row) for row in rows]
        if table == "readers":
            found = await self._broker.ask(Readers(), list[ReaderRow])
            return [_reader(row) for row in found]
        return self._audit.rows()

    async def _ask(self, asked: Asked, seconds: float) -> Outcome:
        """The result of a request to the pool. Raises ApiProblem if it failed."""
        try:
            outcome = await self._pool.ask(asked, seconds)
        except SqlRefused as error:
            fail("refused", str(error))
        except TookTooLong:
            text = f"the query took longer than {seconds:g} seconds and was stopped; filter by queue or position"
            fail("bad-request", text, field="body.seconds")
        except Died:
            text = "the query exceeded its memory limit and was stopped; ask for fewer rows or columns"
            fail("bad-request", text, field="body.memory_bytes")
        if outcome.fault:
            self._reporter.fault(RuntimeError(outcome.fault))
            fail("internal", "an internal error, which the broker's log describes")
        if outcome.problem:
            fail("bad-request" if outcome.field else "refused", outcome.problem, field=outcome.field)
        return outcome

    async def sql_tables(self, request: Request) -> Response:
        """The tables that the caller may see."""
        if self._tables is None:
            outcome = await self._ask(ListTables(), TABLES_SECONDS)
            self._tables = msgspec.json.decode(outcome.body, type=list[SqlTable])
        visible = _visible(request.caller)
        found = [table for table in self._tables if table.name in visible]
        shown, following = slice_page(list(enumerate(found)), request.query, lambda each: (each[0],), tuple[int])
        return Response(Page[SqlTable](items=[table for _, table in shown], next=following, total=len(found)))

    # Saved queries

    async def saved_queries(self, request: Request) -> Response:
        """By name."""
        after: tuple[str] | None = decode_cursor(request.query.cursor, tuple[str])
        rows = self._store.rows(
            "select name, query, about, by from queries where name > ? order by name limit ?",
            (after[0] if after else "", request.query.limit + 1),
        )
        items = [SavedQuerySummary(name=name, query=query, about=about, by=by) for name, query, about, by in rows]
        [(total,)] = self._store.rows("select count(*) from queries")
        return Response(
            page(items, request.query.limit, lambda each: encode_cursor(each.name), Page[SavedQuerySummary], total)
        )

    async def save_query(self, request: Request) -> Response:
        """Save a query, replacing one with the same name."""
        name, body = _name(request), request.body
        assert isinstance(body, SavedQuery)
        before = self._found(name)
        [(total,)] = self._store.rows("select count(*) from queries")
        if before is None and total >= MOST_SAVED:
            fail("bad-request", f"{MOST_SAVED} queries are saved already; delete one first", field="path.name")
        self._store.write(
            "insert or replace into queries (name, query, about, by) values (?, ?, ?, ?)",
            (name, body.query, body.about, request.caller.identity),
        )
        return Response(Done(), before=before, after=body)

    async def forget_query(self, request: Request) -> Response:
        """Delete a saved query."""
        name = _name(request)
        before = self._found(name)
        if before is None:
            fail("not-found", f"there is no saved query {name!r}", field="path.name")
        self._store.write("delete from queries where name = ?", (name,))
        return Response(Done(), before=before)

    def _found(self, name: str) -> dict[str, str] | None:
        rows = self._store.rows("select query, about, by from queries where name = ?", (name,))
        return dict(zip(("query", "about", "by"), rows[0], strict=True)) if rows else None


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _visible(caller: Caller) -> list[str]:
    """The tables that a caller may see. Rows are limited to its queues."""
    more = [
        name
        for name, seen in (("readers", caller.may_everywhere("view")), ("audit", caller.may_everywhere("admin")))
        if seen
    ]
    return [*VIEWS, "queues", *more]


def _name(request: Request) -> str:
    name = request.path_params["name"]
    if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
        text = f"a name has 1 to {NAME_CHARACTERS} printable characters, not {name[:64]!r}"
        fail("bad-request", text, field="path.name")
    return name


def _queue(row: QueueRow) -> dict[str, Any]:
    same = ("namespace", "ready", "out", "delayed", "dead", "damaged", "bytes", "consumers", "paused", "created_at")
    return {
        **{name: getattr(row, name) for name in same},
        "queue": row.name,
        **counts_of(row)._asdict(),
    }


def _reader(row: ReaderRow) -> dict[str, Any]:
    same = ("reader", "view", "position", "lag_rows", "lag_seconds", "pin", "peer", "leased", "owner")
    return {**{name: getattr(row, name) for name in same}, "of": row.where, "heard_at": row.at}
