"""The address of a queue as a URL.

::

    phpmq://HOST[:PORT][/QUEUE]            sspq://HOST[:PORT]            kokaq://HOST[:PORT][/NAMESPACE/QUEUE]
    phpmq+tls://…                          sspq+tls://…                  kokaq+tls://…
    phpmq+unix:///PATH[?queue=QUEUE]       sspq+unix:///PATH             kokaq+unix:///PATH[?queue=NAMESPACE/QUEUE]

A name with special characters is percent-encoded. A Kokaq queue without a namespace is in ``default``, where PHPMQ's
queues are as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from penstock.client.abilities import KOKAQ, PHPMQ, SSPQ
from penstock.client.errors import BadURL
from penstock.client.options import TLS, Options, Settings
from penstock.wire.kokaq import BitOrder, Numbering, Variant
from penstock.wire.phpmq import Dialect, Style

T = TypeVar("T")

DEFAULT_NAMESPACE = "default"

_PROTOCOLS = {"phpmq": (PHPMQ, 9100), "sspq": (SSPQ, 8888), "kokaq": (KOKAQ, 9420)}
_TRANSPORTS = ("", "tls", "unix")
_FORMS = {"compact": b"", "lined": b"\n", "crlf": b"\r\n"}
_TLS_OPTIONS = ("ca", "cert", "key", "server_name")
_YES_NO = {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}


class Address(Struct, frozen=True, kw_only=True):
    """Where a broker listens, what it speaks there, and the queue that is meant unless a call names another."""

    protocol: str
    host: str = ""
    port: int = 0
    path: str = ""
    use_tls: bool = False
    queue: str | None = None
    dialect: Dialect = Dialect.TTL
    style: Style = Style()
    variant: Variant = Variant(Numbering.CANONICAL, BitOrder.LOW)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol} at {self.path or f'{host}:{self.port}'}{' (TLS)' if self.use_tls else ''}"


def parse(url: str, settings: Settings | None = None) -> tuple[Address, Options]:
    """Take a URL apart. Raises :class:`BadURL`; the text never repeats a password that somebody may have put in."""
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError as error:
        raise BadURL(f"this is no URL: {error}") from None
    name, _, transport = split.scheme.partition("+")
    if name not in _PROTOCOLS or transport not in _TRANSPORTS:
        raise BadURL(
            f"a URL starts with phpmq://, sspq:// or kokaq://, optionally with +tls or +unix (as in phpmq+tls://), "
            f"not with {split.scheme + '://' if split.scheme else url[:16]!r}"
        )
    protocol, default_port = _PROTOCOLS[name]
    if split.username is not None or split.password is not None:
        raise BadURL(f"{protocol} has no log-in: prove who you are with a client certificate (?cert=…&key=…)")
    if split.fragment:
        raise BadURL("a '#' in a name is written %23")
    query = _query(split.query, protocol, transport)
    if transport == "unix":
        if split.netloc or len(split.path) < 2:
            raise BadURL(f"a Unix socket is an absolute path, behind three slashes: {split.scheme}:///run/x.sock")
        address = Address(protocol=protocol, path=unquote(split.path), queue=query.pop("queue", None))
    else:
        if not split.hostname:
            raise BadURL(f"the URL names no host: {split.scheme}://127.0.0.1:{default_port}")
        queue = unquote(split.path[1:]) or None
        port = default_port if port is None else port
        address = Address(protocol=protocol, host=split.hostname, port=port, queue=queue, use_tls=transport == "tls")
    address = _with_dialect(address, query)
    _check_queue(address)
    return address, _options(query, settings or {})


def split_name(name: str) -> tuple[str, str]:
    """Namespace and queue of a Kokaq name: ``namespace/queue``, or a queue of the default namespace."""
    namespace, slash, queue = name.partition("/")
    return (namespace, queue) if slash else (DEFAULT_NAMESPACE, name)


def _query(text: str, protocol: str, transport: str) -> dict[str, str]:
    """The query as a dict, if it has only options that mean something here, each once."""
    accepted = [*_READERS]
    accepted += {PHPMQ: ["dialect", "form"], KOKAQ: ["numbering", "bits"]}.get(protocol, [])
    accepted += {"tls": [*_TLS_OPTIONS], "unix": ["queue"] if protocol != SSPQ else []}.get(transport, [])
    query: dict[str, str] = {}
    for key, value in parse_qsl(text, keep_blank_values=True):
        if key not in accepted:
            raise BadURL(f"the option {key!r} means nothing in this URL; there are {', '.join(sorted(accepted))}")
        if key in query:
            raise BadURL(f"the option {key!r} stands twice in the URL")
        query[key] = value
    return query


def _with_dialect(address: Address, query: dict[str, str]) -> Address:
    """The address with what the query says about the protocol's own variants."""
    dialect = _choice(query, "dialect", {dialect.value: dialect for dialect in Dialect}, Dialect.TTL)
    form = _choice(query, "form", _FORMS, b"")
    numbering = _choice(query, "numbering", {each.value: each for each in Numbering}, Numbering.CANONICAL)
    order = _choice(query, "bits", {each.value: each for each in BitOrder}, BitOrder.LOW)
    style = Style(36 if dialect is Dialect.WIDE else 32, form)
    return replace(address, dialect=dialect, style=style, variant=Variant(numbering, order))


def _check_queue(address: Address) -> None:
    if address.queue is None:
        return
    if address.protocol == SSPQ:
        raise BadURL("an SSPQ URL has no path: the listener's own configuration says which queue it serves")
    names = split_name(address.queue) if address.protocol == KOKAQ else (address.queue,)
    if not all(1 <= len(name.encode()) <= 255 for name in names):
        raise BadURL("a namespace and a queue have names of 1 to 255 bytes, as in kokaq://127.0.0.1/default/jobs")


def _options(query: dict[str, str], settings: Settings) -> Options:
    found: dict[str, Any] = {key: _READERS[key](key, query[key]) for key in query if key in _READERS}
    tls = TLS(**{key: query[key] for key in _TLS_OPTIONS if key in query})
    options = Options(**{"tls": tls, **found, **settings})
    if not (options.connect_timeout > 0 and options.timeout > 0):
        raise BadURL("a time-out is above 0 seconds")
    return options


def _choice(query: dict[str, str], key: str, choices: dict[str, T], default: T) -> T:
    value = query.get(key)
    if value is None:
        return default
    if value not in choices:
        raise BadURL(f"{key}={value} makes no sense; there are {', '.join(choices)}")
    return choices[value]


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadURL(f"{key}={value} makes no sense; it is a number, as in {key}=10") from None


def _whole(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise BadURL(f"{key}={value} makes no sense; it is a whole number, as in {key}=1000000")
    return int(value)


def _flag(key: str, value: str) -> bool:
    return _choice({key: value}, key, _YES_NO, False)


#: The options that every URL can have, and how their text is read.
_READERS: dict[str, Callable[[str, str], Any]] = {
    "connect_timeout": _number,
    "timeout": _number,
    "reconnect": _flag,
    "idempotent": _flag,
    "max_message": _whole,
    "ask": lambda key, value: value,
}
