"""The state of all queues, computed from the journal alone, a million events at a time.

A table has one row for every message that is alive. It is the content of a checkpoint, and what a start reads: the
newest checkpoint's table, plus the blocks after it. Applying a block is numpy over columns; no message is handled by
itself.

That works because every event contains the *whole* state of its message after it (``schema.STATE_KINDS``), or ends the
message (``FINAL_KINDS``): of many events about one message only the last counts. Rare events about everything in a
queue are applied one by one, between the spans of events about messages. Leases, writers, and the creation and deletion
of queues are no part of that: they say nothing about messages, and are kept beside the rows.

Columns in which every row has the default are not kept, and one that has the same value in all rows is kept as that
value; ``column_storage`` does the rest. So a plain waiting message costs 16 bytes, and 8 if there is one queue whose
messages are of one size. In addition, a table in use takes about 40 bytes for each event of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from penstock.core.catalogue import CatalogueDetail, HeldDetail, QueueEntry
from penstock.core.leases import LeaseEnd, LeaseEntry
from penstock.core.recovery.column_storage import extend, filled, insert, is_one_value, keep
from penstock.core.recovery.event_columns import CATALOGUE_KINDS, PURGE_KINDS, Array, EventBlock, Events
from penstock.core.writers import ChunkKey, WriterEntry
from penstock.schema import FINAL_KINDS, FOREVER, SPARK_KINDS, Kind

#: Events gathered before they are applied together; more for a large table, since removing messages moves all of its
#: rows.
GROUP = 2**17
GROUP_PART = 16
#: Spans of a group above which rows that no event affects are set aside meanwhile: each span moves all rows.
MANY_SPANS = 16

#: The columns of a table: type and default. A rank or location of 0 stands for the message's own position.
COLUMNS: dict[str, tuple[str, int]] = {
    "position": ("u8", 0),
    "queue": ("u4", 0),
    "size": ("u4", 0),
    "rank": ("u8", 0),
    "priority": ("u8", 0),
    "expires": ("i8", 0),
    "due": ("i8", 0),
    "retries": ("u1", FOREVER),
    "published_retries": ("u1", FOREVER),
    "deliveries": ("u4", 0),
    "reason": ("u1", 0),
    "location": ("u8", 0),  # where the payload lies since the message was carried forward
}
_KEPT = ("position", "queue", "size")
#: The events' columns for the other columns of a published message.
_PUBLISHED = {
    "priority": "priority",
    "expires": "expires_at",
    "due": "not_before",
    "retries": "retries",
    "published_retries": "retries",
}

_FINAL = np.zeros(256, np.bool_)
_FINAL[list(FINAL_KINDS)] = True
_SPARK = np.zeros(256, np.bool_)
_SPARK[list(SPARK_KINDS)] = True
_CATALOGUE = np.zeros(256, np.bool_)
_CATALOGUE[list(CATALOGUE_KINDS)] = True
_NO_MESSAGE = _SPARK | _CATALOGUE
_COUNTED = {Kind.ACKNOWLEDGED: "acknowledged", Kind.POPPED: "popped", Kind.DROPPED: "dropped"}


class Inconsistent(Exception):
    """The events contradict the state they are applied to. The journal's checksums were right, so this is a bug."""


class Meta(msgspec.Struct):
    """The table's state besides its rows."""

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


