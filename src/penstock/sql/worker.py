"""The life of a process of SQL: it answers one query after the other, until its standard input ends.

Whoever started it ends it when a query takes too long. It watches for the end of that one itself, so it never outlives
it, whatever a query is doing.
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

from penstock.endpoint.process import begin, limit_memory
from penstock.flight.broker import BrokerClient
from penstock.flight.history import History
from penstock.flight.live import Live
from penstock.flight.problems import Trouble
from penstock.flight.requests import OutNow, Outs
from penstock.journal import open_journal
from penstock.journal.errors import LogError
from penstock.sql.database import BadQuery, database, explained, run
from penstock.sql.requests import LENGTH, VIEWS, ListTables, Outcome, Ping, Query, Request, SqlSettings
from penstock.sql.results import WrittenRows, as_json, write_csv, write_parquet
from penstock.sql.tables import ABOUT, SCHEMAS
from penstock.sql.views import Sources, View

#: Bytes beside DuckDB's own limit: batches of the journal on their way, and the answer.
ROOM = 512 * 2**20


def main() -> int:
    """Answer until the end of standard input. Returns the exit code."""
    begin()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what a library prints is no answer
    frames = _frames(sys.stdin.buffer)
    settings = msgspec.msgpack.decode(frames.get(), type=SqlSettings)
    worker = Worker(settings)
    while True:
        request: Request = msgspec.msgpack.decode(frames.get(), type=Request)
        data = msgspec.msgpack.encode(worker.answer(request))
        out.write(LENGTH.pack(len(data)) + data)
        out.flush()


def _frames(told: BinaryIO) -> SimpleQueue[bytes]:
    """What comes in, read by a thread: it ends the process when nothing more can come."""
    frames: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        while head := told.read(LENGTH.size):
            frames.put(told.read(LENGTH.unpack(head)[0]))
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
        #: Which messages are out, as the query under way has it.
        self._outs: OutNow | None = None

    def answer(self, request: Request) -> Outcome:
        """What became of it."""
        try:
            if isinstance(request, Ping):
                return Outcome()
            return self._tables() if isinstance(request, ListTables) else self._query(request)
        except BadQuery as error:
            return Outcome(problem=str(error), field=error.field)
        except MemoryError:
            return Outcome(problem="the query needs more memory than it may have", field="body.memory_bytes")
        except (LogError, Trouble) as error:
            self._history = self._live = None  # it may be another journal by now
            return Outcome(problem=f"the journal can not be read there: {error}")
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
        """The journal as it is now. What is out is asked for once, so that a query sees one moment."""
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
        """All tables, with DuckDB's words for the types."""
        told = []
        with database(64 * 2**20) as connection:
            for name, schema in SCHEMAS.items():
                connection.register(name, schema.empty_table())
                columns = connection.execute(f"describe {name}").fetchall()
                found = [{"name": column, "type": kind} for column, kind, *_ in columns]
                told.append({"name": name, "about": ABOUT[name], "columns": found})
        return Outcome(body=msgspec.json.encode(told))
