"""Every option of the broker, typed, with its default and the reason for it.

Where they come from, and the errors about them: ``configuration``. ``penstock.example.toml`` shows
them all.
"""

from __future__ import annotations

import ipaddress
import re
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, defstruct, field

from penstock.core.policy import QueueRules, Seconds
from penstock.endpoint.rights import Right
from penstock.journal import check_url
from penstock.journal.errors import JournalRefused
from penstock.patterns import MOST_CHARACTERS
from penstock.protocols import ProtocolError, protocols
from penstock.server.options.listener_options import (
    ListenAddress,
    Listener,
    ListenOptions,
    OptionError,
    OptionTable,
    check_networks,
)

Positive = Annotated[int, Meta(gt=0)]
NotNegative = Annotated[int, Meta(ge=0)]

MEBIBYTE = 2**20
#: Every segment begins with a list of all namespaces and queues, in one block of 64 MiB at most, however long the
#: names are.
MOST_QUEUES = 16_000
MOST_NAMESPACES = 1_000


class FlightListener(ListenOptions, frozen=True, kw_only=True):
    """The Arrow Flight endpoint."""

    address: str = "127.0.0.1:8815"


#: It stands for "where that is possible": without pyarrow it is left out. Who asks for an endpoint must get one.
DEFAULT_FLIGHT = FlightListener()


class HttpListener(ListenOptions, frozen=True, kw_only=True):
    """The HTTP API, metrics and the console."""

    address: str = "127.0.0.1:9180"
    #: Where browsers reach the console, if a reverse proxy stands before it, as in https://mq.example.com.
    public_url: str = ""
    #: More host names by which it is reached without TLS. Addresses, localhost, the name of this machine and those of
    #: ``address`` and ``public_url`` are known; a browser that comes by another name may be led by a hostile page.
    host_names: list[str] = field(default_factory=list)
    #: Addresses and networks of reverse proxies, whose X-Forwarded-For says who the client is.
    proxy_from: list[str] = field(default_factory=list)
    #: Everybody who can connect may read the metrics; otherwise the right to view is needed.
    public_metrics: bool = False
    #: Where backups are made; empty: beside the data folder, with -backups behind its name, or the folder backups in
    #: the data folder where the broker may not write beside it.
    backups: str = ""
    #: The folder that pipelines write to, to show how far they are.
    lake: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_url and not _is_web_address(self.public_url):
            raise OptionError(
                "public_url",
                f"expected the URL that browsers use, as in https://mq.example.com, not {self.public_url!r}",
            )
        check_networks("proxy_from", self.proxy_from)


#: As for Flight: without uvicorn it is left out, unless it was asked for.
DEFAULT_HTTP = HttpListener()


class JournalOptions(OptionTable, frozen=True, kw_only=True):
    """Where, how durable, how large, for how long."""

    #: A database that brokers on several machines own in turn, as in postgresql://mq@db.example.com/penstock. Empty:
    #: the journal is files in the data folder.
    url: str = ""
    #: commit: nothing is confirmed before it is on disk. interval: every interval_ms. os: when the system likes.
    durability: Literal["commit", "interval", "os"] = "commit"
    interval_ms: Positive = 50
    #: A segment is finished at this size or age. Smaller ones give space back sooner, and are more files.
    segment_bytes: Positive = 128 * MEBIBYTE
    segment_seconds: Positive = 3600
    #: Settled history is kept for readers this long, and up to this size; 0 = without limit. A week is what people
    #: need to notice that a pipeline has stopped, and to run it again.
    retention_seconds: NotNegative = 7 * 24 * 3600
    retention_bytes: NotNegative = 0
    #: A reader may pin history until it has read it: if it was heard of not longer ago than this (0 = nobody can), and
    #: up to so many bytes beyond the retention (0 = without limit). A week, as for retention itself; the bytes are
    #: there because a reader that is forgotten must not fill the disk.
    pin_seconds: NotNegative = 7 * 24 * 3600
    pin_bytes: NotNegative = 10 * 1024 * MEBIBYTE
    #: Publishing is refused when the disk has less free space than this, or than ``admission.MESSAGE_BYTES`` for each
    #: message in the queues; consuming goes on.
    min_free_bytes: NotNegative = 1024 * MEBIBYTE

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("postgresql://", "postgres://")):
            raise OptionError(
                "url", "a journal in a database is as in postgresql://mq@db.example.com/penstock; a folder is `data`"
            )
        if self.url:
            self._check_database()

    def _check_database(self) -> None:
        try:
            check_url(self.url)
        except JournalRefused as error:
            raise OptionError("url", str(error)) from None
        if self.durability != "commit":
            raise OptionError(
                "durability",
                f"a database commits every append: {self.durability} is for a journal in a folder; leave it out, or"
                " set it to commit",
            )


