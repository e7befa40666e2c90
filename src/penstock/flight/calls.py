"""What a Flight client may ask for. Commands, tickets and actions are these values as JSON.

    do_get(ticket)         Read                 a range of positions of a view, as record batches
    do_put(descriptor)     Write                a record batch becomes one atomic, confirmed, de-duplicated publish
    list_flights           Pick                 a FlightInfo for each queue
    get_flight_info        Read                 a FlightInfo with a ticket for each part of the range
    do_action              the rest, by the name of its tag; each is answered by one JSON value

Positions count from 1, ends are excluded, times are microseconds since 1970. Every read names the journal that its
positions belong to (``identity``, 16 hex digits); empty is whichever is there.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.journal.contract import SharedExtent

View = Literal["messages", "events", "live", "leased"]

#: Codes of errors, in the JSON of a Flight error's ``extra_info``: see ``Problem``.
Code = Literal[
    "bad-request",  # it can't be understood, or contradicts itself
    "denied",  # the access rules say no, the token is wrong, or a name belongs to somebody else
    "no-queue",  # there is no such queue
    "data-loss",  # positions of the range are gone: `lost` says which
    "replaced",  # it is another journal now
    "differs",  # what is repeated is not what was written before
    "refused",  # the broker did not take the messages: the queue or the disk is full
    "taken-over",  # another query leases under the same reader name
    "away",  # the broker does not answer; try again
    "internal",  # a fault of ours
]


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was wrong."""

    code: Code
    text: str
    lost: tuple[int, int] | None = None


