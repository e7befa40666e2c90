"""Everything that a peer can make the broker keep, and what bounds it: the list behind docs/limits.md.

Every attribute of the broker's process that can grow is named here once, or it is among those that peers can't make
grow. A test finds such attributes in the code and fails if one is missing here.
"""

from __future__ import annotations

from typing import NamedTuple


class Growth(NamedTuple):
    """State that peers can make the broker keep: the attributes that hold it, and its bound."""

    what: str
    cost: str
    bound: str
    #: Attributes, as module:Class.attribute.
    places: tuple[str, ...]


GROWTH = (
    Growth(
        "connections",
        "about 10 kB each, with session and identity",
        "`connections`, `connections_per_address`; unfinished TLS handshakes and PROXY headers count",
        (
            "server/network/runtime:Runtime.sessions",
            "server/network/rounds:Rounds.stalled",
            "server/network/turns:OutputQueue.awaiting",
            "server/network/turns:OutputQueue._unanswered",
            "server/network/turns:OutputQueue._sending",
            "server/network/turns:Turns._waiting",
            "server/network/peers:Peers.by_origin",
            "server/network/acceptor:Acceptor._arriving",
            "server/network/acceptor:Acceptor._unready",
            "server/network/memory:Memory.holders",
            "server/network/memory:Memory.line",
            "core/state:BrokerState.connections",
            "server/network/access:Rights._rules",
        ),
    ),
    Growth(
        "denials and rights remembered for a connection",
        "some 100 bytes each",
        "100 denials, 1,000 rights",
        ("server/network/access:Rights._denied", "server/network/access:Rights._known"),
    ),
    Growth(
        "unfinished messages, and input waiting for its turn",
        "up to twice their bytes, and 256 for each request",
        "half of `memory_bytes`: above it the peers that have taken longest are closed",
        (
            "wire/stream:StreamDecoder._held",
            "server/network/inbox:Inbox.frames",
            "server/network/inbox:Inbox.unread",
        ),
    ),
    Growth(
        "unanswered requests",
        "about 1 kB each, without the payload, which stays in the journal",
        "`pipelined_requests`; with many connections fewer, so that all together stay below half of `memory_bytes`, "
        "but never less than 10",
        (
            "server/protocols/kokaq/pending:PendingAnswers._waiting",
            "server/protocols/kokaq/message_requests:MessageRequests._search",
        ),
    ),
    Growth(
        "prepared output that was not read",
        "its bytes",
        "a quarter of `memory_bytes` in all, `output_bytes` for one connection, but always one message; 4 kB are given "
        "in any case",
        ("server/network/outbox:Outbox._parts", "server/network/memory:Account._unsent"),
    ),
    Growth(
        "received data that is not on disk",
        "its bytes, and 96 for each message or event",
        "a quarter of `memory_bytes`: above it reading from all peers stops",
        (
            "core/events:EventBatch.kinds",
            "core/events:EventBatch.at",
            "core/events:EventBatch.queues",
            "core/events:EventBatch.source",
            "core/events:EventBatch.sources",
            "core/events:EventBatch.columns",
            "core/events:EventBatch._singles",
            "core/events:EventBatch._ends",
            "core/events:EventBatch._payloads",
            "core/events:EventBatch._source_index",
            "core/events:EventLog._closed",
            "server/engine/commits:GroupCommit._handed",
            "server/engine/engine:Engine._in_flight",
            "server/engine/engine:Engine._moving",
        ),
    ),
    Growth(
        "messages in flight, and deliveries that wait to be sent",
        "about 360 bytes each, 530 with a lock; the payload stays in the journal",
        "`messages_out_total`, `messages_out`, `window`; leased ones 1,000,000; all count in `state_bytes`",
        (
            "core/queue:Connection.out",
            "core/queue:Queue.out",
            "core/state:BrokerState.lock_ends",
            "core/state:BrokerState.departed",
            "core/state:BrokerState.effects",
            "server/network/outbox:Outbox.deliveries",
            "server/engine/engine:Engine._waiting",
            "server/engine/engine:Engine._released",
        ),
    ),
    Growth(
        "waiting consumers",
        "about 300 bytes each",
        "one for each queue and connection, two with dead letters; an SSPQ connection has one, one that polls 100",
        (
            "core/queue:Connection.subscriptions",
            "core/queue:Connection.given",
            "core/queue:Queue.waiting",
            "core/queue:Queue.waiting_dead",
            "core/state:BrokerState.throttled",
            "server/network/pollers:Pollers._by_connection",
            "server/network/pollers:Pollers._by_queue",
        ),
    ),
    Growth(
        "waiting, delayed and dead messages",
        "6 bytes or less each, and next to nothing in runs of equal ones; 12 to 20 while they are worked on; a time to "
        "live costs 12 more; delayed and dead ones, and those beyond a queue's 32nd priority, 20 more",
        "`state_bytes`, and a queue's `max_depth` and `max_bytes`",
        (
            "core/structures/lane:Lane._chunks",
            "core/structures/packed_column:PackedColumn.distances",
            "core/state:BrokerState.deadlines",
            "core/state:BrokerState.undispatched",
            "core/state:BrokerState.overfull",
        ),
    ),
    Growth(
        "different priorities of a queue's messages",
        "about 700 bytes each, 1.4 kB with a time to live",
        "`state_bytes`",
        (
            "core/ready:ReadyMessages.lanes",
            "core/ready:ReadyMessages._plain",
            "core/ready:ReadyMessages.priorities",
            "core/structures/heads:Heads._ranks",
            "core/structures/heads:Heads._order",
            "core/structures/ordered:Ordered._chunks",
        ),
    ),
    Growth(
        "notes on single messages: deliveries that failed, retries, places they were moved to",
        "up to 200 bytes each",
        "`state_bytes`",
        (
            "core/queue:Queue.deliveries",
            "core/queue:Queue.published_retries",
            "core/queue:Queue.moved",
            "core/queue:Queue.damaged",
            "core/state:BrokerState.moved_to",
            "server/engine/engine:Engine.moved",
        ),
    ),
    Growth(
        "request IDs",
        "about 200 bytes each, 60 more with an ID asked for, for a queue's `deduplication_seconds`",
        "`state_bytes`",
        (
            "core/structures/request_ids:RequestIds._ends",
            "core/structures/request_ids:RequestIds._known",
            "core/state:BrokerState.request_ends",
        ),
    ),
    Growth(
        "message IDs chosen by publishers",
        "about 200 bytes each, while the message is live",
        "`state_bytes`",
        ("core/queue:Queue.asked", "core/state:BrokerState.asked"),
    ),
    Growth(
        "queues and namespaces",
        "about 3 kB each, until they are deleted",
        "`queues`, `queues_per_address`, a rule's `queues`, `namespaces`",
        (
            "core/state:BrokerState.namespaces",
            "core/state:BrokerState.queues",
            "server/network/creation:Creation._makers",
            "server/network/creation:Creation._counts",
        ),
    ),
    Growth(
        "leases",
        "some 100 bytes each beside their messages",
        "10,000, with 1,000,000 messages",
        ("core/state:BrokerState.leases", "core/state:BrokerState.lease_ends", "core/leases:LeaseEntry.runs"),
    ),
    Growth(
        "writers",
        "about 400 bytes each, 200 for a partition",
        "10,000, with 1,000,000 partitions; they count in `state_bytes`",
        (
            "core/state:BrokerState.writers",
            "core/state:BrokerState.shares",
            "core/writers:WriterEntry.chunks",
            "core/writers:WriterEntry.digests",
        ),
    ),
    Growth(
        "readers",
        "some 300 bytes each",
        "1,000",
        ("server/registry/readers:ReaderTable._entries", "server/registry/readers:Entry.former"),
    ),
    Growth(
        "requests of the Flight endpoint and the HTTP process",
        "their bytes, a chunk of a writer at most",
        "64 connections with one request each, of 64 MiB at most",
        (
            "server/companions/private_socket:PrivateSocket._busy",
            "server/engine/commits:CommitPacing.waiting",
        ),
    ),
    Growth(
        "the newest messages, so that delivering them does not read the disk",
        "their bytes, 96 for each, and 1.5 kB for each large commit or some dozens of small ones",
        "64 MiB; 4 MiB until older ones are requested",
        (
            "server/engine/cache:RecentMessages._batches",
            "server/engine/cache:RecentMessages._firsts",
            "server/engine/cache:RecentMessages._delivered",
            "server/engine/cache:RecentMessages._missed",
            "server/engine/kept_batches:GatheredBatches._at",
            "server/engine/kept_batches:GatheredBatches._columns",
            "server/engine/kept_batches:GatheredBatches._kinds",
            "server/engine/kept_batches:GatheredBatches._payloads",
            "server/engine/kept_batches:GatheredBatches._positions",
            "server/engine/kept_batches:GatheredBatches._queues",
            "server/engine/kept_batches:GatheredBatches._sources",
            "server/engine/kept_batches:WholeBatch._rows",
        ),
    ),
    Growth(
        "blocks that were read from the journal",
        "their bytes",
        "16 MiB, or one stretch; none after two seconds without a request for one",
        ("journal/files/segment_reader:Locator._stretches",),
    ),
    Growth(
        "messages of a backlog that are read for consumers",
        "their bytes, about 256 more for each, until they are sent; they count as output",
        "16 readings at a time, of 256 KiB or one message each, in `memory_bytes`",
        (
            "server/engine/read_thread:Reading.errors",
            "server/engine/read_thread:Reading.left",
            "server/engine/read_thread:Reading.rows",
            "server/network/cold_reads:ColdReads._checks",
            "server/engine/backlog:Backlog._errors",
            "server/engine/backlog:Backlog._line",
            "server/engine/backlog:Backlog._pins",
            "server/engine/read_thread:ReadThread._queue",
            "server/engine/backlog:Backlog._rows",
            "server/engine/backlog:Backlog._under_way",
        ),
    ),
    Growth(
        "with a journal in PostgreSQL: blocks that were read from it or written to it",
        "their bytes",
        "32 MiB, or one block",
        (
            "journal/postgresql/readahead:BlockCache._entries",
            "journal/postgresql/readahead:BlockCache._firsts",
            "journal/postgresql/readahead:BlockCache._parsed",
        ),
    ),
    Growth(
        "the journal's segments and their indexes",
        "16 bytes for each entry, one for about every 64 kB",
        "the size of the journal",
        (
            "journal/segmented_log:SegmentedLog._segments",
            "journal/files/log:FileLog._segments",
            "journal/postgresql/log:DatabaseLog._segments",
            "journal/postgresql/standby:DatabaseStandby._listed",
            "journal/files/segment_reader:Locator._indexes",
            "journal/format/segment:SparseIndex.positions",
            "journal/format/segment:SparseIndex.offsets",
        ),
    ),
    Growth(
        "with `ephemeral`: the journal, which is history for readers and the messages in the queues",
        "its bytes",
        "`state_bytes`; history is 64 MiB of it at most, and an eighth",
        ("journal/memory:MemoryDisk._files",),
    ),
)

