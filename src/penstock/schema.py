"""The vocabulary of the journal: kinds of events, reasons, and the columns in which they are recorded.

Packages that may not import each other share this module: ``core`` makes events in these columns, ``journal`` keeps
them, ``flight`` and ``spark`` show them. Numbers here are on disk: never re-use or renumber one. docs/journal.md has
the byte layout and the recipe for changing it.

An event is a row. Its position in the log is its identity; a message is named by the position of the event that
published it. Rows come in two sorts: *message rows* carry a whole message (``PUBLISHED`` and ``CARRIED``), all others
say what happened to one message, to a queue, to a reader's lease, or to a writer. Each column belongs to all rows or to
one of the two sorts, and is stored only for those, so that an acknowledgement takes no space for a payload.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """What happened. See ``MESSAGE_KINDS``, ``STATE_KINDS`` and ``FINAL_KINDS`` for what each does to a message."""

    PUBLISHED = 1
    CARRIED = 2  # a live message copied forward, so that its old segment can go; not a new message
    RETURNED = 3  # delivered and returned, at its old place
    REQUEUED = 4  # delivered and returned, at the end of its priority
    DEAD = 5  # moved to the dead letters
    REDRIVEN = 6  # from the dead letters to the end of a queue (the event's queue)
    ACKNOWLEDGED = 7
    POPPED = 8  # taken without an acknowledgement (Kokaq Pop)
    DROPPED = 9  # removed by a rule, see the reason
    PURGED = 10  # all ready and delayed messages of a queue, except those listed in `detail`; `count` says how many
    DEAD_PURGED = 11  # all dead letters of a queue, except those listed in `detail`
    QUEUE_CREATED = 12  # `detail` has the name and the policy
    QUEUE_CONFIGURED = 13
    QUEUE_DELETED = 14
    NAMESPACE_CREATED = 15
    NAMESPACE_DELETED = 16
    STARTED = 17  # a broker opened the journal
    CATALOGUE = 18  # all namespaces, queues, policies and counters at this position: first in every segment
    LEASED = 19  # messages are leased to a reader; `detail` lists them. The position is the lease's identity
    LEASE_ENDED = 20  # the messages of a lease were settled or returned: see the reason
    WRITTEN = 21  # the messages before it in its block are a writer's chunk, which `detail` identifies
    WRITER_ENDED = 22  # a writer is forgotten
    HELD = 23  # leases and writers at this position: after a CATALOGUE, if there are any


class Reason(IntEnum):
    """Why a message was returned, is dead or was dropped."""

    NONE = 0
    REJECTED = 1  # a consumer sent it to the dead letters
    RETRIES = 2  # its retry counter ran out
    EXPIRED = 3  # its time to live ran out
    DELIVERIES = 4  # it was delivered as often as its queue allows
    OVERFLOW = 5  # its queue was full and dropped its oldest message
    LOST = 6  # the connection that had it was lost
    RELEASED = 7  # the consumer returned it
    LOCK_EXPIRED = 8  # the consumer's lock expired
    DELETED = 9  # an operator removed this one message
    DAMAGED = 10  # its payload was lost with a damaged part of the journal


#: Rows that carry a whole message.
MESSAGE_KINDS = frozenset({Kind.PUBLISHED, Kind.CARRIED})
#: Rows after which a message is alive, in the state that the row contains in full.
STATE_KINDS = frozenset({Kind.RETURNED, Kind.REQUEUED, Kind.DEAD, Kind.REDRIVEN})
#: Rows after which a message is gone.
FINAL_KINDS = frozenset({Kind.ACKNOWLEDGED, Kind.POPPED, Kind.DROPPED})
#: Rows about leases and writers. They say nothing about a message: a leased one is in the state of its own last event.
SPARK_KINDS = frozenset({Kind.LEASED, Kind.LEASE_ENDED, Kind.WRITTEN, Kind.WRITER_ENDED})

#: Retry counter of a message without a limit of deliveries.
FOREVER = 255


class Rows(Enum):
    """The rows for which a column is stored."""

    ALL = "all"
    MESSAGES = "messages"
    OTHERS = "others"


class Column(NamedTuple):
    """One column of a block. ``type`` is an ``array`` type code, or "binary" for byte strings with 32-bit offsets."""

    id: int
    name: str
    rows: Rows
    type: str
    default: int = 0


#: In the order in which a block stores them. Times are microseconds since 1970; 0: none.
COLUMNS = (
    Column(0, "kind", Rows.ALL, "B"),
    Column(1, "at", Rows.ALL, "I"),  # microseconds after the block's base time
    Column(2, "queue", Rows.ALL, "I"),
    Column(3, "source", Rows.ALL, "H"),  # index into the block's `sources`
    Column(8, "payload", Rows.MESSAGES, "binary"),
    Column(9, "expires_at", Rows.MESSAGES, "q"),
    Column(10, "priority", Rows.MESSAGES, "Q"),
    Column(11, "retries", Rows.MESSAGES, "B", FOREVER),
    Column(12, "not_before", Rows.MESSAGES, "q"),
    Column(13, "correlation_id", Rows.MESSAGES, "binary"),
    Column(14, "request_id", Rows.MESSAGES, "binary"),
    Column(15, "asked_id", Rows.MESSAGES, "binary"),
    Column(16, "original", Rows.MESSAGES, "Q"),  # CARRIED: the message's position; 0 on PUBLISHED
    Column(17, "published_at", Rows.MESSAGES, "q"),  # CARRIED: the time of publication; PUBLISHED has it in `at`
    Column(18, "carried_source", Rows.MESSAGES, "binary"),  # CARRIED: the publisher
    Column(19, "carried_rank", Rows.MESSAGES, "Q"),
    Column(20, "carried_deliveries", Rows.MESSAGES, "I"),
    Column(21, "carried_retries", Rows.MESSAGES, "B"),  # remaining retries; `retries` has the published number
    Column(
        22, "carried_expires_at", Rows.MESSAGES, "q"
    ),  # the current time of expiry; `expires_at` has the published one
    Column(23, "carried_dead", Rows.MESSAGES, "B"),  # the reason, for a dead letter; else 0
    Column(24, "with_ttl", Rows.MESSAGES, "B"),  # 1: a time to live was sent with it (PHPMQ's packet 05), even of 0
    Column(25, "source_info", Rows.MESSAGES, "binary"),  # the publisher's source info, UTF-8 (Kokaq)
    Column(32, "message", Rows.OTHERS, "Q"),
    Column(33, "deliveries", Rows.OTHERS, "I"),  # completed deliveries, this one included
    Column(34, "delivered_at", Rows.OTHERS, "q"),
    Column(35, "reason", Rows.OTHERS, "B"),
    Column(36, "retries_left", Rows.OTHERS, "B", FOREVER),
    Column(37, "new_expires_at", Rows.OTHERS, "q"),  # STATE_KINDS: the new time of expiry
    Column(38, "rank", Rows.OTHERS, "Q"),  # RETURNED: its place in the order; 0 = that of its position
    Column(39, "count", Rows.OTHERS, "Q"),  # PURGED, DEAD_PURGED, LEASED, LEASE_ENDED, WRITTEN: the number of messages
    Column(40, "detail", Rows.OTHERS, "binary"),  # JSON
    Column(41, "from_queue", Rows.OTHERS, "I"),  # REDRIVEN: the queue of the dead letter, if that is another one
)
COLUMN = {column.name: column for column in COLUMNS}
