"""The state of all queues, computed from the journal alone, a million events at a time.

A table has one row for every message that is alive. It is the content of a checkpoint, and what a start reads: the
newest checkpoint's table, plus the blocks after it. Applying a block is numpy over columns; no message is handled by
itself.

That works because every event contains the *whole* state of its message after it (``schema.STATE_KINDS``), or ends the
message (``FINAL_KINDS``): of many events about one message only the last counts. Rare events about everything in a
queue are applied one by one, between the spans of events about messages. Leases, writers, and the creation and deletion
of queues are no part of that: they say nothing about messages.

The rows are in ``rows``, everything else in ``meta``. A table in use takes about 40 bytes for each event of a group,
besides its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from penstock.core.catalogue import CatalogueDetail, QueueEntry
from penstock.core.recovery.event_columns import CATALOGUE_KINDS, PURGE_KINDS, Array, EventBlock, Events
from penstock.core.recovery.meta import Inconsistent, Meta
from penstock.core.recovery.rows import Rows
from penstock.schema import FINAL_KINDS, SPARK_KINDS, Kind

#: Events gathered before they are applied together; more for a large table, since removing messages moves all of its
#: rows.
GROUP = 2**17
GROUP_PART = 16
#: Spans of a group above which rows that no event affects are set aside meanwhile: each span moves all rows.
MANY_SPANS = 16

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


class Table(Rows):
    """The messages alive at ``meta.position``, and their queues."""

    def __init__(self, meta: Meta | None = None, columns: Mapping[str, Array] | None = None) -> None:
        super().__init__(columns)
        self.meta = meta or Meta()

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

    # Groups of blocks

    def _apply_group(self, events: Events) -> None:
        events.finish()
        spans = list(events.spans())
        # A client that publishes and purges in turn makes thousands of spans, each of which would move all rows.
        aside = self.set_aside(self._touched(events)) if len(spans) > MANY_SPANS else None
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
            self.put_back(aside)
            self._drop_orphans()
        self.meta.position = events.end

    def _touched(self, events: Events) -> Array:
        """The rows of messages that these events affect, or in queues that they purge."""
        touched: Array = np.isin(self.columns["queue"], events.queues[np.isin(events.kinds, PURGE_KINDS)])
        for name in ("message", "original"):
            touched[self.find(events.numbers(name))[0]] = True
        return touched

    def _apply_span(self, events: Events, start: int, stop: int) -> None:
        """New queues first, then new messages, then the last event about each; deletions of queues go last.

        So however many queues come and go, the rows are processed once. A queue's number is never reused.
        """
        low, high = events.other_range(start, stop)
        kinds = events.other_kinds[low:high]
        deleted: list[int] = []
        for each in _chosen(_CATALOGUE, kinds, low):
            queue = int(events.queues[events.other_rows[each]])
            if not self.meta.apply_catalogue_event(Kind(int(kinds[each - low])), queue, _detail(events, each)):
                deleted.append(queue)
        self._add_messages(events, *events.message_range(start, stop))
        for each in _chosen(_SPARK, kinds, low):
            row = events.other_rows[each]
            kind, queue, position = Kind(int(kinds[each - low])), int(events.queues[row]), int(events.positions[row])
            self.meta.apply_held_event(kind, queue, position, _detail(events, each))
        rest = ~_NO_MESSAGE[kinds]
        self._apply_last_words(events, slice(low, high) if rest.all() else low + np.flatnonzero(rest))
        for queue in deleted:
            self.meta.delete_queue(queue)
        if deleted:
            self._drop_orphans()

    def _apply_last_words(self, events: Events, which: Array | slice) -> None:
        """Apply events about messages that are there."""
        kinds = events.other_kinds[which]
        if not kinds.size:
            return
        queues = events.queues[events.other_rows[which]]
        for kind, name in _COUNTED.items():
            self.meta.count(name, queues[kinds == kind])
        if events.has("from_queue"):
            origins = events.numbers("from_queue")[which]
            self.meta.count("moved_out", origins[origins != 0])
            self.meta.count("moved_in", queues[origins != 0])
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
            self.assign("deliveries", where, np.where(redriven, 0, numbers("deliveries")[which]))
            self.assign("retries", where, numbers("retries_left")[which])
            self.assign("expires", where, numbers("new_expires_at")[which])
            self.assign("rank", where, np.where(back, numbers("rank")[which], positions))
            self.assign("reason", where, np.where(dead, numbers("reason")[which], 0))
            self.assign("due", where, np.zeros(len(where), np.int64))
            self.assign("queue", where, queues[alive])
        if where.size < rows.size:
            keep = np.ones(len(self), np.bool_)
            keep[rows[~alive]] = False
            self.keep(keep)

    def _look_up(self, messages: Array, *aligned: Array) -> tuple[Array, ...]:
        """The rows of these messages, and the aligned arrays for those that exist."""
        rows, found = self.find(messages)
        if found.all():
            return rows, *aligned
        if self.meta.complete:
            raise Inconsistent(f"an event is about message {messages[~found][0]}, which is not alive")
        return rows, *(each[found] for each in aligned)

    def _add_messages(self, events: Events, low: int, high: int) -> None:
        if low == high:
            return
        rows = events.message_rows[low:high]
        kinds = events.kinds[rows]
        fresh = kinds == Kind.PUBLISHED
        if fresh.all():
            self._add_published(events, slice(low, high))
        else:
            self._add_published(events, low + np.flatnonzero(fresh))
            self._carry(events, low + np.flatnonzero(~fresh))
        self.meta.count("published", events.queues[rows[fresh]])
        self._remember(events, low, high)

    def _add_published(self, events: Events, which: Array | slice) -> None:
        """Append rows for published messages; their positions are above all others."""
        rows = events.message_rows[which]
        if not rows.size:
            return
        new = {"position": events.positions[rows], "queue": events.queues[rows], "size": events.sizes[which]}
        new |= {name: events.numbers(source)[which] for name, source in _PUBLISHED.items() if events.has(source)}
        self.append(new)

    def _carry(self, events: Events, which: Array) -> None:
        """Apply copied messages: known ones have another place now, unknown ones come with their whole state."""
        originals = events.numbers("original")[which]
        locations = events.positions[events.message_rows[which]]
        positions = self.columns["position"]
        rows = np.minimum(np.searchsorted(positions, originals), max(len(self) - 1, 0))
        known = positions[rows] == originals if len(self) else np.zeros(len(which), np.bool_)
        self.assign("location", rows[known], locations[known])
        if known.all():
            return
        if self.meta.complete:
            raise Inconsistent(f"message {originals[~known][0]} was carried forward, but is not alive")
        new, numbers = which[~known], events.numbers
        self.append(
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
        self.sort()

    # Events about queues

    def _apply_one(self, events: Events, row: int) -> None:
        queue = int(events.queues[row])
        other = int(np.searchsorted(events.other_rows, row))
        detail = _detail(events, other)
        match Kind(int(events.kinds[row])):
            case Kind.QUEUE_CONFIGURED:
                self.meta.queues[queue].policy = msgspec.json.decode(detail, type=QueueEntry).policy
            case Kind.HELD:
                self.meta.apply_held(detail)
            case Kind.CATALOGUE:
                begins = self.meta.position == 1 and row == 0 and int(events.positions[0]) > 1
                self._take_catalogue(detail, begins=begins)
            case _:
                pass

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
            self.keep(np.isin(self.columns["queue"], list(self.meta.queues)))
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
        gone[self.find(np.array(spared, np.uint64))[0]] = False
        found = np.bincount(self.columns["queue"][gone], minlength=max(counts) + 1)
        for queue, count in counts.items():
            if self.meta.complete and found[queue] != count:
                raise Inconsistent(f"a purge of queue {queue} says {count} messages, but {found[queue]} were there")
            self.meta.queues[queue].counters["purged"] += count
        self.keep(~gone)

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
            known = self.meta.requests.get(queue, {})
            if not original or noted[1] > known.get(value.hex(), (0, 0))[1]:  # a copy may have an old request ID
                self.meta.remember_request(queue, value.hex(), noted, asked_ids.get(which, b""))
        for which, value in asked_ids.items():
            position = events.numbers("original")[which] or events.positions[events.message_rows[which]]
            self.meta.asked[int(position)] = value.hex()

    def _forget_asked(self) -> None:
        if self.meta.asked:
            asked = np.array(list(self.meta.asked), np.uint64)
            alive = set(self.columns["position"][self.find(asked)[0]].tolist())
            self.meta.asked = {position: value for position, value in self.meta.asked.items() if position in alive}


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
