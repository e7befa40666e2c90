"""The state of a table besides its rows: namespaces, queues, request IDs, leases and writers."""

from __future__ import annotations

import msgspec
import numpy as np

from penstock.core.catalogue import HeldDetail, QueueEntry
from penstock.core.leases import LeaseEnd, LeaseEntry
from penstock.core.recovery.event_columns import Array
from penstock.core.writers import ChunkKey, WriterEntry
from penstock.schema import Kind


class Inconsistent(Exception):
    """The events contradict the state they are applied to. The journal's checksums were right, so this is a bug."""


class Meta(msgspec.Struct):
    """Changes event by event, unlike the rows."""

    position: int = 1
    namespaces: list[str] = msgspec.field(default_factory=list)
    next_queue_id: int = 1
    queues: dict[int, QueueEntry] = msgspec.field(default_factory=dict)
    #: Queue -> request ID (hex) -> (position, until when it is remembered)
    requests: dict[int, dict[str, tuple[int, int]]] = msgspec.field(default_factory=dict)
    #: Queue -> request ID (hex) -> requested ID of its message (hex), if there was one. The message may be gone.
    requests_asked: dict[int, dict[str, str]] = msgspec.field(default_factory=dict)
    #: Position -> ID that the publisher requested (hex)
    asked: dict[int, str] = msgspec.field(default_factory=dict)
    #: By position. Some of the messages named there may be gone.
    leases: dict[int, LeaseEntry] = msgspec.field(default_factory=dict)
    writers: dict[str, WriterEntry] = msgspec.field(default_factory=dict)
    #: False for a table that began in the middle of a log: events about messages it has never seen are skipped.
    complete: bool = True

    def apply_catalogue_event(self, kind: Kind, queue: int, detail: bytes) -> bool:
        """Create a queue, or create or delete a namespace. False for a deleted queue: see ``delete_queue``."""
        match kind:
            case Kind.QUEUE_CREATED:
                self.queues[queue] = msgspec.json.decode(detail, type=QueueEntry)
                self.next_queue_id = max(self.next_queue_id, queue + 1)
            case Kind.NAMESPACE_CREATED:
                self.namespaces.append(detail.decode())
            case Kind.NAMESPACE_DELETED:
                self.namespaces = [name for name in self.namespaces if name != detail.decode()]
            case _:
                return False
        return True

    def delete_queue(self, queue: int) -> None:
        """Delete a queue and its request IDs."""
        del self.queues[queue]
        self.requests.pop(queue, None)
        self.requests_asked.pop(queue, None)

    def count(self, name: str, queues: Array) -> None:
        """Count events in the counters of their queues."""
        if queues.size:
            counts = np.bincount(queues)
            for number in np.flatnonzero(counts).tolist():
                self.queues[number].counters[name] += int(counts[number])

    def apply_held_event(self, kind: Kind, queue: int, position: int, detail: bytes) -> None:
        """Begin or end a lease, note a writer's chunk, or forget a writer."""
        match kind:
            case Kind.LEASED:
                entry = msgspec.json.decode(detail, type=LeaseEntry)
                entry.queue = queue
                self.leases[position] = entry
            case Kind.LEASE_ENDED:
                ended = msgspec.json.decode(detail, type=LeaseEnd).lease
                if self.leases.pop(ended, None) is None and self.complete:
                    raise Inconsistent(f"lease {ended} ended, but is not outstanding")
            case Kind.WRITTEN:
                key = msgspec.json.decode(detail, type=ChunkKey)
                known = self.writers.get(key.writer)
                if known is None or known.epoch != key.epoch:
                    known = self.writers[key.writer] = WriterEntry(key.epoch, {})
                known.note(key)
            case _:
                self.writers.pop(msgspec.json.decode(detail, type=ChunkKey).writer, None)

    def apply_held(self, detail: bytes) -> None:
        """Take leases and writers from the rows after a catalogue. They repeat known ones, unless events were lost."""
        if self.complete:
            return
        held = msgspec.json.decode(detail, type=HeldDetail)
        if held.first:
            self.leases, self.writers = {}, {}
        self.leases |= held.leases
        self.writers |= held.writers

    def remember_request(self, queue: int, request_id: str, published: tuple[int, int], asked_id: bytes) -> None:
        """Note which message a request ID has published, until when that is remembered, and its requested ID."""
        self.requests.setdefault(queue, {})[request_id] = published
        if asked_id:
            self.requests_asked.setdefault(queue, {})[request_id] = asked_id.hex()
        elif queue in self.requests_asked:  # the request ID may have been used before
            self.requests_asked[queue].pop(request_id, None)

    def forget_requests(self, now: int) -> None:
        """Drop the request IDs whose time is over."""
        for queue, requests in self.requests.items():
            self.requests[queue] = {key: value for key, value in requests.items() if value[1] > now}
        for queue, asked in self.requests_asked.items():
            known = self.requests[queue]
            self.requests_asked[queue] = {key: value for key, value in asked.items() if key in known}
