"""The life of a process for SQL: it answers one query after another until its standard input ends.

Its parent kills it when a query takes too long. A thread watches for the end of the parent, so the process never
outlives it, whatever a query is doing.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from penstock.companions.broker_client import BrokerAway, BrokerClient
from penstock.companions.framing import BrokerRefused
from penstock.companions.startup import begin, limit_memory
from penstock.flight.flight_requests import OutNow, Outs
from penstock.flight.history import History
from penstock.flight.live import Live
from penstock.flight.problems import Trouble
from penstock.journal import open_journal
from penstock.journal.errors import LogError
from penstock.sql.database import BadQuery, database, explained, run
from penstock.sql.requests import LENGTH, VIEWS, ListTables, Outcome, Ping, Query, Request, SqlSettings
from penstock.sql.results import WrittenRows, as_json, write_csv, write_parquet
from penstock.sql.tables import ABOUT, SCHEMAS
from penstock.sql.views import Sources, View

#: Memory beyond DuckDB's own limit: batches of the journal being read, and the answer.
ROOM = 512 * 2**20


def main() -> int:
    """Answer until the end of standard input. Returns the exit code."""
    begin()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # keep what libraries print out of the answers
    frames = _frames(sys.stdin.buffer)
    settings = msgspec.msgpack.decode(frames.get(), type=SqlSettings)
    worker = Worker(settings)
    while True:
        request: Request = msgspec.msgpack.decode(frames.get(), type=Request)
        data = msgspec.msgpack.encode(worker.answer(request))
        out.write(LENGTH.pack(len(data)) + data)
        out.flush()


def _frames(stdin: BinaryIO) -> SimpleQueue[bytes]:
    """Frames from a thread that reads standard input and ends the process at its end."""
    frames: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        while head := stdin.read(LENGTH.size):
            frames.put(stdin.read(LENGTH.unpack(head)[0]))
        os._exit(0)

    Thread(target=read, daemon=True).start()
    return frames


class Worker:
    """Answers requests."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings
        self._broker = BrokerClient(settings.broker_socket)
        self._history: History | None = None
        self._live: Live | None = None
        #: The messages that are out, for the running query.
        self._outs: OutNow | None = None

    def answer(self, request: Request) -> Outcome:
        """The result of a request."""
        try:
            if isinstance(request, Ping):
                return Outcome()
            return self._tables() if isinstance(request, ListTables) else self._query(request)
        except BadQuery as error:
            return Outcome(problem=str(error), field=error.field)
        except MemoryError:
            return Outcome(problem="the query needs more memory than memory_bytes allows", field="body.memory_bytes")
        except (LogError, Trouble, BrokerAway, BrokerRefused) as error:
            self._history = self._live = None  # the journal may have been replaced
            return Outcome(problem=f"the journal can't be read there: {error}")
        except Exception as error:
            return Outcome(fault="".join(traceback.format_exception(error))[-3000:])

    def _query(self, query: Query) -> Outcome:
        limit_memory(query.memory_bytes + ROOM)
        started = time.perf_counter()
        views = [name for name in query.tables if name in VIEWS]
        sources = self._sources(query.allowed)
        tables: dict[str, Any] = {name: View(name, sources) for name in views}
        for name in query.tables:
            if name not in VIEWS:
                tables[name] = pa.Table.from_pylist(query.given.get(name, []), schema=SCHEMAS[name])
        try:
            written = self._written(query, tables)
        except Exception:
            if sources.error is not None:
                raise sources.error from None
            raise
        seconds = round(time.perf_counter() - started, 6)
        body = b'{%b,"seconds":%s}' % (written.body, str(seconds).encode()) if query.format == "json" else b""
        return Outcome(body=body, truncated=written.truncated)

    def _written(self, query: Query, tables: dict[str, Any]) -> WrittenRows:
        with database(query.memory_bytes) as connection, explained(query.text, tables):
            batches = run(connection, query.text, tables)
            if query.format == "csv":
                return WrittenRows(b"", write_csv(batches, query.file, query.rows, query.file_bytes))
            if query.format == "parquet":
                return WrittenRows(b"", write_parquet(batches, query.file, query.rows, query.file_bytes))
            types = [(name, str(kind)) for name, kind, *_ in connection.description or ()]
            return as_json(batches, types, query.rows)

    def _sources(self, allowed: list[str] | None) -> Sources:
        """The journal now. The broker is asked once which messages are out, so that a query sees one moment."""
        if self._history is None or self._live is None:
            self._history = History(open_journal(self._settings.journal).follow())
            self._live = Live(self._history, self._out_now)
        self._outs = None
        return Sources(self._history, self._live, allowed)

    def _out_now(self) -> OutNow:
        if self._outs is None:
            self._outs = self._broker.ask(Outs(), OutNow)
        return self._outs

    def _tables(self) -> Outcome:
        """All tables, with DuckDB's names for the types."""
        tables = []
        with database(64 * 2**20) as connection:
            for name, schema in SCHEMAS.items():
                connection.register(name, schema.empty_table())
                columns = connection.execute(f"describe {name}").fetchall()
                described = [{"name": column, "type": kind} for column, kind, *_ in columns]
                tables.append({"name": name, "about": ABOUT[name], "columns": described})
        return Outcome(body=msgspec.json.encode(tables))
