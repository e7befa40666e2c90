"""SQL over the queues and the journal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from penstock.admin.resources.common import Body, Resource

#: Rows of a response: the default and the limit; bytes of a query; seconds of a query.
SQL_ROWS = 1000
MOST_SQL_ROWS = 100_000
SQL_BYTES = 100_000
SQL_SECONDS = 60.0
#: Bytes of memory of a query: the default, minimum and maximum.
SQL_MEMORY = 256 * 2**20
LEAST_SQL_MEMORY = 32 * 2**20
MOST_SQL_MEMORY = 1024 * 2**20
#: Rows and bytes of an export.
MOST_FILE_ROWS = 1_000_000
MOST_FILE_BYTES = 256 * 2**20


class SqlQuery(Body, frozen=True, kw_only=True):
    """One SELECT over ``messages``, ``events``, ``live``, ``queues``, ``readers`` and ``audit``.

    It is stopped if it takes longer than ``seconds`` or more than ``memory_bytes``.
    """

    query: Annotated[str, Meta(min_length=1, max_length=SQL_BYTES)]
    rows: Annotated[int, Meta(ge=1, le=MOST_SQL_ROWS)] = SQL_ROWS
    seconds: Annotated[float, Meta(gt=0, le=SQL_SECONDS)] = 10.0
    memory_bytes: Annotated[int, Meta(ge=LEAST_SQL_MEMORY, le=MOST_SQL_MEMORY)] = SQL_MEMORY


class SqlExport(SqlQuery, frozen=True, kw_only=True):
    """A query whose result is a file. The header ``penstock-truncated`` says whether there are more rows."""

    rows: Annotated[int, Meta(ge=1, le=MOST_FILE_ROWS)] = MOST_FILE_ROWS
    format: Literal["csv", "parquet"]


class SqlColumn(Resource, frozen=True, kw_only=True):
    """A column of a table or a result. ``type`` is a type of DuckDB."""

    name: str
    type: str


class SqlAnswer(Resource, frozen=True, kw_only=True):
    """The rows of a query. Times are RFC 3339; bytes are hex; integers beyond 2⁵³ and decimals are strings."""

    columns: list[SqlColumn]
    rows: list[list[Any]]
    #: There are more rows.
    truncated: bool
    seconds: float


class SqlTable(Resource, frozen=True, kw_only=True):
    """A table."""

    name: str
    about: str
    columns: list[SqlColumn]


class SavedQuery(Body, frozen=True, kw_only=True):
    """A query to save for all users."""

    query: Annotated[str, Meta(min_length=1, max_length=SQL_BYTES)]
    about: Annotated[str, Meta(max_length=1000)] = ""


class SavedQuerySummary(Resource, frozen=True, kw_only=True):
    """A saved query and its author."""

    name: str
    query: str
    about: str
    by: str
