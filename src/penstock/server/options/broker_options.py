"""All options of the broker: types, defaults and their reasons. ``penstock.example.toml`` shows them all."""

from __future__ import annotations

import ipaddress
import re
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, defstruct, field

from penstock.companions.rights import Right
from penstock.core.policy import QueueRules, Seconds
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
#: A segment begins with a list of all namespaces and queues, which must fit into one block of 64 MiB.
MOST_QUEUES = 16_000
MOST_NAMESPACES = 1_000


class FlightListener(ListenOptions, frozen=True, kw_only=True):
    """The Arrow Flight endpoint."""

    address: str = "127.0.0.1:8815"


#: The default means "if possible": without pyarrow there is no endpoint. One that is configured must start.
DEFAULT_FLIGHT = FlightListener()


class HttpListener(ListenOptions, frozen=True, kw_only=True):
    """The HTTP API, metrics and the console."""

    address: str = "127.0.0.1:9180"
    #: The URL of the console for browsers behind a reverse proxy, as in https://mq.example.com.
    public_url: str = ""
    #: More host names for requests without TLS. Addresses, localhost, this machine's name and those of ``address`` and
    #: ``public_url`` are accepted; with any other name a hostile page may have sent the browser (DNS rebinding).
    host_names: list[str] = field(default_factory=list)
    #: Addresses and networks of reverse proxies, whose X-Forwarded-For says who the client is.
    proxy_from: list[str] = field(default_factory=list)
    #: Serve metrics to all clients; otherwise they need the right to view.
    public_metrics: bool = False
    #: The folder of backups. Empty: beside the data folder, with -backups after its name; or the folder backups in the
    #: data folder if the broker may not write beside it.
    backups: str = ""
    #: The folder that pipelines write to, for their progress.
    lake: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_url and not _is_web_address(self.public_url):
            raise OptionError(
                "public_url",
                f"expected the URL that browsers use, as in https://mq.example.com, not {self.public_url!r}",
            )
        check_networks("proxy_from", self.proxy_from)


#: As for Flight: without uvicorn there is none, unless it is configured.
DEFAULT_HTTP = HttpListener()


class JournalOptions(OptionTable, frozen=True, kw_only=True):
    """Place, durability, size and history of the journal."""

    #: A database that brokers on several machines own in turn, as in postgresql://mq@db.example.com/penstock. Empty:
    #: the journal is files in the data folder.
    url: str = ""
    #: When the journal is synced: before each confirmation, every interval_ms, or when the system decides.
    durability: Literal["commit", "interval", "os"] = "commit"
    interval_ms: Positive = 50
    #: A segment is finished at this size or age. Smaller segments free space sooner, but are more files.
    segment_bytes: Positive = 128 * MEBIBYTE
    segment_seconds: Positive = 3600
    #: How long, and up to which size, settled history is kept for readers; 0 = without limit. A week is enough to
    #: notice that a pipeline has stopped, and to run it again.
    retention_seconds: NotNegative = 7 * 24 * 3600
    retention_bytes: NotNegative = 0
    #: A reader may pin history until it has read it: if its last report is not older than this (0 = pins are off), and
    #: up to this many bytes beyond the retention (0 = without limit), so that a forgotten reader can't fill the disk.
    pin_seconds: NotNegative = 7 * 24 * 3600
    pin_bytes: NotNegative = 10 * 1024 * MEBIBYTE
    #: Publishing is refused while the disk has less free space than this, or than ``admission.MESSAGE_BYTES`` for each
    #: message in the queues. Consuming continues.
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
    """Resource limits per client and per broker."""

    #: Each connection costs a few kilobytes and a file descriptor.
    connections: Positive = 10_000
    #: One client with a faulty connection pool must not lock out the others.
    connections_per_address: Positive = 1_000
    #: Large enough for documents, small enough to hold a few in memory.
    payload_bytes: Annotated[int, Meta(gt=0, le=60 * MEBIBYTE)] = 16 * MEBIBYTE
    #: The longest name of a new namespace or queue. 255 is the limit of the protocols.
    name_bytes: Annotated[int, Meta(gt=0, le=255)] = 255
    #: A message, or a TLS handshake, must be complete this long after its first byte: an unfinished one costs memory.
    #: Time while the broker does not read from the connection does not count.
    unfinished_seconds: Annotated[float, Meta(gt=0)] = 60.0
    #: Close connections that neither send nor wait for messages. 0 = never: a quiet consumer is normal.
    idle_seconds: Seconds = 0.0
    #: Larger PHPMQ windows are reduced to this.
    window: Annotated[int, Meta(gt=0, le=65_535)] = 65_535
    #: Messages in flight of one connection, over all its queues: each costs a few hundred bytes.
    messages_out: Positive = 100_000
    #: Messages in flight of all connections. Near the limit, one connection may have at most as many as are left.
    messages_out_total: Positive = 500_000
    #: Unanswered requests of one connection; more are not read until some are answered.
    pipelined_requests: Positive = 1_000
    #: Buffered output for a slow peer; above it no more deliveries are read from disk. With many peers it is less, so
    #: that all share a quarter of memory_bytes, but at least 16 KiB while there is memory.
    output_bytes: Positive = 1 * MEBIBYTE
    #: Buffers of all connections. A quarter is for data that is received but not on disk: above it reading stops.
    #: A quarter is for output: above it messages stay in the journal, and connections that take none of their
    #: output are closed. Half is for unfinished input: above it the slowest connections are closed.
    memory_bytes: Positive = 512 * MEBIBYTE
    #: The queues' state: about 20 bytes for each waiting message, 400 for one in flight, 200 for a request ID. Payloads
    #: are on disk. Above it publishing is refused; consuming continues.
    state_bytes: Positive = 2048 * MEBIBYTE
    #: A queue costs about three kilobytes of memory until it is deleted, so peers can't create them without limit.
    queues: Annotated[int, Meta(gt=0, le=MOST_QUEUES)] = 10_000
    #: Queues that the peers of one address may create, so that none uses up ``queues``. Access rules can override it.
    queues_per_address: Positive = 1_000
    namespaces: Annotated[int, Meta(gt=0, le=MOST_NAMESPACES)] = 1_000
    #: Names of one identity: writers, all partitions of its writers, and readers. Each limit is a tenth of that for all
    #: identities together: 10,000 writers with 1,000,000 partitions, and 1,000 readers.
    writers_per_identity: Positive = 1_000
    partitions_per_identity: Positive = 100_000
    readers_per_identity: Positive = 100
    #: How long a peer waits after a refused publish (full queue, full disk) over a protocol without such an answer.
    refused_seconds: Seconds = 30.0


