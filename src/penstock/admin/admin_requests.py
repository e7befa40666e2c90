"""The HTTP process's requests to the broker: see ``companions.framing``. It also sends ``readers_and_writers``.

Each request does a bounded amount of work in the broker, whatever it holds: lists come in pieces, and work on many
messages goes step by step. An answer that promises something is sent once that is durable.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.companions.framing import Change, Request
from penstock.companions.rights import Right
from penstock.core.policy import Policy

#: Queues, connections, locks or messages of one answer.
PIECE = 500
#: Messages that one step of a job takes on.
STEP = 1000

State = Literal["ready", "out", "delayed", "dead"]


class Figures(Request, frozen=True, kw_only=True, tag="figures"):
    """The broker's state. Answered by ``BrokerFigures``."""


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of values up to each bound, and above the last; not cumulative."""

    bounds: list[float]
    counts: list[int]
    sum: float


class BrokerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's own figures, which cost no pass over the queues."""

    #: The journal's identity, with which IDs of messages begin.
    identity: bytes
    started_at: int
    now: int
    trouble: str
    draining: bool
    drain_since: int
    drain_by: str
    drain_stops: bool
    congested: bool
    disk_full: bool
    memory_full: bool
    upkeep_trouble: str
    counters: dict[str, int]
    protocol_errors: dict[str, int]
    namespaces: int
    queues: int
    connections: dict[str, int]
    out: int
    leased: int
    locks: int
    held_input: int
    held_output: int
    stalled: int
    state_bytes: int
    unwritten: int
    committed: int
    readers: int
    commit_events: Histogram
    commit_seconds: Histogram
    sync_seconds: Histogram
    loop_lag: Histogram
    listeners: dict[str, list[str]]


class Namespaces(Request, frozen=True, kw_only=True, tag="namespaces"):
    """List namespaces. Answered by a list of names: there are 1,000 at most."""


class Queues(Request, frozen=True, kw_only=True, tag="queues"):
    """Figures of queues with numbers above this one. Answered by ``QueueRows``."""

    after: int = 0


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    """A queue's figures. ``oldest`` is the place of its oldest ready message; 0: there is none."""

    number: int
    namespace: str
    name: str
    ready: int
    out: int
    delayed: int
    dead: int
    damaged: int
    bytes: int
    consumers: int
    paused: bool
    oldest: int
    #: published, acknowledged, popped, dropped, purged, moved_in, moved_out, delivered, redelivered
    counters: tuple[int, int, int, int, int, int, int, int, int]
    created_at: int
    #: The place of the oldest dead letter; 0: there is none.
    oldest_dead: int
    #: Dead letters by reason.
    reasons: dict[str, int]


class QueueRows(msgspec.Struct, frozen=True, kw_only=True):
    """Some queues, by number, and whether there are more."""

    rows: list[QueueRow]
    more: bool


class DescribeQueue(Request, frozen=True, kw_only=True, tag="queue-named"):
    """One queue with its rules. Answered by ``QueueDetails``."""

    namespace: str
    name: str


class QueueDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's figures and rules."""

    row: QueueRow
    policy: Policy


class Browse(Request, frozen=True, kw_only=True, tag="browse"):
    """Messages in one state after a place, in the queue's order, without a change. Answered by ``BrowsedMessages``."""

    namespace: str
    name: str
    state: State
    #: Priority, rank and position of the last message seen; empty: from the beginning.
    after: tuple[int, ...] = ()
    limit: int = PIECE


class BrowsedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message without its payload, which is at ``place``."""

    position: int
    place: int
    size: int
    priority: int
    rank: int
    expires: int
    retries: int
    reason: int
    deliveries: int
    #: The ID that its publisher chose.
    asked: bytes = b""
    #: For a message in flight: the connection's number (-1: a lease) and name, since when, until when (0: no end).
    connection: int = 0
    holder: str = ""
    since: int = 0
    until: int = 0


class BrowsedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the messages in one state; ``after`` is for the next request, empty at the end.

    ``begin`` counts the messages in flight before the first of these; ``total`` counts all.
    """

    items: list[BrowsedMessage]
    begin: int = 0
    after: tuple[int, ...]
    total: int


class FindMessage(Request, frozen=True, kw_only=True, tag="find"):
    """Find a message by its ID. Answered by ``MessageInState``, or null if the queue does not have it."""

    namespace: str
    name: str
    id: bytes


class MessageInState(msgspec.Struct, frozen=True, kw_only=True):
    """A message and its state."""

    state: State
    item: BrowsedMessage


class FindPosition(Request, frozen=True, kw_only=True, tag="position-of"):
    """The position of an ID. Answered by a number; 0 if unknown."""

    id: bytes


class Publish(Change, frozen=True, kw_only=True, tag="publish"):
    """Publish messages, all or none. Answered by a list of IDs."""

    namespace: str
    name: str
    #: Payload, priority, time to live (-1: the queue's), delay (both microseconds), correlation ID.
    messages: list[tuple[bytes, int, int, int, bytes]]


class CreateNamespace(Change, frozen=True, kw_only=True, tag="create-namespace"):
    """Create a namespace. Answered by true if it is new."""

    namespace: str


