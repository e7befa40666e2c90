"""The Flight endpoint's requests to the broker: see ``companions.framing``. It also sends ``readers_and_writers``.

``owner`` is the identity that owns, or will own, the reader or writer named; empty skips the check, for operators and
for brokers without rules.
"""

from __future__ import annotations

import msgspec

from penstock.companions.framing import Request

#: A writer's chunk is one block of the journal, so its payloads may have no more bytes ...
CHUNK_BYTES = 24 * 2**20
#: ... and no more rows than this.
CHUNK_ROWS = 100_000


class Outs(Request, frozen=True, kw_only=True, tag="outs"):
    """Which messages are out? Answered by ``OutNow``."""


class OutNow(msgspec.Struct, frozen=True, kw_only=True, tag="out-now"):
    """Positions of the messages that connections hold (u64), at the moment when the log's next position was this.

    Without those that readers lease: the journal has these.
    """

    position: int
    messages: bytes
    #: Messages that are set aside because they can't be read (u64).
    damaged: bytes = b""


class TakeLease(Request, frozen=True, kw_only=True, tag="lease"):
    """Settle what the reader leased before ``start``; then lease more, unless later leases are outstanding.

    So a reader that repeats a start gets the same answer. ``start`` 0 settles nothing: a reader that is new, or has
    lost its state, begins with its outstanding leases. Answered by ``Leased``, once that is durable.
    """

    reader: str
    #: Distinguishes two queries with the same name: the newer one takes over, and the older one gets an error.
    instance: str
    #: Full names; queues that no longer exist are skipped.
    queues: list[str]
    start: int
    max_rows: int
    max_bytes: int
    #: Microseconds after which the messages return to their queues.
    timeout: int
    take: bool = True
    #: Patterns of the queues that the caller may consume. It has no access to a reader that leases from others.
    may: list[str]
    owner: str = ""


class Leased(msgspec.Struct, frozen=True, kw_only=True, tag="leased"):
    """The range of the reader's outstanding leases.

    If there are none, ``first`` and ``stop`` are both the requested start, or for start 0 the log's next position.
    """

    first: int
    stop: int
    rows: int
    bytes: int


class LeasedRows(Request, frozen=True, kw_only=True, tag="leased-rows"):
    """Which messages are leased at positions of the range? Answered by ``LeasedMessages``."""

    reader: str
    start: int
    stop: int
    owner: str = ""


class LeasedMessages(msgspec.Struct, frozen=True, kw_only=True, tag="rows"):
    """Messages (u64) and the current place of each payload (u64), in the order of leases, then of the queue."""

    messages: bytes
    places: bytes
    #: The queue of each lease and its number of messages: a re-driven message was published to another queue.
    queues: list[str]
    counts: list[int]


class Waiting(Request, frozen=True, kw_only=True, tag="waiting"):
    """What could be leased from these queues now? Answered by ``Waits``."""

    #: Full names; queues that no longer exist are skipped.
    queues: list[str]


class Waits(msgspec.Struct, frozen=True, kw_only=True, tag="waits"):
    """The number of ready messages, and the place of one that has waited long (0: there is none)."""

    rows: int
    place: int


class Write(Request, frozen=True, kw_only=True, tag="write"):
    """Publish a chunk atomically and once. Answered by ``calls.Written``, once it is durable.

    Chunks of a partition come in order, from 0. A repeated chunk is confirmed as a duplicate, and so is any chunk of an
    epoch before the newest.
    """

    writer: str
    epoch: int
    partition: int
    chunk: int
    #: Full names, and for each row the index of its queue (u32).
    queues: list[str]
    queue: bytes
    payloads: list[bytes]
    #: Microseconds (i64); −1 for ttl means the queue's default. Empty: all rows have the default.
    ttl: bytes = b""
    delay: bytes = b""
    #: u64
    priority: bytes = b""
    correlation_ids: list[bytes] = msgspec.field(default_factory=list)
    #: Digest of the partition's rows up to the end of this chunk; 0: none. A repetition with another one is refused.
    digest: int = 0
    create_queues: bool = False
    #: The writer must be known.
    begun: bool = False
    #: The writer's address for the journal, such as "10.0.0.1:4711".
    peer: str = ""
    owner: str = ""


class CheckWritten(Request, frozen=True, kw_only=True, tag="check-written"):
    """Was an epoch written exactly like this? Partition, chunks and digest of each. Answered by true."""

    writer: str
    epoch: int
    parts: list[tuple[int, int, int]]
    owner: str = ""


class Report(Request, frozen=True, kw_only=True, tag="report"):
    """Report a reader's position. Answered by true."""

    reader: str
    view: str
    #: The queue or pattern that it reads.
    where: str
    position: int
    lag_rows: int
    lag_seconds: float
    pin: bool = False
    peer: str = ""
    owner: str = ""
    #: See ``ReaderRow``.
    lost_from: int = 0