class Limits(OptionTable, frozen=True, kw_only=True):
    """What one peer, or all together, may cost."""

    #: Each connection costs a few kilobytes and a file descriptor.
    connections: Positive = 10_000
    #: One machine with a bug in its pool must not lock out the others.
    connections_per_address: Positive = 1_000
    #: Large enough for documents, small enough to hold a few in memory.
    payload_bytes: Annotated[int, Meta(gt=0, le=60 * MEBIBYTE)] = 16 * MEBIBYTE
    #: Of a namespace or a queue that is to be made. 255 is what the protocols can express.
    name_bytes: Annotated[int, Meta(gt=0, le=255)] = 255
    #: A message, or a TLS handshake, must be complete this long after its first byte: an unfinished one costs memory.
    #: Time in which we do not read from it does not count.
    unfinished_seconds: Annotated[float, Meta(gt=0)] = 60.0
    #: Close connections that neither send nor wait for anything. 0 = never: a quiet consumer is no fault.
    idle_seconds: Seconds = 0.0
    #: A larger PHPMQ window is cut down to this.
    window: Annotated[int, Meta(gt=0, le=65_535)] = 65_535
    #: Messages that one connection may have, over all its queues: each costs a few hundred bytes while it is out.
    messages_out: Positive = 100_000
    #: Messages that all connections may have. Towards it, each may have as many as are left, so nobody takes them all.
    messages_out_total: Positive = 500_000
    #: Requests of one connection that wait for their answer; more are not read until some are answered.
    pipelined_requests: Positive = 1_000
    #: Output that waits for a slow peer; more deliveries are not read from disk until it is taken. Where peers are many
    #: it is less, so that all together have a quarter of memory_bytes, but 16 KiB while there is memory.
    output_bytes: Positive = 1 * MEBIBYTE
    #: All that is kept for a moment, for all connections together. A quarter is for what was received and is not on
    #: disk: above it nobody is read from. A quarter is for output: above it messages stay in the journal until there
    #: is room, and who takes nothing meanwhile is closed. Half is for unfinished input: above it the slowest go.
    memory_bytes: Positive = 512 * MEBIBYTE
    #: What is known of messages is in memory while they lie on disk: about 20 bytes for each that waits, 400 for one
    #: that is out, 200 for a request ID. Above it publishing is refused; consuming goes on.
    state_bytes: Positive = 2048 * MEBIBYTE
    #: A queue costs about three kilobytes of memory for ever, so a peer that invents names is stopped.
    queues: Annotated[int, Meta(gt=0, le=MOST_QUEUES)] = 10_000
    #: Queues that the peers of one address may make: nobody takes all the places. An access rule can say otherwise.
    queues_per_address: Positive = 1_000
    namespaces: Annotated[int, Meta(gt=0, le=MOST_NAMESPACES)] = 1_000
    #: Names that one identity may have: of writers, with so many partitions, and of readers. All together may have
    #: 10,000 writers with 1,000,000 partitions, and 1,000 readers, so nobody takes more than a tenth of it.
    writers_per_identity: Positive = 1_000
    partitions_per_identity: Positive = 100_000
    readers_per_identity: Positive = 100
    #: A publish that is refused (full queue, full disk), over a protocol that can't say so: the peer waits this long.
    refused_seconds: Seconds = 30.0


class LogOptions(OptionTable, frozen=True, kw_only=True):
    """What is said, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    #: auto: readable on a terminal, JSON otherwise.
    format: Literal["auto", "text", "json"] = "auto"


class TraceOptions(OptionTable, frozen=True, kw_only=True):
    """Traces of messages, for a collector of OpenTelemetry."""

    #: Where it takes OTLP over HTTP. Empty: there are no traces.
    endpoint: str = ""
    #: The share of messages that have a trace.
    ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    #: Patterns of namespace/queue (* and ?). A namespace alone is all its queues.
    queues: list[str] = field(default_factory=lambda: ["*"])

    def __post_init__(self) -> None:
        if self.endpoint and not _is_web_address(self.endpoint):
            raise OptionError(
                "endpoint", f"a collector is as in http://127.0.0.1:4318/v1/traces, not {self.endpoint!r}"
            )
        if "" in self.queues:
            raise OptionError("queues", "queues has patterns of namespace/queue, as in default/*; an empty one is none")


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        plain = parts.port != 0 and parts.username is None and text.isascii() and text.isprintable()
    except ValueError:  # the port is no number
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain and " " not in text


class AccessRule(OptionTable, frozen=True, kw_only=True):
    """Who may do what, where. A peer must match everything that is given of the four that say who."""

    #: The identity of whoever matches, to which the names of its readers and writers belong. Empty: that of the token,
    #: the subject or the network. Rules with the same name are of one identity.
    name: Annotated[str, Meta(max_length=100)] = ""
    #: The certificate's subject (see endpoint/certificate_subjects.py), or a pattern of it (* and ?).
    subject: str = ""
    #: The user at the other end of a Unix-domain socket, by name or number.
    user: str = ""
    #: The network that the peer's address is in, as in 10.0.0.0/8.
    network: str = ""
    #: SHA-256 of the token that the peer shows, in hex. Over Flight only: the other protocols can't show one.
    token_sha256: str = ""
    may: list[Right]
    #: Patterns of namespace/queue (* and ?). A namespace alone is all its queues.
    where: list[str] = field(default_factory=lambda: ["*"])
    #: Queues that all who match may make together; without it the limit is that of their addresses.
    queues: NotNegative | None = None

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_network(self.network or "::/0")
        except ValueError:
            raise OptionError("network", f"a network is as in 10.0.0.0/8 or fd00::/8, not {self.network!r}") from None
        if not self.name.isprintable():
            raise OptionError("name", "the name of an identity can be printed")
        if self.token_sha256 and not re.fullmatch("[0-9a-fA-F]{64}", self.token_sha256):
            raise OptionError("token_sha256", "a token's SHA-256 is 64 hex digits; `penstock config token` makes both")
        if any(len(pattern) > MOST_CHARACTERS for pattern in self.where):
            raise OptionError("where", f"a pattern has at most {MOST_CHARACTERS} characters, as two names have")
        if "" in self.where:
            raise OptionError("where", "where has patterns of namespace/queue, as in default/*; an empty one is none")


class _Storage(OptionTable, frozen=True, kw_only=True):
    """Where messages are kept."""

    data: str = "./penstock-data"
    #: Keep everything in memory, and nothing after the end.
    ephemeral: bool = False


def _listener_fields() -> list[tuple[str, Any, Any]]:
    """A list of listeners for each protocol, named for it; one at the protocol's port unless told otherwise."""
    fields = []
    for protocol in protocols().values():
        kind = protocol.part("listener")
        if not (isinstance(kind, type) and issubclass(kind, Listener)):
            raise ProtocolError(
                f"{protocol.title}: its listener, {protocol.listener!r}, is no type of listener options"
            )
        default = field(default_factory=partial(_one_listener, kind, protocol.default_address))
        fields.append((protocol.name, list[kind], default))  # type: ignore[valid-type]
    return fields


