"""What the Flight endpoint asks the broker for, over a private Unix socket.

Layout of both directions, one answer for each request, in order:

    ┌───────────────┬─────────────────────────┐
    │ length  u32le │ MessagePack, that long  │
    └───────────────┴─────────────────────────┘

A request is one of ``Request``. The answer is what its description says, or a ``calls.Problem``. Arrays of numbers
travel as little-endian bytes, so that numpy reads them as they are. ``owner`` is the identity that the name of a reader
or a writer must belong to, or does from now on; empty is whoever's, for a broker without rules and for operators.
"""

from __future__ import annotations

import msgspec

from penstock.endpoint.rights import AskRights

#: A frame may be this long: the largest write, with room for the rest.
FRAME_BYTES = 80 * 2**20
#: A chunk of a writer is one block of the journal, so its payloads may have no more bytes than this ...
CHUNK_BYTES = 24 * 2**20
#: ... and it may have no more rows.
CHUNK_ROWS = 100_000


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all requests have."""


class Outs(_Request, frozen=True, kw_only=True, tag="outs"):
    """Which messages does somebody have now? Answered by ``OutNow``."""


class OutNow(msgspec.Struct, frozen=True, kw_only=True, tag="out-now"):
    """Positions of the messages that connections have (u64), at the moment when the log's next position was this.

    Those of leases are not among them: the journal tells of these.
    """

    position: int
    messages: bytes
    #: Those that are set aside because they can't be read (u64).
    damaged: bytes = b""


class TakeLease(_Request, frozen=True, kw_only=True, tag="lease"):
    """Settle what the reader leased before ``start``; then lease more, unless something after it is outstanding.

    So a reader that comes back with the same start gets the same answer. ``start`` 0 settles nothing: the reader is
    new, or has lost its memory, and begins with what is outstanding. Answered by ``Leased``, once that is durable.
    """

    reader: str
    #: Tells two queries of the same name apart: the newer one takes over, and the older is told.
    instance: str
    #: Full names; a queue that does not exist any more is passed over.
    queues: list[str]
    start: int
    max_rows: int
    max_bytes: int
    #: Microseconds after which the messages go back.
    timeout: int
    take: bool = True
    #: Patterns of the queues that the caller may consume. A reader that has leased from others is none of its business.
    may: list[str]
    owner: str = ""


class Leased(msgspec.Struct, frozen=True, kw_only=True, tag="leased"):
    """The reader's outstanding leases lie in this range; it is empty if there are none.

    Without any, ``first`` and ``stop`` are both the start that was asked for, or for start 0 the log's next position.
    """

    first: int
    stop: int
    rows: int
    bytes: int


class LeasedRows(_Request, frozen=True, kw_only=True, tag="leased-rows"):
    """Which messages are leased at positions of the range? Answered by ``LeasedMessages``."""

    reader: str
    start: int
    stop: int
    owner: str = ""


class LeasedMessages(msgspec.Struct, frozen=True, kw_only=True, tag="rows"):
    """Messages (u64), and where each one's payload lies now (u64), in the order of leases, then of the queue."""

    messages: bytes
    places: bytes
    #: The queue of each lease, and how many of the messages are of it: a re-driven one was published into another.
    queues: list[str]
    counts: list[int]


class Waiting(_Request, frozen=True, kw_only=True, tag="waiting"):
    """What could be leased from these queues now? Answered by ``Waits``."""

    #: Full names; a queue that does not exist any more is passed over.
    queues: list[str]


class Waits(msgspec.Struct, frozen=True, kw_only=True, tag="waits"):
    """How many messages are ready, and where the payload of one lies that has waited long (0: there is none)."""

    rows: int
    place: int


class Write(_Request, frozen=True, kw_only=True, tag="write"):
    """Publish a chunk, all or nothing, once. Answered by ``calls.Written``, once it is durable.

    Chunks of a partition come in order, from 0. One that was taken before is answered as done, one of an epoch before
    the newest too.
    """

    writer: str
    epoch: int
    partition: int
    chunk: int
    #: Full names, and for each row the index of its queue (u32).
    queues: list[str]
    queue: bytes
    payloads: list[bytes]
    #: Microseconds (i64); −1 is as the queue says, for ttl. Empty: for all rows.
    ttl: bytes = b""
    delay: bytes = b""
    #: u64
    priority: bytes = b""
    correlation_ids: list[bytes] = []
    #: Of the rows of the partition up to the end of this chunk; 0: none. With another one, what comes again is refused.
    digest: int = 0
    create_queues: bool = False
    #: The writer must be known.
    begun: bool = False
    #: Who writes, for the journal: as in "10.0.0.1:4711".
    peer: str = ""
    owner: str = ""


class CheckWritten(_Request, frozen=True, kw_only=True, tag="check-written"):
    """Is this what was taken of an epoch? Partition, chunks and digest of each. Answered by true."""

    writer: str
    epoch: int
    parts: list[tuple[int, int, int]]
    owner: str = ""


class EndWriter(_Request, frozen=True, kw_only=True, tag="end-writer"):
    """Forget a writer. Answered by true if it was known."""

    writer: str
    owner: str = ""


class Writers(_Request, frozen=True, kw_only=True, tag="writers"):
    """Which writers are remembered? Answered by a list of ``Writer``: the owner's, or all."""

    owner: str = ""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A writer as operators see it. ``at`` is when its last chunk was taken; 0 if nobody knows."""

    writer: str
    owner: str
    epoch: int
    partitions: int
    at: int


class Report(_Request, frozen=True, kw_only=True, tag="report"):
    """A reader is this far. Answered by true."""

    reader: str
    view: str
    #: What it reads: a queue or a pattern.
    where: str
    position: int
    lag_rows: int
    lag_seconds: float
    pin: bool = False
    peer: str = ""
    owner: str = ""
    #: See ``endpoint.readers.ReaderRow``.
    lost_from: int = 0


class Readers(_Request, frozen=True, kw_only=True, tag="readers"):
    """Who reads? Answered by a list of ``endpoint.readers.ReaderRow``."""


class ForgetReader(_Request, frozen=True, kw_only=True, tag="forget-reader"):
    """Drop a reader: its pin, and its leases, which go back. Answered by true if it was known."""

    reader: str
    owner: str = ""


Request = (
    AskRights
    | Outs
    | TakeLease
    | LeasedRows
    | Waiting
    | Write
    | CheckWritten
    | EndWriter
    | Writers
    | Report
    | Readers
    | ForgetReader
)
