"""The broker as a whole: how it is, its journal, backups, draining and definitions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.admin.resources.common import Body, Change, Name, PageQuery, QueryParameters, Resource, Role
from penstock.admin.resources.queues import Rates
from penstock.core.policy import QueueRules

#: Queues that definitions may have: as many as a broker may.
MOST_QUEUES = 16_000
Short = Annotated[str, Meta(max_length=1000)]
#: Whether it is namespace/queue is checked when it is used, with a better answer.
QueueName = Annotated[str, Meta(max_length=511)]


class Alarm(Resource, frozen=True, kw_only=True):
    """Something that an operator should look at."""

    level: Literal["warning", "error"]
    code: str
    text: str


class Totals(Resource, frozen=True, kw_only=True):
    """All queues together, or those that the caller may see."""

    namespaces: int
    queues: int
    ready: int
    out: int
    delayed: int
    dead: int
    damaged: int
    bytes: int
    consumers: int
    #: When the oldest ready message of all queues was published.
    oldest: datetime | None
    rates: Rates


class Commits(Resource, frozen=True, kw_only=True):
    """How quickly things become durable, over the last few seconds."""

    per_second: float
    #: Mean events of a commit, and mean seconds of a commit and of its sync.
    events: float
    seconds: float
    sync_seconds: float
    #: Seconds for which the loop could not go on, at worst.
    loop_lag: float


class Disk(Resource, frozen=True, kw_only=True):
    """The disk that the journal is on."""

    free_bytes: int
    total_bytes: int
    #: Below this publishing is refused.
    min_free_bytes: int


class Overview(Resource, frozen=True, kw_only=True):
    """How the broker is.

    A caller that may not view all queues sees the figures of its own. Then ``name``, ``listeners`` and
    ``connections_by_protocol`` are empty; ``connections``, ``readers``, ``memory_bytes`` and ``disk`` are null.
    """

    name: str
    version: str
    #: Whether its code runs ``compiled`` or ``from source``, and why not compiled.
    code: str
    started_at: datetime
    #: Whether it takes messages; why not, if it does not.
    ready: bool
    reasons: list[str]
    #: When the broker was last heard from, and for how long it is silent; 0 while it answers. All else is from then.
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
    #: Of all dead letters.
    dead_by_reason: dict[str, int]
    ephemeral: bool
    #: The title of each protocol, by name.
    protocols: dict[str, str]
    listeners: dict[str, list[str]]
    draining: bool
    #: Queues with the most ready messages, and those with the most dead letters.
    busiest: list[str]


class Health(Resource, frozen=True, kw_only=True):
    """Whether it is well, and why not."""

    ok: bool
    #: ``standby``: another broker serves, and this one takes over if that has to be. Not in ``/healthz``.
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
    """The journal: what it has, since when, and how large it is."""

    kind: Literal["files", "memory", "database"]
    identity: str
    folder: str
    durability: str
    earliest: int
    latest: int
    bytes: int
    segments: int
    #: Of the newest checkpoint; null if there is none.
    checkpoint: int | None
    checkpoint_at: datetime | None
    retention_seconds: int
    retention_bytes: int
    #: Why it can not be kept small for now, if that is so.
    trouble: str
    disk: Disk | None


class SegmentsQuery(PageQuery, frozen=True, kw_only=True):
    """Oldest first."""


class NewBackup(Body, frozen=True, kw_only=True):
    """A copy of the journal in a folder of this name, below the folder of backups."""

    name: Annotated[str, Meta(max_length=100, pattern="^([A-Za-z0-9][A-Za-z0-9._-]*)?$")] = ""


class Backup(Resource, frozen=True, kw_only=True):
    """A copy that is complete. ``penstock restore`` makes a data folder of it."""

    name: str
    folder: str
    created_at: datetime
    position: int
    bytes: int


class Drain(Resource, frozen=True, kw_only=True):
    """Whether publishing is refused so that the queues get empty."""

    active: bool
    since: datetime | None
    by: str
    stop_when_empty: bool
    messages_left: int
    connections: int


class NewDrain(Body, frozen=True, kw_only=True):
    """Refuse publishing; consumers go on. The broker can be told to stop when nothing is left."""

    stop_when_empty: bool = False


class Definitions(Body, frozen=True, kw_only=True):
    """Namespaces, queues with their rules, and limits: what makes a broker like this one, without its messages."""

    format: Literal["penstock-definitions-1"] = "penstock-definitions-1"
    namespaces: Annotated[list[Name], Meta(max_length=1_000)] = msgspec.field(default_factory=list)
    #: By namespace/queue.
    queues: Annotated[dict[QueueName, QueueRules], Meta(max_length=MOST_QUEUES)] = msgspec.field(default_factory=dict)
    #: Of the configuration; they take effect with a restart, and are only compared.
    limits: Annotated[dict[Short, bool | int | float | Short | None], Meta(max_length=100)] = msgspec.field(
        default_factory=dict
    )


class DefinitionsQuery(QueryParameters, frozen=True, kw_only=True):
    """How they are written."""

    format: Literal["json", "toml"] = "json"


class ImportQuery(QueryParameters, frozen=True, kw_only=True):
    """What to do with definitions."""

    #: Only tell what would change.
    dry_run: bool = False
    #: Delete queues and namespaces that are not in them, if they are empty.
    remove: bool = False


class Imported(Resource, frozen=True, kw_only=True):
    """The difference, and whether it was applied."""

    applied: bool
    changes: list[Change]


class StreamQuery(QueryParameters, frozen=True, kw_only=True):
    """What is to be told, and how often."""

    #: A queue whose figures are wanted too.
    queue: Annotated[str, Meta(max_length=511)] = ""
    #: Seconds between two values.
    every: Annotated[float, Meta(ge=0.5, le=60)] = 1.0


class MetricsQuery(QueryParameters, frozen=True, kw_only=True):
    """Which queues have series of their own: the first 1,000 by name."""

    queue: Annotated[str, Meta(min_length=1, max_length=511)]


class StopBroker(Body, frozen=True, kw_only=True):
    """End the broker as SIGTERM does: what is confirmed is on disk. ``confirm`` is the word stop."""

    confirm: Literal["stop"]
