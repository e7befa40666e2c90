"""The broker: its state, journal, backups, draining and definitions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.admin.resources.common import Body, Change, Name, PageQuery, QueryParameters, Resource, Role
from penstock.admin.resources.queues import Rates
from penstock.core.policy import QueueRules

#: Queues in definitions: as many as a broker can have.
MOST_QUEUES = 16_000
Short = Annotated[str, Meta(max_length=1000)]
#: The form namespace/queue is checked on use, for a better error.
QueueName = Annotated[str, Meta(max_length=511)]


class Alarm(Resource, frozen=True, kw_only=True):
    """A condition that needs an operator's attention."""

    level: Literal["warning", "error"]
    code: str
    text: str


class Totals(Resource, frozen=True, kw_only=True):
    """Sums over all queues that the caller may see."""

    namespaces: int
    queues: int
    ready: int
    out: int
    delayed: int
    dead: int
    damaged: int
    bytes: int
    consumers: int
    #: When the oldest ready message was published.
    oldest: datetime | None
    rates: Rates


class Commits(Resource, frozen=True, kw_only=True):
    """Commits of the last few seconds."""

    per_second: float
    #: Mean events per commit, and mean seconds of a commit and of its sync.
    events: float
    seconds: float
    sync_seconds: float
    #: The longest delay of the event loop in seconds.
    loop_lag: float


class Disk(Resource, frozen=True, kw_only=True):
    """The disk of the journal."""

    free_bytes: int
    total_bytes: int
    #: Publishing is refused below this.
    min_free_bytes: int


class Overview(Resource, frozen=True, kw_only=True):
    """The state of the broker.

    A caller that may not view all queues sees only figures of its own queues. Then ``name``, ``listeners`` and
    ``connections_by_protocol`` are empty; ``connections``, ``readers``, ``memory_bytes`` and ``disk`` are null.
    """

    name: str
    version: str
    #: Whether its code runs ``compiled`` or ``from source``, and why not compiled.
    code: str
    started_at: datetime
    #: Whether it accepts messages; if not, the reasons.
    ready: bool
    reasons: list[str]
    #: When the broker last answered, and the seconds of its silence; 0 while it answers. All figures are of that time.
    heard_at: datetime | None = None
    silent_seconds: float = 0.0
    alarms: list[Alarm]
    totals: Totals
    connections: int | None
    connections_by_protocol: dict[str, int]
    readers: int | None
    commits: Commits
    memory_bytes: int | None
    disk: Disk | None
    #: Dead letters by reason.
    dead_by_reason: dict[str, int]
    ephemeral: bool
    #: The title of each protocol, by name.
    protocols: dict[str, str]
    listeners: dict[str, list[str]]
    draining: bool
    #: Queues with the most ready messages.
    busiest: list[str]


class Health(Resource, frozen=True, kw_only=True):
    """Health, with reasons if it is not good."""

    ok: bool
    #: ``standby``: another broker serves, and this one takes over if necessary. Not in ``/healthz``.
    role: Role | msgspec.UnsetType = msgspec.UNSET
    reasons: list[str] = msgspec.field(default_factory=list)


class Segment(Resource, frozen=True, kw_only=True):
    """A file of the journal."""

    name: str
    first: int
    end: int
    bytes: int
    created_at: datetime
    finished: bool


class JournalStatus(Resource, frozen=True, kw_only=True):
    """The state of the journal."""

    kind: Literal["files", "memory", "database"]
    identity: str
    folder: str
    durability: str
    earliest: int
    latest: int
    bytes: int
    segments: int
    #: The position and time of the newest checkpoint; null if there is none.
    checkpoint: int | None
    checkpoint_at: datetime | None
    retention_seconds: int
    retention_bytes: int
    #: Why compaction is blocked, or empty.
    trouble: str
    disk: Disk | None


class SegmentsQuery(PageQuery, frozen=True, kw_only=True):
    """Which segments; oldest first."""


class NewBackup(Body, frozen=True, kw_only=True):
    """A backup to make, in a folder of this name in the folder of backups; empty: the current time."""

    name: Annotated[str, Meta(max_length=100, pattern="^([A-Za-z0-9][A-Za-z0-9._-]*)?$")] = ""


class Backup(Resource, frozen=True, kw_only=True):
    """A complete backup. ``penstock restore`` turns it into a data folder."""

    name: str
    folder: str
    created_at: datetime
    position: int
    bytes: int


class Drain(Resource, frozen=True, kw_only=True):
    """The state of draining."""

    active: bool
    since: datetime | None
    by: str
    stop_when_empty: bool
    messages_left: int
    connections: int


class NewDrain(Body, frozen=True, kw_only=True):
    """Refuse publishing while consumers continue; optionally stop the broker when all queues are empty."""

    stop_when_empty: bool = False


class Definitions(Body, frozen=True, kw_only=True):
    """Namespaces, queues with their rules, and limits, without messages."""

    format: Literal["penstock-definitions-1"] = "penstock-definitions-1"
    namespaces: Annotated[list[Name], Meta(max_length=1_000)] = msgspec.field(default_factory=list)
    #: By namespace/queue.
    queues: Annotated[dict[QueueName, QueueRules], Meta(max_length=MOST_QUEUES)] = msgspec.field(default_factory=dict)
    #: From the configuration. An import only compares them: changes need a restart.
    limits: Annotated[dict[Short, bool | int | float | Short | None], Meta(max_length=100)] = msgspec.field(
        default_factory=dict
    )


class DefinitionsQuery(QueryParameters, frozen=True, kw_only=True):
    """The format of definitions."""

    format: Literal["json", "toml"] = "json"


class ImportQuery(QueryParameters, frozen=True, kw_only=True):
    """How to import definitions."""

    #: Only show the changes.
    dry_run: bool = False
    #: Delete empty queues and namespaces that are not in the definitions.
    remove: bool = False


class Imported(Resource, frozen=True, kw_only=True):
    """The changes, and whether they were applied."""

    applied: bool
    changes: list[Change]


class StreamQuery(QueryParameters, frozen=True, kw_only=True):
    """Which events to send, and how often."""

    #: A queue for events named ``queue``.
    queue: Annotated[str, Meta(max_length=511)] = ""
    #: Seconds between two events of a kind.
    every: Annotated[float, Meta(ge=0.5, le=60)] = 1.0


class MetricsQuery(QueryParameters, frozen=True, kw_only=True):
    """A pattern of queues. The first 1,000 by name have series."""

    queue: Annotated[str, Meta(min_length=1, max_length=511)]


class StopBroker(Body, frozen=True, kw_only=True):
    """Stop the broker as SIGTERM does. ``confirm`` is the word stop."""

    confirm: Literal["stop"]