class Table:
    """The messages alive at ``meta.position``, sorted by position, and their queues."""

    def __init__(self, meta: Meta | None = None, columns: Mapping[str, Array] | None = None) -> None:
        self.meta = meta or Meta()
        self.columns: dict[str, Array] = {name: np.empty(0, COLUMNS[name][0]) for name in _KEPT}
        self.columns.update(columns or {})

    def __len__(self) -> int:
        return len(self.columns["position"])

    def column(self, name: str) -> Array:
        """A column for reading, whether it is kept or not."""
        kept = self.columns.get(name)
        if kept is not None:
            return kept
        dtype, default = COLUMNS[name]
        return filled(default, dtype, len(self))

    def ranks(self) -> Array:
        """The rank of every message."""
        kept = self.columns.get("rank")
        positions = self.columns["position"]
        return positions if kept is None else np.where(kept, kept, positions)

    def places(self) -> Array:
        """The place of every message's payload."""
        kept = self.columns.get("location")
        positions = self.columns["position"]
        return positions if kept is None else np.where(kept, kept, positions)

    def leased(self) -> dict[int, Array]:
        """The rows of the messages of each lease, in its order, by the lease's position.

        A row belongs to one lease at most. Messages that are gone, dead, or in another queue by now are left out: a
        repair may have lost the end of their lease.
        """
        positions, free = self.columns["position"], self.column("reason") == 0
        leased: dict[int, Array] = {}
        for position, entry in sorted(self.meta.leases.items()):
            runs = [np.arange(first, first + count, dtype=np.uint64) for first, count in entry.runs]
            wanted = np.concatenate(runs) if runs else np.empty(0, np.uint64)
            rows = np.searchsorted(positions, wanted)
            there = rows < len(positions)
            rows, wanted = rows[there], wanted[there]
            rows = rows[(positions[rows] == wanted) & free[rows] & (self.columns["queue"][rows] == entry.queue)]
            free[rows] = False
            leased[position] = rows
        return leased

    def apply(self, blocks: Iterable[EventBlock]) -> None:
        """Apply blocks in order. Those below ``meta.position`` must not be among them."""
        events = Events()
        for block in blocks:
            events.add(block)
            if events.count >= GROUP and events.count >= len(self) // GROUP_PART:
                self._apply_group(events)
                events = Events()
        if events.count:
            self._apply_group(events)
        self._forget_asked()

    def forget_requests(self, now: int) -> None:
        """Drop the request IDs whose time is over."""
        for queue, requests in self.meta.requests.items():
            self.meta.requests[queue] = {key: value for key, value in requests.items() if value[1] > now}
        for queue, asked in self.meta.requests_asked.items():
            known = self.meta.requests[queue]
            self.meta.requests_asked[queue] = {key: value for key, value in asked.items() if key in known}

    # Groups of blocks

    def _apply_group(self, events: Events) -> None:
        events.finish()
        spans = list(events.spans())
        aside = self._set_aside(events) if len(spans) > MANY_SPANS else None
        for start, stop in spans:
            kind = int(events.kinds[start])
            if kind == Kind.PURGED:
                self._purge(events, start, stop, lambda reasons: reasons == 0)
            elif kind == Kind.DEAD_PURGED:
                self._purge(events, start, stop, lambda reasons: reasons != 0)
            elif events.singular[start]:
                self._apply_one(events, start)
            else:
                self._apply_span(events, start, stop)
        if aside is not None:
            self._put_back(aside)
        self.meta.position = events.end

    def _set_aside(self, events: Events) -> dict[str, Array]:
        """Keep only the rows of messages that these events affect, or in queues that they purge. Returns the others.

        A client that publishes and purges in turn makes thousands of spans, each of which would move all rows.
        """
        touched = np.isin(self.columns["queue"], events.queues[np.isin(events.kinds, PURGE_KINDS)])
        for name in ("message", "original"):
            touched[self._rows_of(events.numbers(name))] = True
        count, aside = int(np.count_nonzero(touched)), {}
        for name in list(self.columns):
            column = self.columns.pop(name)
            self.columns[name] = column[:count] if is_one_value(column) else column[touched]
            aside[name] = keep(column, ~touched)
        return aside

    def _put_back(self, aside: dict[str, Array]) -> None:
        rows = np.searchsorted(aside["position"], self.columns["position"])
        before, here = len(aside["position"]), len(self)
        for name in [name for name in COLUMNS if name in aside or name in self.columns]:
            dtype, default = COLUMNS[name]
            column = aside.pop(name) if name in aside else filled(default, dtype, before)
            added = self.columns.pop(name) if name in self.columns else filled(default, dtype, here)
            self.columns[name] = insert(column, rows, added)
        self._drop_orphans()

    def _apply_span(self, events: Events, start: int, stop: int) -> None:
        """New queues first, then new messages, then the last event about each; deletions of queues go last.

        So however many queues come and go, the rows are processed once. A queue's number is never reused.
        """
        low, high = events.other_range(start, stop)
        kinds = events.other_kinds[low:high]
        deleted = [each for each in _chosen(_CATALOGUE, kinds, low) if not self._apply_catalogue(events, each)]
        self._add_messages(events, *events.message_range(start, stop))
        for each in _chosen(_SPARK, kinds, low):
            self._apply_held(events, each)
        rest = ~_NO_MESSAGE[kinds]
        self._apply_last_words(events, slice(low, high) if rest.all() else low + np.flatnonzero(rest))
        self._delete_queues(events.queues[events.other_rows[deleted]].tolist())

    def _apply_last_words(self, events: Events, which: Array | slice) -> None:
        """Apply events about messages that are there."""
        kinds = events.other_kinds[which]
        if not kinds.size:
            return
        queues = events.queues[events.other_rows[which]]
        for kind, name in _COUNTED.items():
            self._count(name, queues[kinds == kind])
        if events.has("from_queue"):
            origins = events.numbers("from_queue")[which]
            self._count("moved_out", origins[origins != 0])
            self._count("moved_in", queues[origins != 0])
        messages = events.numbers("message")[which]
        last = _last_of_each(messages)
        rows = which.start + last if isinstance(which, slice) else which[last]
        self._update(events, rows, messages[last], kinds[last], queues[last])

    def _update(self, events: Events, which: Array, messages: Array, kinds: Array, queues: Array) -> None:
        """Set rows to the state in their last event, or remove them."""
        rows, which, kinds, queues = self._look_up(messages, which, kinds, queues)
        alive = ~_FINAL[kinds]
        where, which, kinds = rows[alive], which[alive], kinds[alive]
        if where.size:
            numbers, positions = events.numbers, events.positions[events.other_rows[which]]
            back = kinds == Kind.RETURNED
            dead = kinds == Kind.DEAD
            redriven = kinds == Kind.REDRIVEN
            self._set("deliveries", where, np.where(redriven, 0, numbers("deliveries")[which]))
            self._set("retries", where, numbers("retries_left")[which])
            self._set("expires", where, numbers("new_expires_at")[which])
            self._set("rank", where, np.where(back, numbers("rank")[which], positions))
            self._set("reason", where, np.where(dead, numbers("reason")[which], 0))
            self._set("due", where, np.zeros(len(where), np.int64))
            self._set("queue", where, queues[alive])
        if where.size < rows.size:
            keep = np.ones(len(self), np.bool_)
            keep[rows[~alive]] = False
            self._keep(keep)

    def _look_up(self, messages: Array, *aligned: Array) -> tuple[Array, ...]:
        """The rows of these messages, and the aligned arrays for those that exist."""
        positions = self.columns["position"]
        rows = np.searchsorted(positions, messages)
        found = rows < len(positions)
        found[found] = positions[rows[found]] == messages[found]
        if not found.all():
            if self.meta.complete:
                raise Inconsistent(f"an event is about message {messages[~found][0]}, which is not alive")
            return rows[found], *(each[found] for each in aligned)
        return rows, *aligned

    def _add_messages(self, events: Events, low: int, high: int) -> None:
        if low == high:
            return
        rows = events.message_rows[low:high]
        kinds = events.kinds[rows]
        fresh = kinds == Kind.PUBLISHED
        if fresh.all():
            self._append(events, slice(low, high))
        else:
            self._append(events, low + np.flatnonzero(fresh))
            self._carry(events, low + np.flatnonzero(~fresh))
        self._count("published", events.queues[rows[fresh]])
        self._remember(events, low, high)

    def _append(self, events: Events, which: Array | slice) -> None:
        """Append rows for published messages; their positions are above all others."""
        rows = events.message_rows[which]
        if not rows.size:
            return
        new = {"position": events.positions[rows], "queue": events.queues[rows], "size": events.sizes[which]}
        new |= {name: events.numbers(source)[which] for name, source in _PUBLISHED.items() if events.has(source)}
        self._extend(new)

    def _carry(self, events: Events, which: Array) -> None:
        """Apply copied messages: known ones have another place now, unknown ones come with their whole state."""
        originals = events.numbers("original")[which]
        locations = events.positions[events.message_rows[which]]
        positions = self.columns["position"]
        rows = np.minimum(np.searchsorted(positions, originals), max(len(self) - 1, 0))
        known = positions[rows] == originals if len(self) else np.zeros(len(which), np.bool_)
        self._set("location", rows[known], locations[known])
        if known.all():
            return
        if self.meta.complete:
            raise Inconsistent(f"message {originals[~known][0]} was carried forward, but is not alive")
        new, numbers = which[~known], events.numbers
        self._extend(
            {
                "position": originals[~known],
                "queue": events.queues[events.message_rows[new]],
                "size": events.sizes[new],
                "priority": numbers("priority")[new],
                "expires": numbers("carried_expires_at")[new],
                "due": numbers("not_before")[new],
                "retries": numbers("carried_retries")[new],
                "published_retries": numbers("retries")[new],
                "deliveries": numbers("carried_deliveries")[new],
                "rank": numbers("carried_rank")[new],
                "reason": numbers("carried_dead")[new],
                "location": locations[~known],
            }
        )
        order = np.argsort(self.columns["position"], kind="stable")
        for name, column in self.columns.items():
            self.columns[name] = column if is_one_value(column) else column[order]

    # Events about queues

    def _apply_one(self, events: Events, row: int) -> None:
        queue = int(events.queues[row])
        other = int(np.searchsorted(events.other_rows, row))
        detail = _detail(events, other)
        match Kind(int(events.kinds[row])):
            case Kind.QUEUE_CONFIGURED:
                self.meta.queues[queue].policy = msgspec.json.decode(detail, type=QueueEntry).policy
            case Kind.HELD:
                self._take_held(detail)
            case Kind.CATALOGUE:
                begins = self.meta.position == 1 and row == 0 and int(events.positions[0]) > 1
                self._take_catalogue(detail, begins=begins)
            case _:
                pass

    def _apply_catalogue(self, events: Events, other: int) -> bool:
        """False for a queue that is deleted: its other events in this span come first."""
        queue, detail = int(events.queues[events.other_rows[other]]), _detail(events, other)
        match Kind(int(events.other_kinds[other])):
            case Kind.QUEUE_CREATED:
                self.meta.queues[queue] = msgspec.json.decode(detail, type=QueueEntry)
                self.meta.next_queue_id = max(self.meta.next_queue_id, queue + 1)
            case Kind.NAMESPACE_CREATED:
                self.meta.namespaces.append(detail.decode())
            case Kind.NAMESPACE_DELETED:
                self.meta.namespaces = [name for name in self.meta.namespaces if name != detail.decode()]
            case _:
                return False
        return True

    def _delete_queues(self, queues: list[int]) -> None:
        for queue in queues:
            del self.meta.queues[queue]
            self.meta.requests.pop(queue, None)
            self.meta.requests_asked.pop(queue, None)
        if queues:
            self._drop_orphans()

    def _take_catalogue(self, detail: bytes, *, begins: bool) -> None:
        """Ignored, since it repeats what is known, except at the beginning and after a loss of events."""
        described = msgspec.json.decode(detail, type=CatalogueDetail)
        if described.lost is not None and self.meta.position >= (described.seen or described.lost[1]):
            return  # the lost events were known when this table was written
        if described.lost is not None:
            self._begin(described, keep=True)
        elif begins or not self.meta.complete:
            self._begin(described, keep=False)
            if not described.held:
                self.meta.leases, self.meta.writers = {}, {}

    def _begin(self, described: CatalogueDetail, *, keep: bool) -> None:
        """Begin with a catalogue, as earlier events are missing: the log was trimmed, or a repair could not save them.

        A repair knows the queues, but not their counters: with ``keep``, ours are as good.
        """
        self.meta.complete = False
        self.meta.namespaces = described.namespaces
        self.meta.next_queue_id = max(self.meta.next_queue_id, described.next_queue_id)
        known = self.meta.queues if keep else {}
        self.meta.queues = {entry.id: known.get(entry.id) or entry.plain() for entry in described.queues}
        self._drop_orphans()

    def _drop_orphans(self) -> None:
        """Remove messages of deleted queues, which a loss may have left."""
        if not self.meta.complete:
            self._keep(np.isin(self.columns["queue"], list(self.meta.queues)))
            leases = self.meta.leases
            self.meta.leases = {key: each for key, each in leases.items() if each.queue in self.meta.queues}

    def reconcile(self) -> None:
        """After a loss the counters don't add up: count missing messages as dropped, and returned ones as moved in."""
        here = np.bincount(self.columns["queue"], minlength=self.meta.next_queue_id)
        for number, entry in self.meta.queues.items():
            counters = entry.counters
            gone = sum(counters[name] for name in ("acknowledged", "popped", "dropped", "purged", "moved_out"))
            surplus = int(here[number]) - (counters["published"] + counters["moved_in"] - gone)
            counters["moved_in" if surplus > 0 else "dropped"] += abs(surplus)

    def _purge(self, events: Events, start: int, stop: int, state: Callable[[Array], Array]) -> None:
        """Remove the messages of queues in this state, except those that were spared."""
        low, high = events.other_range(start, stop)
        numbers = events.numbers("count")[low:high].tolist()
        counts: dict[int, int] = dict(zip(events.queues[start:stop].tolist(), numbers, strict=True))
        if len(counts) < stop - start:  # one queue twice: each purge spares its own messages
            middle = (start + stop) // 2
            self._purge(events, start, middle, state)
            self._purge(events, middle, stop, state)
            return
        spared = [each for _, detail in events.strings("detail", low, high) for each in msgspec.json.decode(detail)]
        gone = np.isin(self.columns["queue"], list(counts)) & state(self.column("reason"))
        gone[self._rows_of(np.array(spared, np.uint64))] = False
        found = np.bincount(self.columns["queue"][gone], minlength=max(counts) + 1)
        for queue, count in counts.items():
            if self.meta.complete and found[queue] != count:
                raise Inconsistent(f"a purge of queue {queue} says {count} messages, but {found[queue]} were there")
            self.meta.queues[queue].counters["purged"] += count
        self._keep(~gone)

    # Leases and writers

    def _apply_held(self, events: Events, other: int) -> None:
        detail = _detail(events, other)
        row = events.other_rows[other]
        match Kind(int(events.other_kinds[other])):
            case Kind.LEASED:
                entry = msgspec.json.decode(detail, type=LeaseEntry)
                entry.queue = int(events.queues[row])
                self.meta.leases[int(events.positions[row])] = entry
            case Kind.LEASE_ENDED:
                ended = msgspec.json.decode(detail, type=LeaseEnd).lease
                if self.meta.leases.pop(ended, None) is None and self.meta.complete:
                    raise Inconsistent(f"lease {ended} ended, but is not outstanding")
            case Kind.WRITTEN:
                key = msgspec.json.decode(detail, type=ChunkKey)
                known = self.meta.writers.get(key.writer)
                if known is None or known.epoch != key.epoch:
                    known = self.meta.writers[key.writer] = WriterEntry(key.epoch, {})
                known.note(key)
            case _:
                self.meta.writers.pop(msgspec.json.decode(detail, type=ChunkKey).writer, None)

    def _take_held(self, detail: bytes) -> None:
        """As for a catalogue: ignored, since it repeats what is known, unless events were lost."""
        if self.meta.complete:
            return
        held = msgspec.json.decode(detail, type=HeldDetail)
        if held.first:
            self.meta.leases, self.meta.writers = {}, {}
        self.meta.leases |= held.leases
        self.meta.writers |= held.writers

    # Small steps

    def _count(self, name: str, queues: Array) -> None:
        if queues.size:
            counts = np.bincount(queues)
            for number in np.flatnonzero(counts).tolist():
                self.meta.queues[number].counters[name] += int(counts[number])

    def _remember(self, events: Events, low: int, high: int) -> None:
        """Note the request IDs and requested IDs of new messages."""
        asked_ids = dict(events.strings("asked_id", low, high))
        for which, value in events.strings("request_id", low, high):
            row, original = events.message_rows[which], int(events.numbers("original")[which])
            if original and self.meta.complete:
                continue
            queue = int(events.queues[row])
            at = int(events.numbers("published_at")[which]) or events.request_times[which]
            noted = (original or int(events.positions[row]), at + self.meta.queues[queue].policy.deduplication)
            known = self.meta.requests.setdefault(queue, {})
            if not original or noted[1] > known.get(value.hex(), (0, 0))[1]:  # a copy may have an old request ID
                known[value.hex()] = noted
                self._remember_asked(queue, value.hex(), asked_ids.get(which, b""))
        for which, value in asked_ids.items():
            position = events.numbers("original")[which] or events.positions[events.message_rows[which]]
            self.meta.asked[int(position)] = value.hex()

    def _remember_asked(self, queue: int, request_id: str, asked_id: bytes) -> None:
        if asked_id:
            self.meta.requests_asked.setdefault(queue, {})[request_id] = asked_id.hex()
        elif queue in self.meta.requests_asked:  # the request ID may have been used before
            self.meta.requests_asked[queue].pop(request_id, None)

    def _forget_asked(self) -> None:
        if self.meta.asked:
            asked = np.array(list(self.meta.asked), np.uint64)
            alive = set(self.columns["position"][self._rows_of(asked)].tolist())
            self.meta.asked = {position: value for position, value in self.meta.asked.items() if position in alive}

    def _rows_of(self, messages: Array) -> Array:
        """The rows of those messages that exist."""
        positions = self.columns["position"]
        rows = np.searchsorted(positions, messages)
        rows, messages = rows[rows < len(positions)], messages[rows < len(positions)]
        found: Array = rows[positions[rows] == messages]
        return found

    def _set(self, name: str, rows: Array, values: Array) -> None:
        if not rows.size:
            return
        dtype, default = COLUMNS[name]
        if name not in self.columns:
            if (values == default).all():
                return
            self.columns[name] = np.full(len(self), default, dtype)
        elif is_one_value(self.columns[name]) and (values == self.columns[name][0]).all():
            return
        elif not self.columns[name].flags.writeable:
            self.columns[name] = self.columns[name].copy()
        self.columns[name][rows] = values.astype(dtype)

    def _extend(self, new: Mapping[str, Array]) -> None:
        before, count = len(self), len(new["position"])
        for name, (dtype, default) in COLUMNS.items():
            values = new.get(name)
            if name not in self.columns and (values is None or bool((values == default).all())):
                continue
            old = self.columns.pop(name) if name in self.columns else filled(default, dtype, before)
            added = filled(default, dtype, count) if values is None else values.astype(dtype, copy=False)
            self.columns[name] = extend(old, added)

    def _keep(self, mask: Array) -> None:
        for name in list(self.columns):
            self.columns[name] = keep(self.columns.pop(name), mask)


def _chosen(kinds: Array, found: Array, low: int) -> list[int]:
    """The numbers of those events that are of these kinds; the first has number ``low``."""
    chosen: list[int] = (low + np.flatnonzero(kinds[found])).tolist()
    return chosen


def _detail(events: Events, other: int) -> bytes:
    return next((value for _, value in events.strings("detail", other, other + 1)), b"")


def _last_of_each(values: Array) -> Array:
    """The index of the last occurrence of every value."""
    if (values[1:] > values[:-1]).all():
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    ends = np.append(ordered[1:] != ordered[:-1], True)
    last: Array = order[ends]
    return last
