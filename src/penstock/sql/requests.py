"""What the HTTP process asks a process of SQL for, over its standard input, and the answers on its standard output.

Both are a length (u32le) and so many bytes of MessagePack. The first frame is ``SqlSettings``, which is not answered;
each ``Query`` and ``ListTables`` after it is answered by one ``Outcome``.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Literal

import msgspec

LENGTH = Struct("<I")
#: Bytes of one frame: an answer, or the rows of tables that the HTTP process hands over.
FRAME_BYTES = 256 * 2**20

#: The tables that are read from the journal.
VIEWS = ("messages", "events", "live")
#: Those that the HTTP process hands over, row by row.
GIVEN = ("queues", "readers", "audit")
Format = Literal["json", "csv", "parquet"]


class SqlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the process is to be."""

    #: The URL of the journal: see ``journal.open_journal``.
    journal: str
    #: The Unix socket on which the broker tells which messages are out.
    broker_socket: str


class Query(msgspec.Struct, frozen=True, kw_only=True, tag="query"):
    """One query, of somebody who may see the tables named here."""

    text: str
    rows: int
    memory_bytes: int
    format: Format = "json"
    #: For CSV and Parquet: the file that is written, and how large it may become.
    file: str = ""
    file_bytes: int = 0
    tables: list[str]
    #: Patterns of the queues that the caller may see; None: everything.
    allowed: list[str] | None = None
    #: Rows of those of ``GIVEN`` that the text mentions.
    given: dict[str, list[dict[str, Any]]] = {}


class ListTables(msgspec.Struct, frozen=True, kw_only=True, tag="tables"):
    """Asks which tables there are."""


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Asks whether the process still works."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. ``body`` is JSON for who asked; with a ``problem`` there is none."""

    body: bytes = b""
    truncated: bool = False
    problem: str = ""
    #: The field of the request that the problem is about.
    field: str = ""
    #: A fault of ours, for the log.
    fault: str = ""


Request = Query | ListTables | Ping
