"""The workloads: groups of rows. Each row is a run of the generator against a server started for the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Flags = Mapping[str, object]

#: Contestants that confirm publishing; all; those measured with a thousand queues.
REDIS = ("redis-list", "redis-stream")
OTHERS = ("rabbitmq-quorum", "rabbitmq-classic", "nats-newest", "nats-debian", "beanstalkd")
#: These sync for every single message: thousands in flight would only take longer.
SYNC_EACH = ("nats-newest", "beanstalkd")
CONFIRMING = ("kokaq", *REDIS, *OTHERS)
ALL = ("phpmq", "kokaq", "kokaq-pop", *REDIS, *OTHERS)
CROWDS = ("phpmq", "kokaq", *REDIS)
#: The size of the larger messages.
KILOBYTE = 1024


@dataclass(frozen=True)
class Row:
    """One workload. ``flags`` are the generator's, for each contestant that takes part."""

    key: str
    title: str
    flags: Mapping[str, Flags]
    #: The figure to compare: ``rate`` (messages a second, more is better) or ``p50_us`` (less is).
    figure: str = "rate"
    #: Ratios are to the best of these.
    base: tuple[str, ...] = ("redis-list", "redis-stream", "redis-list-everysec", "redis-stream-everysec")
    #: The factor of its duration: many connections take a while to start.
    times: float = 1.0


@dataclass(frozen=True)
class Group:
    """Rows that one run of a server handles one after the other."""

    key: str
    title: str
    rows: tuple[Row, ...]
    note: str = ""
    #: Its short title, in tables with rows of several groups.
    short: str = ""
    contestants: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = dict.fromkeys(key for row in self.rows for key in row.flags)
        object.__setattr__(self, "contestants", tuple(found))


def _row(key: str, title: str, who: tuple[str, ...], figure: str = "rate", **flags: object) -> Row:
    return Row(key, title, dict.fromkeys(who, flags), figure)


def _flow(key: str, title: str, who: tuple[str, ...], **flags: object) -> Row:
    """From a producer through the broker to a consumer that acknowledges."""
    return Row(key, title, dict.fromkeys(who, {"producers": 1, "consumers": 1} | flags))


def _beside_echo(key: str, title: str, who: str, connections: int, window: int) -> Row:
    """A broker with this many producers and consumers, beside an echo with equal connections and messages in flight."""
    broker = {"producers": connections, "consumers": connections, "window": window}
    echo = {"producers": 2 * connections, "unconfirmed": window}
    half = {"producers": connections, "unconfirmed": window}
    return Row(key, title, {who: broker, "echo": echo, "echo-half": half}, base=("echo",))


PUBLISH = Group(
    "publish",
    "W1: publishing, 1,000 unconfirmed on each connection",
    (
        _row("publish-100", "100 B, 1 connection", CONFIRMING, producers=1),
        Row(
            "publish-100-8",
            "100 B, 8 connections",
            {key: {"producers": 8, "unconfirmed": 125 if key in SYNC_EACH else 1000} for key in CONFIRMING},
        ),
        _row("publish-1k", "1 KB, 1 connection", CONFIRMING, producers=1, size=KILOBYTE),
    ),
    short="W1",
)
FLOW = Group(
    "flow",
    "W2: end to end with acknowledgement, 1 producer and 1 consumer",
    (
        _flow("flow-100", "100 B", ALL),
        _flow("flow-1k", "1 KB", ALL, size=KILOBYTE),
    ),
    note="Kokaq locks and deletes each message; Pop removes it at once. At most 10,000 messages are on their way, "
    "1,000 unconfirmed, and 500 out at the consumer.",
    short="W2",
)
WINDOWS = Group(
    "windows",
    "W2 with small windows, beside a bare echo",
    (
        _beside_echo("window-1", "PHPMQ, window 1", "phpmq", 1, 1),
        _beside_echo("window-10", "PHPMQ, window 10", "phpmq", 1, 10),
        _beside_echo("sspq-1", "SSPQ, 1 + 1", "sspq", 1, 1),
        _beside_echo("sspq-25", "SSPQ, 25 + 25", "sspq", 25, 1),
    ),
    note="100 B. The echo has as many connections as producers and consumers together, and as many messages in a round "
    "trip on each; below it, with the consumers' connections alone. It does nothing with a message, and keeps none. "
    "Ratios are to the first.",
    short="W2",
)
ONE = Group(
    "one",
    "W3: one confirmed publish at a time",
    (
        _row("one-p50", "1 connection, p50", CONFIRMING, "p50_us", producers=1, unconfirmed=1),
        _row("one-50", "50 connections", CONFIRMING, producers=50, unconfirmed=1),
    ),
    short="W3",
)
_CROWD: Flags = {"producers": 1000, "consumers": 1000, "queues": 1000, "both": True, "in_flight": 20000}
_CROWD_BESIDE_IDLE: Flags = {**_CROWD, "idle": 5000}
MANY = Group(
    "many",
    "1,000 queues, each with a connection that publishes and consumes, 100 B",
    (
        Row("many", "alone", dict.fromkeys(CROWDS, _CROWD), times=2),
        Row("many-idle", "5,000 idle connections beside", dict.fromkeys(CROWDS, _CROWD_BESIDE_IDLE), times=2),
    ),
    note="At most 20,000 messages are on their way. Connections come from several addresses of 127.0.0.0/8.",
    short="1,000 queues",
)
SYSTEM = Group(
    "system",
    "Without waiting for the disk: `durability=os` against everysec",
    (
        _row("system-publish", "W1, 100 B", ("kokaq-os", "redis-list-everysec", "redis-stream-everysec"), producers=1),
        _flow("system-flow", "W2, 100 B", ("phpmq-os", "kokaq-os", "redis-list-everysec", "redis-stream-everysec")),
    ),
    short="not waiting for the disk",
)
GROUPS = (PUBLISH, FLOW, WINDOWS, ONE, MANY, SYSTEM)