class LogOptions(OptionTable, frozen=True, kw_only=True):
    """Level and format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    #: auto: readable on a terminal, JSON otherwise.
    format: Literal["auto", "text", "json"] = "auto"


class TraceOptions(OptionTable, frozen=True, kw_only=True):
    """Traces of messages, for an OpenTelemetry collector."""

    #: The collector's URL for OTLP over HTTP. Empty: no traces.
    endpoint: str = ""
    #: The share of messages that are traced.
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
    """Rights of peers on queues. A peer must match all of subject, user, network and token that the rule gives."""

    #: The identity of matching peers, which owns the names of their readers and writers. Empty: that of the token, the
    #: subject or the network. Rules with the same name have one identity.
    name: Annotated[str, Meta(max_length=100)] = ""
    #: The certificate's subject (see companions/certificate_subjects.py), or a pattern of it (* and ?).
    subject: str = ""
    #: The user at the other end of a Unix-domain socket, by name or number.
    user: str = ""
    #: The network of the peer's address, as in 10.0.0.0/8.
    network: str = ""
    #: SHA-256 of the peer's token, in hex. Over Flight and HTTP only: the other protocols have no tokens.
    token_sha256: str = ""
    may: list[Right]
    #: Patterns of namespace/queue (* and ?). A namespace alone is all its queues.
    where: list[str] = field(default_factory=lambda: ["*"])
    #: Queues that all matching peers may create together; without it, the limit of their addresses applies.
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
    """The place of messages."""

    data: str = "./penstock-data"
    #: Keep everything in memory only.
    ephemeral: bool = False


def _listener_fields() -> list[tuple[str, Any, Any]]:
    """A field for each protocol: a list of listeners, by default one at the protocol's port."""
    fields = []
    for protocol in protocols().values():
        kind = protocol.part("listener")
        if not (isinstance(kind, type) and issubclass(kind, Listener)):
            raise ProtocolError(
                f"{protocol.title}: its listener, {protocol.listener!r}, is not a type of listener options"
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
    """All options of ``penstock serve``. Each protocol has a field of its name: the list of its listeners."""

    #: None: off.
    flight: FlightListener | None = DEFAULT_FLIGHT
    http: HttpListener | None = DEFAULT_HTTP
    #: The file for the first admin token, readable by the broker's user alone. Empty: it is printed on the terminal, or
    #: without one written to ``admin-token`` in the data folder.
    admin_token_file: str = ""
    #: Permit listeners for other machines without TLS.
    insecure_bind: bool = False
    #: Written once all listeners accept, or the broker stands by; replaced when that changes, removed at the end.
    ready_file: str = ""
    #: The longest time for an orderly stop.
    drain_seconds: Seconds = 10.0
    journal: JournalOptions = JournalOptions()
    limits: Limits = Limits()
    log: LogOptions = LogOptions()
    traces: TraceOptions = TraceOptions()
    #: Without rules all peers have all rights; with rules, those that the rules grant.
    access: list[AccessRule] = field(default_factory=list)
    #: Queues by namespace/name. They are created, and their rules applied, at each start.
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
            raise OptionError(("traces", "endpoint"), "the HTTP process makes traces, and http is off")
        if self.journal.url and self.ephemeral:
            raise OptionError(("journal", "url"), "an ephemeral broker keeps its journal in memory, not in a database")
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
