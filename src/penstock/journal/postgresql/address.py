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

#: Seconds until the lease of a silent owner runs out.
LEASE = 3.0
#: A busy broker could not renew a shorter one in time; a longer one would delay every take-over.
LEASES = (0.2, 600.0)
#: PostgreSQL truncates longer names, so two could become the same.
LONGEST_NAME = 63
#: Timeouts for connecting and for a silent peer, since libpq by default waits without limit. The encoding makes names
#: arrive as text; from a database in SQL_ASCII, the driver would return bytes.
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
#: libpq refuses these too, but its error quotes the name or password.
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})|%00")
#: Follows a name or an address, which may contain colons in brackets.
_PORT = re.compile(r":([^:\]]*)$")


@dataclass(frozen=True)
class Address:
    """The location of a journal. ``url`` contains the password; ``where`` is the URL without it, for display."""

    url: str
    #: The driver's URL: without our own parameters, and with ``DEFAULTS``.
    connection: str
    schema: str
    lease: float
    where: str


def parse_address(url: str) -> Address:
    """Parse a URL. Raises JournalRefused, which says how to write it."""
    matched, shown = _URL.fullmatch(url), without_passwords(url)
    if matched is None or _BAD_ESCAPE.search(url):
        raise JournalRefused(
            f"{shown} is not the URL of a journal: write postgresql://USER@HOST:PORT/DATABASE, and characters in names"
            " and passwords that are neither letters nor digits as %XX"
        )
    for host in matched["hosts"].split(","):
        port = _PORT.search(host)
        if port is not None and not (port[1].isdecimal() and 0 < int(port[1]) < 2**16):
            raise JournalRefused(f"{shown} is not the URL of a journal: {port[1]!r} is not a port (1 to 65535)")
    query = (matched["query"] or "").replace("+", "%2B")  # libpq takes + literally
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    schema, lease = parameters.pop("schema", SCHEMA), _lease(parameters.pop("lease", None))
    if not 0 < len(schema.encode()) <= LONGEST_NAME or schema.startswith("pg_") or "\0" in schema:
        raise JournalRefused(
            f"schema={schema!r} is not a schema name: 1 to {LONGEST_NAME} bytes, and not beginning with pg_"
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
    """A part of a URL, escaped so that a shell takes it literally between quotes."""
    return quote(unquote(part), safe="")


def _lease(text: str | None) -> float:
    if text is None:
        return LEASE
    try:
        lease = float(text)
    except ValueError:
        lease = 0.0
    if not LEASES[0] <= lease <= LEASES[1]:
        raise JournalRefused(f"lease={text!r} is not a lease: it can be {LEASES[0]} to {LEASES[1]:.0f} seconds")
    return lease
