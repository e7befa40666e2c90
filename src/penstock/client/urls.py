"""The address of a queue as a URL.

::

    PROTOCOL://HOST[:PORT][,HOST[:PORT]…][/QUEUE]     PROTOCOL+tls://…     PROTOCOL+unix:///PATH[?queue=QUEUE]

With several hosts, one of the brokers serves at a time; each has its own port, or the protocol's. Depending on the
protocol a queue is not named, named, or written ``namespace/name``; without a namespace it is in ``default``. Special
characters in names are percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from penstock.client.errors import BadURL
from penstock.client.options import SEVERAL_HOSTS, TLS, ClientOptions, ClientSettings
from penstock.client.protocol import Abilities, ClientProtocol, client_protocol
from penstock.protocols import having, protocols

T = TypeVar("T")

DEFAULT_NAMESPACE = "default"

_TRANSPORTS = ("", "tls", "unix")
#: The hosts, between the two slashes and the path. Taken out first: urlsplit supports one host.
_HOSTS = re.compile(r"([^:/?#]*://)([^/?#]*)")
_TLS_OPTIONS = ("ca", "cert", "key", "server_name")
_YES_NO = {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}


class Address(Struct, frozen=True, kw_only=True):
    """One host of a URL: where the broker listens, the protocol, and the default queue."""

    #: The protocol's name.
    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    use_tls: bool = False
    #: The name that the certificate must match, if not the host.
    server_name: str = ""
    queue: str | None = None
    #: The protocol's own options, parsed: see ``ClientProtocol.variant``.
    variant: Any = None
    abilities: Abilities

    @property
    def protocol(self) -> str:
        """The protocol's title."""
        return protocols()[self.scheme].title

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol} at {self.path or f'{host}:{self.port}'}{' (TLS)' if self.use_tls else ''}"


def parse(url: str, settings: ClientSettings | None = None) -> tuple[tuple[Address, ...], ClientOptions]:
    """Parse a URL into an address per host. Raises :class:`BadURL`, whose text never repeats a password."""
    found = _HOSTS.match(url)
    hosts = found[2] if found is not None else ""
    split = urlsplit(found[1] + url[found.end() :] if found is not None else url)
    name, _, transport = split.scheme.partition("+")
    _check_scheme(url, split.scheme, name, transport)
    protocol, spoken = protocols()[name], client_protocol(name)
    if "@" in hosts:
        raise BadURL(f"{protocol.title} has no log-in: prove who you are with a client certificate (?cert=…&key=…)")
    if split.fragment:
        raise BadURL("a '#' in a name is written %23")
    query = _query(split.query, spoken, transport)
    if transport == "unix":
        if hosts or len(split.path) < 2:
            raise BadURL(f"a Unix socket is an absolute path after two slashes: {split.scheme}:///run/x.sock")
        places: list[dict[str, Any]] = [{"path": unquote(split.path)}]
        queue = query.pop("queue", None)
    else:
        if not hosts:
            raise BadURL(f"the URL names no host: {split.scheme}://127.0.0.1:{protocol.port}")
        places = [{"host": host, "port": port} for host, port in _hosts(hosts, protocol.port)]
        queue = unquote(split.path[1:]) or None
    variant, abilities = spoken.variant(query) if spoken.variant is not None else (None, spoken.abilities[0])
    first = Address(scheme=name, queue=queue, use_tls=transport == "tls", variant=variant, abilities=abilities)
    addresses = tuple(replace(first, **place) for place in places)
    _check_queue(addresses[0], spoken)
    options = _options(query, settings or {}, several=len(addresses) > 1)
    return _named(addresses, options.tls.server_name), options


def split_name(name: str) -> tuple[str, str]:
    """Namespace and queue of a name: ``namespace/queue``, or a queue of the default namespace."""
    namespace, slash, queue = name.partition("/")
    return (namespace, queue) if slash else (DEFAULT_NAMESPACE, name)


def _check_scheme(url: str, scheme: str, name: str, transport: str) -> None:
    names = [each.name for each in having("client")]
    if name not in names or transport not in _TRANSPORTS:
        *most, last = (f"{each}://" for each in names)
        raise BadURL(
            f"a URL starts with {', '.join(most)} or {last}, optionally with +tls or +unix (as in {names[0]}+tls://), "
            f"not with {scheme + '://' if scheme else url[:16]!r}"
        )


