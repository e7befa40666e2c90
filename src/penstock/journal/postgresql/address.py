"""The URL of a journal in PostgreSQL: that of libpq, with two parameters of our own.

postgresql://[user[:password]@][host[:port],…]/[database][?schema=penstock&lease=3&…]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode

from penstock.journal.errors import JournalRefused
from penstock.journal.passwords import without_passwords
from penstock.journal.postgresql.schema import SCHEMA

#: Seconds for which an owner that says nothing more is still the owner.
LEASE = 3.0
#: Less could not be renewed in time by a busy broker, and nobody wants to wait for more.
LEASES = (0.2, 600.0)
#: PostgreSQL cuts longer names, so that two could mean the same.
LONGEST_NAME = 63
#: libpq waits for ever if it is not told otherwise: how long connecting, and a peer's silence, may take. And names come
#: as text whatever the database's encoding is: where it is SQL_ASCII, the driver would take them for bytes.
DEFAULTS = {
    "client_encoding": "utf8",
    "connect_timeout": "3",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "application_name": "penstock",
}
_URL = re.compile(
    r"postgres(?:ql)?://(?:(?P<user>[^/?#@]*)@)?(?P<hosts>[^/?#@]*)(?:/(?P<database>[^?#@]*))?(?:\?(?P<query>[^#]*))?"
)
#: What libpq refuses as well, but with the name or password around it.
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})|%00")
#: After a name or an address, which may have colons in brackets.
_PORT = re.compile(r":([^:\]]*)$")


@dataclass(frozen=True)
class Address:
    """Where a journal is. ``url`` has the password; ``where`` has none, and is a URL as well."""

    url: str
    #: For the driver: without our own parameters, and with ``DEFAULTS``.
    connection: str
    schema: str
    lease: float
    where: str


def parse_address(url: str) -> Address:
    """What a URL says. Raises JournalRefused with what would be right."""
    matched, shown = _URL.fullmatch(url), without_passwords(url)
    if matched is None or _BAD_ESCAPE.search(url):
        raise JournalRefused(
            f"{shown} is no URL of a journal: it is postgresql://USER@HOST:PORT/DATABASE, and what is not a"
            " letter or a digit in a name or a password is written as %XX"
        )
    for host in matched["hosts"].split(","):
        port = _PORT.search(host)
        if port is not None and not (port[1].isdecimal() and 0 < int(port[1]) < 2**16):
            raise JournalRefused(f"{shown} is no URL of a journal: {port[1]!r} is no port (1 to 65535)")
    query = (matched["query"] or "").replace("+", "%2B")  # which is a plus, as libpq has it
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    schema, lease = parameters.pop("schema", SCHEMA), _lease(parameters.pop("lease", None))
    if not 0 < len(schema.encode()) <= LONGEST_NAME or schema.startswith("pg_") or "\0" in schema:
        raise JournalRefused(
            f"schema={schema!r} is no name of a schema: 1 to {LONGEST_NAME} bytes, and not beginning with pg_"
        )
    user, hosts, database = matched["user"], matched["hosts"], matched["database"] or ""
    name = f"{_quoted(user.partition(':')[0])}@" if user else ""
    base = f"postgresql://{user + '@' if user else ''}{hosts}/{database}"
    settings = urlencode(DEFAULTS | parameters, quote_via=quote)
    where = f"postgresql://{name}{hosts}/{_quoted(database)}"
    if schema != SCHEMA:
        where += f"?schema={quote(schema, safe='')}"
    return Address(url, f"{base}?{settings}", schema, lease, where)


def _quoted(part: str) -> str:
    """A part of a URL, so that a shell takes it as it is between quotes."""
    return quote(unquote(part), safe="")


def _lease(text: str | None) -> float:
    if text is None:
        return LEASE
    try:
        lease = float(text)
    except ValueError:
        lease = 0.0
    if not LEASES[0] <= lease <= LEASES[1]:
        raise JournalRefused(f"lease={text!r} is no lease: it is {LEASES[0]} to {LEASES[1]:.0f} seconds")
    return lease
