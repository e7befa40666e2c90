"""The calls of a Flight client. Commands, tickets and actions are these values as JSON.

    do_get(ticket)         Read                 a range of positions of a view, as record batches
    do_put(descriptor)     Write                a record batch becomes one atomic, confirmed, de-duplicated publish
    list_flights           Pick                 a FlightInfo for each queue
    get_flight_info        Read                 a FlightInfo with a ticket for each part of the range
    do_action              the rest, by the name of its tag; each is answered by one JSON value

Positions count from 1, ends are exclusive, times are microseconds since 1970. Every read names the journal that its
positions belong to (``identity``, 16 hex digits); empty means the current one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.journal.contract import SharedExtent

View = Literal["messages", "events", "live", "leased"]

#: Codes of errors, in the JSON of a Flight error's ``extra_info``: see ``Problem``.
Code = Literal[
    "bad-request",  # malformed or contradictory
    "denied",  # no right, a wrong token, or a name that belongs to another identity
    "no-queue",  # there is no such queue
    "data-loss",  # positions of the range are gone; `lost` has them
    "replaced",  # the journal is another one now
    "differs",  # a repetition differs from what was written before
    "refused",  # the broker refused the messages: the queue or the disk is full
    "taken-over",  # another query leases under the same reader name
    "away",  # the broker does not answer; try again
    "internal",  # a fault of the broker
]


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error of a call."""

    code: Code
    text: str
    lost: tuple[int, int] | None = None


