"""A prepared statement that libpq sends and awaits in one call, for the append, which runs once per commit.

The driver's cursors take as long as the server does for a small block, and twice the CPU time, which delays the
broker's loop.
"""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

#: Values are sent in the binary format.
_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "int8": struct.Struct(">q").pack,
    "float8": struct.Struct(">d").pack,
    "bytea": lambda value: value,
}
_BINARY = 1
_PARAMETER = re.compile(r"%\((\w+)\)[sb]")


class PreparedStatement:
    """A statement that changes rows, with named parameters, on one connection after the other."""

    def __init__(
        self, driver: Any, text: str, schema: str, *, floats: tuple[str, ...] = (), data: tuple[str, ...]
    ) -> None:
        """Parameters are integers, except those named in ``floats`` and ``data`` (bytes). ``schema`` is quoted."""
        self._driver = driver
        #: Random, since behind a pooler other clients' sessions are ours in the next transaction.
        self._name = f"penstock_{secrets.token_hex(8)}".encode()
        names = list(dict.fromkeys(_PARAMETER.findall(text)))
        types = ["float8" if name in floats else "bytea" if name in data else "int8" for name in names]
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text).format(schema=schema).encode()
        self._prepare = b"%s (%s) as %s" % (self._name, ", ".join(types).encode(), numbered)
        self._parameters = [(name, _ENCODERS[kind]) for name, kind in zip(names, types, strict=True)]
        self._formats = [_BINARY] * len(names)
        self._prepared_on: psycopg.Connection[Any] | None = None

    def run(self, connection: psycopg.Connection[Any], values: Mapping[str, Any], settings: bytes) -> int:
        """Run it, and return the number of changed rows. Raises the driver's errors.

        ``settings`` is run in the transaction that prepares it. So a session that knows the statement has the settings,
        also behind a pooler that does not reveal that it switches sessions.
        """
        encoded = [encode(values[name]) for name, encode in self._parameters]
        libpq = connection.pgconn
        if self._prepared_on is not connection:
            self._check(libpq.exec_(b"%s; prepare %s" % (settings, self._prepare)))
            self._prepared_on = connection
        result = libpq.exec_prepared(self._name, encoded, self._formats, _BINARY)
        self._check(result)
        return int(result.command_tuples or 0)

    def _check(self, result: Any) -> None:
        if result.status != self._driver.pq.ExecStatus.COMMAND_OK:
            self._prepared_on = None
            raise self._driver.errors.error_from_result(result)