#: Attributes that grow with the configuration, the code, or one call, independently of peers.
NOT_BY_PEERS = {
    "server/companions/shared_requests:SharedRequests.handlers": "one for each type of request",
    "server/flight/lease_requests:LeaseRequests.handlers": "as above",
    "server/flight/write_requests:WriteRequests.handlers": "as above",
    "server/admin/broker_requests:AdminRequests.handlers": "as above",
    "server/admin/message_requests:MessageRequests.handlers": "as above",
    "server/admin/peer_requests:PeerRequests.handlers": "as above",
    "server/admin/queue_requests:QueueRequests.handlers": "as above",
    "server/network/acceptor:Acceptor._pauses": "one for each listening socket",
    "server/maintenance/schedule:Maintenance._tasks": "one for each kind of upkeep",
    "server/engine/commits:GroupCommit._jobs": "upkeep's jobs, one at a time",
    "server/logs:Logger._periods": "one for each event name in the code",
    "server/network/runtime:Runtime.counters": "one for each counter in the code",
    "server/network/runtime:Runtime.connected": "one for each protocol",
    "server/network/runtime:Runtime.protocol_errors": "one for each protocol and error in the code",
    "server/network/peers:Peers.token_rules": "a function",
    "server/process/companions:Companions.running": "one for each companion process",
    "server/admin/broker_requests:AdminRequests._listeners": "one for each listener",
    "server/admin/queue_requests:QueueRequests._numbers": "the numbers of the queues, while a request lists them",
    "server/admin/tokens:TokenStore._tokens": "made by admins, 1,000 at most",
    "core/structures/indexed_lanes:DeadLane.reasons": "one for each reason",
    "server/process/serving:Serving._listeners": "one for each listener",
    "server/engine/followed_state:FollowedState._gathered": "on a standby: the events of about one second",
    "server/engine/backlog:Backlog._taken": "messages of the 64 blocks that one turn may read from memory",
    "server/engine/backlog:Backlog._tried": "places that were looked up within one turn",
    "server/maintenance/compaction:Piece.positions": "the messages of one piece of upkeep",
    "server/maintenance/compaction:Piece.queues": "as above",
    "server/maintenance/compaction:ReadPiece.damaged": "as above",
    "server/maintenance/compaction:ReadPiece.messages": "as above",
    "server/maintenance/compaction:ReadPiece.numbers": "as above",
    "server/maintenance/compaction:ReadPiece.places": "as above",
    "server/maintenance/compaction:ReadPiece.queues": "as above",
    "journal/postgresql/settings:Found.differing": "one for each setting in the code",
    "journal/postgresql/settings:SessionSettings._settings": "as above",
    "server/maintenance/compaction:Compaction._damaged": "damage on the disk",
    "server/protocols/kokaq/message_answer:MessageAnswer._messages": "one a request; counted when read early",
    "server/protocols/kokaq/message_answer:MessageAnswer.positions": "one for each of its requests",
    "journal/files/checkpoints:CheckpointReader.report": "the findings of a start",
    "journal/segmented_log:SegmentedLog._kept": "segments kept because of damage",
    "journal/files/log:FileLog._kept": "as above",
    "journal/postgresql/log:DatabaseLog._kept": "as above",
    "journal/contract/owner:CheckpointStore.report": "the findings of a start",
    "journal/files/journal:OwnedFiles.report": "the findings of a start",
    "journal/files/journal:OwnedFiles.warnings": "the findings of a start",
    "journal/postgresql/checkpoints:DatabaseCheckpointReader.report": "the findings of a start",
    "journal/postgresql/connection:Connection._texts": "one for each statement in the code",
    "journal/postgresql/server_session:ServerSession._warnings": "a server's notices with one answer",
}