class Pick(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which queues: one, those that a pattern fits (``*`` and ``?``, in namespace/queue), or with neither, all."""

    queue: str = ""
    pattern: str = ""


class Read(Pick, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A range of a view. ``live`` has no range. ``leased`` is what a reader has leased at positions of the range."""

    view: View = "messages"
    #: 0 is the earliest position there is.
    start: int = 0
    #: 0 is the position after the last committed event.
    stop: int = 0
    #: All, if empty.
    columns: list[str] = []
    identity: str = ""
    #: Pass over what is lost, instead of failing.
    accept_loss: bool = False
    #: For ``leased``: whose leases, and which of the rows, counted over the leases of the range in order.
    reader: str = ""
    first_row: int = 0
    rows: int = 0
    #: How many rows there were when they were divided: with fewer, the numbers would mean other rows. 0: whatever.
    total: int = 0
    #: For ``get_flight_info``: into how many parts at least.
    partitions: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """Action: which journal, from where to where. Answered by ``Range``."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """What can be read now."""

    identity: str
    earliest: int
    latest: int
    version: str


class Queues(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="queues"):
    """Action: the queues that exist now. Answered by a list of names, as namespace/queue."""

    #: Those that the caller may do this with.
    right: Literal["read", "consume", "publish"] = "read"


class Locate(msgspec.Struct, frozen=True, kw_only=True, tag="locate"):
    """Action: the position of the first event at or after a time. Answered by a number."""

    at: int


class Advance(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="advance"):
    """Action: how far a reader may go from ``start`` without more rows, or payload bytes, than these (0 = no limit).

    At least one row, if there is one. Answered by ``Advanced``.
    """

    view: View = "messages"
    start: int
    #: 0 is the position after the last committed event.
    stop: int = 0
    max_rows: int = 0
    max_bytes: int = 0
    identity: str = ""
    accept_loss: bool = False


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the range (excluded), and what is in it, as far as it had to be counted."""

    stop: int
    rows: int
    bytes: int


class Plan(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="plan"):
    """Action: cut a range into parts of about equal size for parallel reading. Answered by ``Planned``."""

    view: View = "messages"
    start: int = 0
    stop: int = 0
    #: At least so many, or a multiple of that, if there are as many rows.
    partitions: int = 1
    #: Bytes on disk that a part should have at most.
    part_bytes: int = 64 * 2**20
    identity: str = ""
    accept_loss: bool = False


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Positions that can't be read any more, and why."""

    first: int
    stop: int
    text: str


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges to read, in order; without the lost positions, which are told."""

    identity: str
    ranges: list[tuple[int, int]]
    losses: list[Lost] = []


class Share(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="share"):
    """Action: where a process on the endpoint's own machine finds the files of a range. Answered by ``Shared``.

    For ``messages`` and ``events``. Rights and the range are looked at as for ``Read``; which files a process may open
    is up to the system.
    """

    view: View = "messages"
    start: int = 0
    stop: int = 0
    identity: str = ""
    accept_loss: bool = False
    #: Which machine the caller is on: see ``machine``.
    machine: str


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, in order. Nothing, where it is not ``here``, or better read through the endpoint."""

    here: bool
    identity: str = ""
    #: All queues are meant, and what belongs to none.
    everything: bool = False
    extents: list[SharedExtent] = []


class Progress(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """Action: a reader tells how far it is, so that operators see it. Answered by ``Lag``."""

    #: Empty: it has no name, and only wants to know.
    reader: str = ""
    view: View = "messages"
    position: int
    identity: str = ""
    #: Retention should keep what this reader has not read yet, as far as the broker's limits for that allow.
    pin: bool = False


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reader is behind: rows, and the age of the oldest of them. For ``leased``, rows that wait for it."""

    rows: int
    seconds: float
    #: The journal was put back behind the position: events from here on, up to it, are lost. 0: none are.
    lost_from: int = 0


class Readers(msgspec.Struct, frozen=True, kw_only=True, tag="readers"):
    """Action: who reads, how far, how far behind. Answered by a list of ``endpoint.readers.ReaderRow``."""


class Writers(msgspec.Struct, frozen=True, kw_only=True, tag="writers"):
    """Action: which writers are remembered, and whose they are. Answered by a list of ``requests.Writer``."""


class ForgetReader(msgspec.Struct, frozen=True, kw_only=True, tag="forget-reader"):
    """Action: drop a reader, its pin, and give back what it has leased. Answered by whether there was one."""

    reader: str


class TakeLease(Pick, frozen=True, kw_only=True, omit_defaults=True, tag="lease"):
    """Action: take messages for a reader. See ``requests.TakeLease``. Answered by ``requests.Leased``."""

    reader: str
    instance: str
    start: int
    max_rows: int = 0
    max_bytes: int = 0
    timeout: int = 24 * 3600 * 1_000_000
    #: False: only settle what was leased before ``start``, and tell what is outstanding.
    take: bool = True
    identity: str = ""


class Write(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Descriptor of ``do_put``: who writes, and what repetition means.

    Columns of the batches: ``payload`` (binary or string) and, if wanted, ``queue`` (namespace/queue), ``ttl`` and
    ``delay`` (durations, or seconds as numbers), ``priority``, ``correlation_id``. Each record batch is one chunk, and
    chunks are numbered from ``chunk`` on. ``Written`` is sent back for each as metadata, once it is durable.
    """

    #: For rows that have no queue of their own.
    queue: str = ""
    writer: str
    epoch: int = 0
    partition: int = 0
    chunk: int = 0
    #: A number of the writer's choice for the rows of the partition up to the end of this chunk, so that a repetition
    #: with other rows is refused instead of counted as done. 0: none. With one, a call has one batch.
    digest: int = 0
    create_queues: bool = False
    #: The writer must be known: one that has ended takes nothing more of those who have not heard of it.
    begun: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk is durable: now, or since an earlier attempt (``duplicate``)."""

    chunk: int
    rows: int
    duplicate: bool = False


class CheckWritten(msgspec.Struct, frozen=True, kw_only=True, tag="check-written"):
    """Action: is this, and nothing else, what was written in an epoch? Answered by true, or the problem ``differs``."""

    writer: str
    epoch: int = 0
    #: Of each partition: its number, how many chunks it has, and the digest of the last (0: none).
    parts: list[tuple[int, int, int]]


class EndWriter(msgspec.Struct, frozen=True, kw_only=True, tag="end-writer"):
    """Action: nothing of this writer will be repeated, so it can be forgotten. Answered by whether it was known."""

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