class Pick(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A selection of queues: one, those matching a pattern (``*`` and ``?``, in namespace/queue), or all."""

    queue: str = ""
    pattern: str = ""


class Read(Pick, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A range of a view. ``live`` has no range. ``leased`` has what a reader leased at positions of the range."""

    view: View = "messages"
    #: 0: the earliest position.
    start: int = 0
    #: 0: the position after the last committed event.
    stop: int = 0
    #: Empty: all.
    columns: list[str] = []
    identity: str = ""
    #: Skip lost positions instead of failing.
    accept_loss: bool = False
    #: For ``leased``: the reader, and the slice of its rows, counted over the leases of the range in order.
    reader: str = ""
    first_row: int = 0
    rows: int = 0
    #: The number of rows when they were divided into slices: a call fails if it has changed. 0: not checked.
    total: int = 0
    #: For ``get_flight_info``: the least number of parts.
    partitions: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """Action: identity and extent of the journal. Answered by ``Range``."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The readable range."""

    identity: str
    earliest: int
    latest: int
    version: str


class Queues(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="queues"):
    """Action: the existing queues. Answered by a list of names, as namespace/queue."""

    #: Only queues on which the caller has this right.
    right: Literal["read", "consume", "publish"] = "read"


class Locate(msgspec.Struct, frozen=True, kw_only=True, tag="locate"):
    """Action: the position of the first event at or after a time. Answered by a number."""

    at: int


class Advance(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="advance"):
    """Action: how far a reader may go from ``start`` within these limits of rows and payload bytes (0: no limit).

    At least one row, if there is one. Answered by ``Advanced``.
    """

    view: View = "messages"
    start: int
    #: 0: the position after the last committed event.
    stop: int = 0
    max_rows: int = 0
    max_bytes: int = 0
    identity: str = ""
    accept_loss: bool = False


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """The exclusive end of the range, and its rows and bytes; 0 if the call had no limits that need counting."""

    stop: int
    rows: int
    bytes: int


class Plan(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="plan"):
    """Action: cut a range into parts of about equal size for parallel reading. Answered by ``Planned``."""

    view: View = "messages"
    start: int = 0
    stop: int = 0
    #: The least number of parts, if there are as many rows; the actual number is a multiple of it.
    partitions: int = 1
    #: Target size of a part in bytes on disk.
    part_bytes: int = 64 * 2**20
    identity: str = ""
    accept_loss: bool = False


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Positions that can't be read any more, and why."""

    first: int
    stop: int
    text: str


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges to read, in order. Lost positions are not in them but in ``losses``."""

    identity: str
    ranges: list[tuple[int, int]]
    losses: list[Lost] = []


class Share(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="share"):
    """Action: where a process on the endpoint's own machine finds the files of a range. Answered by ``Shared``.

    For ``messages`` and ``events``. Rights and the range are checked as for ``Read``; the operating system decides
    which files the process may open.
    """

    view: View = "messages"
    start: int = 0
    stop: int = 0
    identity: str = ""
    accept_loss: bool = False
    #: The caller's machine: see ``machine``.
    machine: str


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The files to read, in order. Empty if the caller is not on this machine or should read through the endpoint."""

    here: bool
    identity: str = ""
    #: All queues are selected, and events of no queue.
    everything: bool = False
    extents: list[SharedExtent] = []


class Progress(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """Action: a reader reports its position, so that operators see it. Answered by ``Lag``."""

    #: Empty: an unnamed reader that only wants its lag.
    reader: str = ""
    view: View = "messages"
    position: int
    identity: str = ""
    #: Ask retention to keep what this reader has not read yet, within the broker's limits.
    pin: bool = False


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """A reader's lag: rows, and the age of the oldest. For ``leased``, the rows that it could lease."""

    rows: int
    seconds: float
    #: The journal was restored to this earlier position: the reader's events from here on are lost. 0: none are.
    lost_from: int = 0


class Readers(msgspec.Struct, frozen=True, kw_only=True, tag="readers"):
    """Action: readers, their positions and their lag. Answered by a list of ``ReaderRow``."""


class Writers(msgspec.Struct, frozen=True, kw_only=True, tag="writers"):
    """Action: known writers and their owners. Answered by a list of ``requests.Writer``."""


class ForgetReader(msgspec.Struct, frozen=True, kw_only=True, tag="forget-reader"):
    """Action: drop a reader and its pin, and release its leases. Answered by whether it existed."""

    reader: str


class TakeLease(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="lease"):
    """Action: lease messages for a reader. See ``requests.TakeLease``. Answered by ``requests.Leased``."""

    reader: str
    instance: str
    start: int
    max_rows: int = 0
    max_bytes: int = 0
    timeout: int = 24 * 3600 * 1_000_000
    #: False: only settle what was leased before ``start``, and return the outstanding leases.
    take: bool = True
    identity: str = ""


class Write(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Descriptor of ``do_put``: the writer, and how repetitions are recognised.

    Columns of the batches: ``payload`` (binary or string) and, optionally, ``queue`` (namespace/queue), ``ttl`` and
    ``delay`` (durations, or seconds as numbers), ``priority``, ``correlation_id``. Each record batch is one chunk;
    chunks are numbered from ``chunk`` on. Each is answered with ``Written`` as metadata once it is durable.
    """

    #: For rows without a queue of their own.
    queue: str = ""
    writer: str
    epoch: int = 0
    partition: int = 0
    chunk: int = 0
    #: A digest, chosen by the writer, of the partition's rows up to the end of this chunk: a repetition with other rows
    #: is refused instead of accepted as a duplicate. 0: none. With a digest, a call has one batch.
    digest: int = 0
    create_queues: bool = False
    #: The writer must be known, so that a late task can't write for a writer that has ended.
    begun: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk is durable, either now or since an earlier attempt (``duplicate``)."""

    chunk: int
    rows: int
    duplicate: bool = False


class CheckWritten(msgspec.Struct, frozen=True, kw_only=True, tag="check-written"):
    """Action: check that an epoch was written exactly like this. Answered by true, or the problem ``differs``."""

    writer: str
    epoch: int = 0
    #: For each partition: its number, its number of chunks, and the digest of the last (0: none).
    parts: list[tuple[int, int, int]]


class EndWriter(msgspec.Struct, frozen=True, kw_only=True, tag="end-writer"):
    """Action: forget a writer that will repeat nothing more. Answered by whether it was known."""

    writer: str


Action = (
    Status
    | Queues
    | Locate
    | Advance
    | Plan
    | Share
    | Progress
    | Readers
    | ForgetReader
    | TakeLease
    | CheckWritten
    | EndWriter
    | Writers
)