def _one_listener(kind: type[Listener], address: str) -> list[Listener]:
    return [kind(address=address)]


_Listening: Any = defstruct(
    "_Listening", _listener_fields(), bases=(_Storage,), frozen=True, kw_only=True, forbid_unknown_fields=True
)


class BrokerOptions(_Listening, frozen=True, kw_only=True):  # type: ignore[misc,call-arg]  # its fields are those of the table
    """Everything ``penstock serve`` can be told. Each protocol has a field of its name: a list of its listeners."""

    #: None is off.
    flight: FlightListener | None = DEFAULT_FLIGHT
    http: HttpListener | None = DEFAULT_HTTP
    #: The first admin token is written here, for its user alone. Empty: it is printed on a terminal; where none watches
    #: it is in ``admin-token`` in the data folder.
    admin_token_file: str = ""
    #: Listen to other machines without TLS.
    insecure_bind: bool = False
    #: Written when everything accepts, or the broker stands by; replaced when that changes, removed at the end.
    ready_file: str = ""
    #: How long a stop may take before it is cut short.
    drain_seconds: Seconds = 10.0
    journal: JournalOptions = JournalOptions()
    limits: Limits = Limits()
    log: LogOptions = LogOptions()
    traces: TraceOptions = TraceOptions()
    #: Without rules everybody may do everything; with rules, only what one of them says.
    access: list[AccessRule] = field(default_factory=list)
    #: Queues that exist from the start, by namespace/name. Their rules are applied at every start.
    queues: dict[str, QueueRules] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for protocol in protocols():
            for index, listener in enumerate(self.listeners(protocol)):
                self._check_reach((protocol, index, "address"), listener)
        if self.flight is not None:
            self._check_reach(("flight", "address"), self.flight)
        if self.http is not None:
            self._check_reach(("http", "address"), self.http)
        elif self.traces.endpoint:
            raise OptionError(("traces", "endpoint"), "traces are made by the HTTP process, and http is off")
        if self.journal.url and self.ephemeral:
            raise OptionError(("journal", "url"), "an ephemeral broker keeps its journal in memory, and in no database")
        for name in self.queues:
            namespace, slash, queue = name.partition("/")
            if not (namespace and slash and queue):
                raise OptionError(
                    ("queues", name), f"queues are named namespace/name, as in default/jobs, not {name!r}"
                )

    def listeners(self, protocol: str) -> list[Listener]:
        """The listeners of the protocol of this name."""
        found: list[Listener] = getattr(self, protocol)
        return found

    def _check_reach(self, path: tuple[str | int, ...], listener: ListenOptions) -> None:
        address = ListenAddress.parse(listener.address)
        if not (address.is_local or listener.tls_certificate or self.insecure_bind):
            raise OptionError(
                path,
                f"{address} can be reached from other machines and has no TLS: give it a tls_certificate, "
                f"or allow it with --insecure-bind (insecure_bind = true)",
            )


#: Flags of ``penstock serve`` that name no option.
_FLAGS = ("config", "durability", "otlp")
if taken := protocols().keys() & {*BrokerOptions.__annotations__, *_Storage.__struct_fields__, *_FLAGS}:
    raise ProtocolError(f"a protocol can't be named {sorted(taken)[0]!r}: that is another option of the broker")
