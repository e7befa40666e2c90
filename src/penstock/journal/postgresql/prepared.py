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

#: How a value of each type is sent: all in the binary format.
_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "int8": struct.Struct(">q").pack,
    "float8": struct.Struct(">d").pack,
    "bytea": lambda value: value,
}
_BINARY = 1
_PLACE = re.compile(r"%\((\w+)\)[sb]")


class PreparedStatement:
    """A statement that changes rows, with named places for values, on one connection after the other."""

    def __init__(
        self, driver: Any, text: str, schema: str, *, floats: tuple[str, ...] = (), data: tuple[str, ...]
    ) -> None:
        """Values are whole numbers, but for those that are named as floating or as bytes. ``schema`` is quoted."""
        self._driver = driver
        #: Unlike every other one: behind a pooler, sessions of other clients are ours in the next transaction.
        self._name = f"penstock_{secrets.token_hex(8)}".encode()
        places = list(dict.fromkeys(_PLACE.findall(text)))
        types = ["float8" if each in floats else "bytea" if each in data else "int8" for each in places]
        whole = _PLACE.sub(lambda found: f"${places.index(found[1]) + 1}", text).format(schema=schema).encode()
        self._prepare = b"%s (%s) as %s" % (self._name, ", ".join(types).encode(), whole)
        self._places = [(each, _ENCODERS[kind]) for each, kind in zip(places, types, strict=True)]
        self._formats = [_BINARY] * len(places)
        #: The connection that it is prepared on.
        self._prepared_on: psycopg.Connection[Any] | None = None

    def run(self, connection: psycopg.Connection[Any], values: Mapping[str, Any], settings: bytes) -> int:
        """Run it. Returns how many rows it has changed. Raises the driver's errors.

        ``settings`` is run with what prepares it, as one transaction: a session that knows the one has the other, also
        where a pooler hands out sessions and does not show it.
        """
        sent = [encode(values[name]) for name, encode in self._places]
        libpq = connection.pgconn
        if self._prepared_on is not connection:
            self._check(libpq.exec_(b"%s; prepare %s" % (settings, self._prepare)))
            self._prepared_on = connection
        done = libpq.exec_prepared(self._name, sent, self._formats, _BINARY)
        self._check(done)
        return int(done.command_tuples or 0)

    def _check(self, result: Any) -> None:
        if result.status != self._driver.pq.ExecStatus.COMMAND_OK:
            self._prepared_on = None
            raise self._driver.errors.error_from_result(result)