class DeleteNamespace(Change, frozen=True, kw_only=True, tag="delete-namespace"):
    """Delete an empty namespace. Answered by true."""

    namespace: str


class CreateQueue(Change, frozen=True, kw_only=True, tag="create-queue"):
    """Create a queue, and its namespace if needed. Answered by ``QueueDetails``."""

    namespace: str
    name: str
    policy: Policy


class ConfigureQueue(Change, frozen=True, kw_only=True, tag="configure-queue"):
    """Replace a queue's rules, if they are still as expected. Answered by ``QueueDetails``."""

    namespace: str
    name: str
    policy: Policy
    expected: Policy


class DeleteQueue(Change, frozen=True, kw_only=True, tag="delete-queue"):
    """Delete an empty queue. Answered by true."""

    namespace: str
    name: str
    expected: Policy | None = None


class DeleteMessage(Change, frozen=True, kw_only=True, tag="delete-message"):
    """Delete a message that is not in flight. Answered by true."""

    namespace: str
    name: str
    id: bytes


class JobStep(Change, frozen=True, kw_only=True, tag="work"):
    """One step of a job. Answered by ``JobStepDone``."""

    kind: Literal["redrive", "move", "delete"]
    namespace: str
    name: str
    state: Literal["ready", "delayed", "dead"]
    target: tuple[str, str] | None = None
    #: The messages; None: those after a place, which were there before position ``until``.
    positions: list[int] | None = None
    after: tuple[int, ...] = ()
    until: int = 0
    limit: int = STEP


class JobStepDone(msgspec.Struct, frozen=True, kw_only=True):
    """The number of messages done. ``after`` is for the next step, empty at the end."""

    done: int
    after: tuple[int, ...] = ()


class Connections(Request, frozen=True, kw_only=True, tag="connections"):
    """Connections with numbers above this one: all, or the consumers of a queue.

    Answered by ``ConnectionRows``.
    """

    after: int = 0
    #: namespace/queue
    queue: str = ""


class ConnectionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A connection's figures."""

    id: int
    protocol: str
    peer: str
    tls: bool
    subject: str
    user: str
    since: int
    out: int
    consumers: int
    input_bytes: int
    output_bytes: int
    throttled: str
    ending: bool


class ConnectionRows(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the connections by number, the last number that was checked, and whether there are more."""

    rows: list[ConnectionRow]
    after: int
    more: bool


class DescribeConnection(Request, frozen=True, kw_only=True, tag="connection-numbered"):
    """One connection. Answered by ``ConnectionDetails``."""

    id: int


class ConnectionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A connection with its consumers: queue, window, credit, and whether of dead letters."""

    row: ConnectionRow
    consumers: list[tuple[str, int, int, bool]]


class CloseConnection(Change, frozen=True, kw_only=True, tag="close-connection"):
    """Close a connection. Answered by true."""

    id: int


class Locks(Request, frozen=True, kw_only=True, tag="locks"):
    """Locks that expire after this one. Answered by ``LockRows``."""

    after: tuple[int, int] = (0, 0)


class LockRow(msgspec.Struct, frozen=True, array_like=True):
    """A locked message and its holder."""

    until: int
    serial: int
    position: int
    id: bytes
    namespace: str
    name: str
    connection: int
    peer: str
    since: int


class LockRows(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the locks; ``after`` is for the next request, None at the end. ``now`` is the broker's clock."""

    now: int
    rows: list[LockRow]
    after: tuple[int, int] | None


class ReleaseLock(Change, frozen=True, kw_only=True, tag="release-lock"):
    """Release a locked message of a queue that fits one of the patterns. Answered by the queue's full name."""

    id: bytes
    allowed: list[str]


class Leases(Request, frozen=True, kw_only=True, tag="leases"):
    """Leases at positions above this one. Answered by a list of ``LeaseRow``, as many as asked for."""

    after: int = 0
    limit: int = PIECE


class LeaseRow(msgspec.Struct, frozen=True, array_like=True):
    """A lease."""

    position: int
    reader: str
    queue: str
    messages: int
    since: int
    until: int


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token, by its hash."""

    id: str
    name: str
    sha256: str
    may: list[Right]
    where: list[str]
    created_at: int
    created_by: str
    #: 0: never.
    expires_at: int = 0


class Tokens(Request, frozen=True, kw_only=True, tag="tokens"):
    """List tokens. Answered by a list of ``Token``: there are 1,000 at most."""


class MakeToken(Change, frozen=True, kw_only=True, tag="make-token"):
    """Keep a token's hash. Answered by ``Token``."""

    name: str
    sha256: str
    may: list[Right]
    where: list[str]
    expires_at: int = 0


class RevokeToken(Change, frozen=True, kw_only=True, tag="revoke-token"):
    """Revoke a token. Answered by its ``Token``."""

    id: str


class Drain(Change, frozen=True, kw_only=True, tag="drain"):
    """Refuse publishing, or accept it again. Answered by true."""

    active: bool
    stop_when_empty: bool = False


class Stop(Change, frozen=True, kw_only=True, tag="stop"):
    """End the broker as SIGTERM does. Answered by true first."""
