"""A statement that libpq sends and waits for in one call. It is for the append, which is run once for every commit.

The driver's cursors take as long as the server does for a small block, and twice the processor time, which the broker's
loop would have to wait for.
"""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

#: How PostgreSQL calls the types of values, and how a value is sent: all in the binary format.
_INT8, _FLOAT8, _BYTEA = 20, 701, 17
_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    _INT8: struct.Struct(">q").pack,
    _FLOAT8: struct.Struct(">d").pack,
    _BYTEA: lambda value: value,
}
_BINARY = 1
_PLACE = re.compile(r"%\((\w+)\)[sb]")


class PreparedStatement:
    """A statement that changes rows, with named places for values, on one connection after the other."""

    def __init__(self, driver: Any, text: str, *, floats: tuple[str, ...] = (), data: tuple[str, ...]) -> None:
        """Values are whole numbers, but for those that are named as floating or as bytes."""
        self._driver = driver
        #: Unlike every other one: behind a pooler, sessions of other clients are ours in the next transaction.
        self._name = f"penstock_{secrets.token_hex(8)}".encode()
        places = list(dict.fromkeys(_PLACE.findall(text)))
        self._text = _PLACE.sub(lambda found: f"${places.index(found[1]) + 1}", text).encode()
        self._types = [_FLOAT8 if each in floats else _BYTEA if each in data else _INT8 for each in places]
        self._places = [(each, _ENCODERS[kind]) for each, kind in zip(places, self._types, strict=True)]
        self._formats = [_BINARY] * len(places)
        #: The connection that it is prepared on.
        self._prepared_on: psycopg.Connection[Any] | None = None

    def run(self, connection: psycopg.Connection[Any], values: Mapping[str, Any], *, prepare: bool) -> int:
        """Run it. Returns how many rows it has changed. Raises the driver's errors."""
        sent = [encode(values[name]) for name, encode in self._places]
        libpq = connection.pgconn
        if not prepare:
            done = libpq.exec_params(self._text, sent, self._types, self._formats, _BINARY)
        else:
            if self._prepared_on is not connection:
                self._check(libpq.prepare(self._name, self._text, self._types))
                self._prepared_on = connection
            done = libpq.exec_prepared(self._name, sent, self._formats, _BINARY)
        self._check(done)
        return int(done.command_tuples or 0)

    def _check(self, result: Any) -> None:
        if result.status != self._driver.pq.ExecStatus.COMMAND_OK:
            self._prepared_on = None
            raise self._driver.errors.error_from_result(result)
