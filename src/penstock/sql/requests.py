"""Requests of the HTTP process to a process for SQL, over its standard input, and the answers on its standard output.

Both are frames: a length (u32le) and that many bytes of MessagePack. The first is ``SqlSettings``, which is not
answered; each ``Query``, ``ListTables`` or ``Ping`` after it is answered by one ``Outcome``.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Literal

import msgspec

LENGTH = Struct("<I")
#: Bytes of one frame: an answer, or the rows of tables that the HTTP process supplies.
FRAME_BYTES = 256 * 2**20

#: Tables that are read from the journal.
VIEWS = ("messages", "events", "live")
#: Tables whose rows the HTTP process supplies.
GIVEN = ("queues", "readers", "audit")
Format = Literal["json", "csv", "parquet"]


class SqlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the process."""

    #: The URL of the journal: see ``journal.open_journal``.
    journal: str
    #: The Unix socket on which the broker reports which messages are out.
    broker_socket: str


class Query(msgspec.Struct, frozen=True, kw_only=True, tag="query"):
    """One query of a caller who may see the tables named here."""

    text: str
    rows: int
    memory_bytes: int
    format: Format = "json"
    #: For CSV and Parquet: the file to write, and its largest size.
    file: str = ""
    file_bytes: int = 0
    tables: list[str]
    #: Patterns of the queues that the caller may see; None: all.
    allowed: list[str] | None = None
    #: Rows of those tables of ``GIVEN`` that the text mentions.
    given: dict[str, list[dict[str, Any]]] = {}


class ListTables(msgspec.Struct, frozen=True, kw_only=True, tag="tables"):
    """List the tables."""


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Check that the process works."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request. ``body`` is JSON for the client; it is empty if there is a ``problem``."""

    body: bytes = b""
    truncated: bool = False
    problem: str = ""
    #: The field of the request that caused the problem.
    field: str = ""
    #: An internal error, for the log.
    fault: str = ""


Request = Query | ListTables | Ping