#: Modules whose objects live for one call, or in another process: a client, a reader or a tool.
PASSING = frozenset(
    {
        "core/recovery/event_columns",
        "core/recovery/meta",
        "core/recovery/rows",
        "core/commands/write",
        "core/catalogue",
        "journal/backup",
        "server/options/configuration",
        "server/options/environment",
        "server/process/opening",
        "server/options/listener_options",
        "server/options/broker_options",
        "wire/kokaq/decode",
        "wire/kokaq/located",
        "wire/kokaq/pieces",
        "wire/located",
        "wire/phpmq/forms",
        "journal/format/block:OneEvent",
        "journal/format/catalogue",
        "journal/contract/readers:SharedExtent",
        "journal/files/follower",
        "journal/files/transfer",
        "journal/postgresql/backup",
        "journal/postgresql/copies",
        "journal/postgresql/follower",
        "journal/postgresql/prepared",
        "journal/postgresql/transfer",
        "journal/transfer",
        "journal/files/mapped_segment",
        "journal/views/arrow",
        "journal/views/merge",
        "journal/views/placed",
        "journal/files/recovery",
        "journal/memory:SharedMemory",
        "journal/repair/plan",
        "journal/views/selection",
        "journal/repair/survey",
    }
)


def as_table() -> str:
    """The list, as docs/limits.md shows it."""
    lines = ["| what | cost | bound |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {each.what} | {each.cost} | {each.bound} |" for each in GROWTH)])