def _hosts(text: str, default: int) -> list[tuple[str, int]]:
    """Hosts and ports: ``a,b:1234`` is a at the protocol's port, and b at 1234."""
    found: list[tuple[str, int]] = []
    for each in text.split(","):
        try:
            split = urlsplit(f"//{each}")
            host, port = split.hostname, split.port
        except ValueError as error:
            raise BadURL(f"{each!r} is no host and port: {error}") from None
        if not host:
            raise BadURL(f"a host is missing between the commas of {text!r}: write hosts as in a,b:{default},[::1]")
        if (place := (host, default if port is None else port)) in found:
            raise BadURL(f"the host {each!r} occurs twice in the URL")
        found.append(place)
    return found


def _named(addresses: tuple[Address, ...], names: str | None) -> tuple[Address, ...]:
    """The addresses with the names of their certificates: one for all, or one each."""
    if names is None:
        return addresses
    each = names.split(",")
    if len(each) == 1:
        each *= len(addresses)
    if len(each) != len(addresses) or not all(each):
        raise BadURL(f"server_name is one name for all hosts, or one for each of {len(addresses)}, not {names!r}")
    return tuple(replace(address, server_name=name) for address, name in zip(addresses, each, strict=True))


def _query(text: str, spoken: ClientProtocol, transport: str) -> dict[str, str]:
    """The query as a dict. Raises BadURL for an option that is unknown here or given twice."""
    accepted = [*_READERS, *spoken.url_options]
    accepted += {"tls": [*_TLS_OPTIONS], "unix": ["queue"] if spoken.queue != "none" else []}.get(transport, [])
    query: dict[str, str] = {}
    for key, value in parse_qsl(text, keep_blank_values=True):
        if key not in accepted:
            raise BadURL(f"the option {key!r} is unknown in this URL; it accepts {', '.join(sorted(accepted))}")
        if key in query:
            raise BadURL(f"the option {key!r} occurs twice in the URL")
        query[key] = value
    return query


def _check_queue(address: Address, spoken: ClientProtocol) -> None:
    if address.queue is None:
        return
    if spoken.queue == "none":
        raise BadURL(f"{address.protocol} URLs have no path: the listener's configuration determines its queue")
    names = split_name(address.queue) if spoken.queue == "namespace/name" else (address.queue,)
    if not all(1 <= len(name.encode()) <= 255 for name in names):
        example = f"{address.scheme}://127.0.0.1/{'default/' if len(names) > 1 else ''}jobs"
        raise BadURL(f"a namespace and a queue have names of 1 to 255 bytes, as in {example}")


def _options(query: dict[str, str], settings: ClientSettings, *, several: bool) -> ClientOptions:
    found: dict[str, Any] = {key: _READERS[key](key, query[key]) for key in query if key in _READERS}
    tls = TLS(**{key: query[key] for key in _TLS_OPTIONS if key in query})
    given = {"tls": tls, **found, **settings}
    if several and given.get("reconnect", True) is True:
        given["reconnect"] = SEVERAL_HOSTS
    options = ClientOptions(**given)
    if not (options.connect_timeout > 0 and options.timeout > 0):
        raise BadURL("a timeout must be above 0 seconds")
    return options


def choice(query: Mapping[str, str], key: str, choices: Mapping[str, T], default: T) -> T:
    """The value that a URL's option selects. Raises BadURL."""
    value = query.get(key)
    if value is None:
        return default
    if value not in choices:
        raise BadURL(f"{key}={value} is invalid; use one of {', '.join(choices)}")
    return choices[value]


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadURL(f"{key}={value} is invalid; use a number, as in {key}=10") from None


def _whole(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise BadURL(f"{key}={value} is invalid; use a whole number, as in {key}=1000000")
    return int(value)


def _flag(key: str, value: str) -> bool:
    return choice({key: value}, key, _YES_NO, False)


#: The options of every URL, and their parsers.
_READERS: dict[str, Callable[[str, str], Any]] = {
    "connect_timeout": _number,
    "timeout": _number,
    "reconnect": _flag,
    "idempotent": _flag,
    "max_message": _whole,
    "ask": lambda key, value: value,
}
