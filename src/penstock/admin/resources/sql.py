"""SQL over what is in the queues and in the journal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from penstock.admin.resources.common import Body, Resource

#: Rows of an answer: unless told otherwise, and at most; bytes of a query; seconds that it may take.
SQL_ROWS = 1000
MOST_SQL_ROWS = 100_000
SQL_BYTES = 100_000
SQL_SECONDS = 60.0


class SqlQuery(Body, frozen=True, kw_only=True):
    """One SELECT over ``messages``, ``events``, ``live``, ``queues``, ``readers`` and ``audit``."""

    query: Annotated[str, Meta(min_length=1, max_length=SQL_BYTES)]
    rows: Annotated[int, Meta(ge=1, le=MOST_SQL_ROWS)] = SQL_ROWS
    seconds: Annotated[float, Meta(gt=0, le=SQL_SECONDS)] = 10.0


class SqlExport(SqlQuery, frozen=True, kw_only=True):
    """The same, as a file."""

    format: Literal["csv", "parquet"]


class SqlColumn(Resource, frozen=True, kw_only=True):
    """A column of a table or an answer. ``type`` is DuckDB's word for it."""

    name: str
    type: str


class SqlAnswer(Resource, frozen=True, kw_only=True):
    """The rows of a query. Times are RFC 3339; bytes are hex; numbers beyond 2⁵³ are strings."""

    columns: list[SqlColumn]
    rows: list[list[Any]]
    #: There are more rows than were asked for.
    truncated: bool
    seconds: float


class SqlTable(Resource, frozen=True, kw_only=True):
    """A table that can be asked."""

    name: str
    about: str
    columns: list[SqlColumn]


class SavedQuery(Body, frozen=True, kw_only=True):
    """A query that is kept for everybody."""

    query: Annotated[str, Meta(min_length=1, max_length=SQL_BYTES)]
    about: Annotated[str, Meta(max_length=1000)] = ""


class SavedQuerySummary(Resource, frozen=True, kw_only=True):
    """A query that was kept, and by whom."""

    name: str
    query: str
    about: str
    by: str
