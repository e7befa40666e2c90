"""The address of a queue as a URL.

::

    PROTOCOL://HOST[:PORT][/QUEUE]     PROTOCOL+tls://…     PROTOCOL+unix:///PATH[?queue=QUEUE]

The protocol says how a queue is named, if at all: by a name, or as ``namespace/name``. A name with special characters
is percent-encoded. One without a namespace is in ``default``, where the queues of listeners without namespaces are too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from penstock.client.errors import BadURL
from penstock.client.options import TLS, ClientOptions, ClientSettings
from penstock.client.protocol import Abilities, ClientProtocol, client_protocol
from penstock.protocols import having, protocols

T = TypeVar("T")

DEFAULT_NAMESPACE = "default"

_TRANSPORTS = ("", "tls", "unix")
_TLS_OPTIONS = ("ca", "cert", "key", "server_name")
_YES_NO = {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}


class Address(Struct, frozen=True, kw_only=True):
    """Where a broker listens, what it speaks there, and the queue that is meant unless a call names another."""

    #: The protocol's name.
    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    use_tls: bool = False
    queue: str | None = None
    #: What the protocol makes of its own options: see ``ClientProtocol.variant``.
    variant: Any = None
    abilities: Abilities

    @property
    def protocol(self) -> str:
        """The protocol's title."""
        return protocols()[self.scheme].title

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol} at {self.path or f'{host}:{self.port}'}{' (TLS)' if self.use_tls else ''}"


def parse(url: str, settings: ClientSettings | None = None) -> tuple[Address, ClientOptions]:
    """Take a URL apart. Raises :class:`BadURL`; the text never repeats a password that somebody may have put in."""
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError as error:
        raise BadURL(f"this is no URL: {error}") from None
    name, _, transport = split.scheme.partition("+")
    names = [each.name for each in having("client")]
    if name not in names or transport not in _TRANSPORTS:
        *most, last = (f"{each}://" for each in names)
        raise BadURL(
            f"a URL starts with {', '.join(most)} or {last}, optionally with +tls or +unix (as in {names[0]}+tls://), "
            f"not with {split.scheme + '://' if split.scheme else url[:16]!r}"
        )
    protocol, spoken = protocols()[name], client_protocol(name)
    if split.username is not None or split.password is not None:
        raise BadURL(f"{protocol.title} has no log-in: prove who you are with a client certificate (?cert=…&key=…)")
    if split.fragment:
        raise BadURL("a '#' in a name is written %23")
    query = _query(split.query, spoken, transport)
    where: dict[str, Any]
    if transport == "unix":
        if split.netloc or len(split.path) < 2:
            raise BadURL(f"a Unix socket is an absolute path, behind three slashes: {split.scheme}:///run/x.sock")
        where = {"path": unquote(split.path), "queue": query.pop("queue", None)}
    else:
        if not split.hostname:
            raise BadURL(f"the URL names no host: {split.scheme}://127.0.0.1:{protocol.port}")
        where = {"host": split.hostname, "port": protocol.port if port is None else port}
        where |= {"queue": unquote(split.path[1:]) or None, "use_tls": transport == "tls"}
    variant, abilities = spoken.variant(query) if spoken.variant is not None else (None, spoken.abilities[0])
    address = Address(scheme=name, variant=variant, abilities=abilities, **where)
    _check_queue(address, spoken)
    return address, _options(query, settings or {})


def split_name(name: str) -> tuple[str, str]:
    """Namespace and queue of a name: ``namespace/queue``, or a queue of the default namespace."""
    namespace, slash, queue = name.partition("/")
    return (namespace, queue) if slash else (DEFAULT_NAMESPACE, name)


def _query(text: str, spoken: ClientProtocol, transport: str) -> dict[str, str]:
    """The query as a dict, if it has only options that mean something here, each once."""
    accepted = [*_READERS, *spoken.url_options]
    accepted += {"tls": [*_TLS_OPTIONS], "unix": ["queue"] if spoken.queue != "none" else []}.get(transport, [])
    query: dict[str, str] = {}
    for key, value in parse_qsl(text, keep_blank_values=True):
        if key not in accepted:
            raise BadURL(f"the option {key!r} means nothing in this URL; there are {', '.join(sorted(accepted))}")
        if key in query:
            raise BadURL(f"the option {key!r} stands twice in the URL")
        query[key] = value
    return query


def _check_queue(address: Address, spoken: ClientProtocol) -> None:
    if address.queue is None:
        return
    if spoken.queue == "none":
        raise BadURL(
            f"{address.protocol} URLs have no path: the listener's own configuration says which queue it serves"
        )
    names = split_name(address.queue) if spoken.queue == "namespace/name" else (address.queue,)
    if not all(1 <= len(name.encode()) <= 255 for name in names):
        example = f"{address.scheme}://127.0.0.1/{'default/' if len(names) > 1 else ''}jobs"
        raise BadURL(f"a namespace and a queue have names of 1 to 255 bytes, as in {example}")


def _options(query: dict[str, str], settings: ClientSettings) -> ClientOptions:
    found: dict[str, Any] = {key: _READERS[key](key, query[key]) for key in query if key in _READERS}
    tls = TLS(**{key: query[key] for key in _TLS_OPTIONS if key in query})
    options = ClientOptions(**{"tls": tls, **found, **settings})
    if not (options.connect_timeout > 0 and options.timeout > 0):
        raise BadURL("a time-out is above 0 seconds")
    return options


def choice(query: Mapping[str, str], key: str, choices: Mapping[str, T], default: T) -> T:
    """What an option of a URL stands for, if it is there."""
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
    return choice({key: value}, key, _YES_NO, False)


#: The options that every URL can have, and how their text is read.
_READERS: dict[str, Callable[[str, str], Any]] = {
    "connect_timeout": _number,
    "timeout": _number,
    "reconnect": _flag,
    "idempotent": _flag,
    "max_message": _whole,
    "ask": lambda key, value: value,
}
