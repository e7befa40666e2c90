"""Interpret moves of messages by where each message was before: depths, times in queues, and the oldest messages.

The moves of a batch are sorted by message, behind the message's known place, so that the row before a move is the state
before it. Messages that come and go within a batch leave no trace in the store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.spark.pipelines.insight.messages import Changes, MessageStore, Places, Purge
from penstock.spark.pipelines.insight.minutes import MINUTE, QueueKey, StepSums
from penstock.spark.pipelines.insight.partials import (
    ACKNOWLEDGED,
    DEAD,
    DEAD_PURGED,
    DELETED,
    POPPED,
    PUBLISHED,
    PURGED,
    REDRIVEN,
    Moves,
    buckets,
    groups,
    summed,
)

Array = npt.NDArray[Any]

#: The kind of a row that is not a move, but a message's known place before the batch.
_KNOWN = -1


class Window(NamedTuple):
    """The time of a batch, since the newest event before it, and its first position."""

    since: int
    until: int
    position: int


class Lives:
    """The moves of a batch, by message. Queues have the store's numbers."""

    def __init__(self, moves: Moves, talkers: Sequence[str], store: MessageStore, new: dict[int, QueueKey]) -> None:
        """``new`` are queues that the store does not have yet."""
        self._talkers = talkers
        self._new = new
        self._store = store
        self._purged = store.purged()
        self._emptied = moves.where(np.flatnonzero(moves.kind >= PURGED))
        about = moves.where(np.flatnonzero(moves.kind < PURGED))
        known = store.find(np.unique(about.message[about.kind != PUBLISHED]))
        self._known = known
        self._order(about, known)

    def _order(self, moves: Moves, known: Places) -> None:
        """Sort known places and moves by message, then by position."""
        none = np.zeros(len(known.message), np.int64)
        before = Moves(none - 1, none + _KNOWN, known.message, known.came_at, none, known.queue, none, none)
        rows = Moves(*(np.concatenate(pair) for pair in zip(before, moves, strict=True)))
        since = np.concatenate([known.since, moves.position])
        born = np.concatenate([known.published_at, np.where(moves.kind == PUBLISHED, moves.at, 0)])
        dead = np.concatenate([known.dead, moves.kind == DEAD]).astype(bool)
        order = np.lexsort((rows.position, rows.message))
        self._rows, self._since, self._dead = rows.where(order), since[order], dead[order]
        message = self._rows.message
        self._is_first = np.ones(len(message), bool)
        self._is_first[1:] = message[1:] != message[:-1]
        first = np.maximum.accumulate(np.where(self._is_first, np.arange(len(message)), 0))
        self._is_last = np.append(self._is_first[1:], True)[: len(message)]
        #: Whether the message's publication was read, and its time.
        self._is_known = np.isin(self._rows.kind, (PUBLISHED, _KNOWN))[first] if len(first) else self._is_first
        self._born = born[order][first]
        self._was_dead = np.append(False, self._dead[:-1])[: len(message)] & ~self._is_first & self._is_known
        self._from = np.append(0, self._rows.queue[:-1])[: len(message)]

    # Sums

    def add_to(self, found: defaultdict[tuple[int, int], StepSums], unit: int) -> None:
        """Add the sums that depend on earlier events, by queue and step."""
        self._add_depths(found, unit)
        self._add_times(found, unit)

    def _add_depths(self, found: defaultdict[tuple[int, int], StepSums], unit: int) -> None:
        position, queue, at, waiting, buried = (np.concatenate(each) for each in zip(*self._flows(), strict=True))
        deleted = self._emptied.where(np.flatnonzero(self._emptied.kind == DELETED))
        for number, when, where in zip(deleted.queue, deleted.at, deleted.position, strict=True):
            over = (queue == number) & (at // unit == when // unit) & (position <= where)
            waiting[over] = buried[over] = 0
            found[int(number), int(when // unit)].deleted = True
        keys, which = groups(queue, at // unit)
        sums = summed(which, waiting, len(keys)).tolist(), summed(which, buried, len(keys)).tolist()
        for key, more, dead in zip(keys, *sums, strict=True):
            found[key].waiting, found[key].buried = more, dead

    def _flows(self) -> Iterator[tuple[Array, Array, Array, Array, Array]]:
        """Position, queue, time, and the change in waiting messages and in dead letters."""
        rows, kind, known, dead = self._rows, self._rows.kind, self._is_known, self._was_dead
        ends = kind > DEAD
        comes = np.isin(kind, (PUBLISHED, REDRIVEN)) & known
        dies = (kind == DEAD) & known & ~dead
        waiting = comes.astype(np.int64) - dies - (ends & known & ~dead)
        buried = dies.astype(np.int64) - (ends & known & dead)
        new = np.flatnonzero(kind != _KNOWN)
        yield rows.position[new], rows.queue[new], rows.at[new], waiting[new], buried[new]
        sent = np.flatnonzero((kind == REDRIVEN) & known)  # it leaves its former queue, or that queue's dead letters
        was_dead = dead[sent].astype(np.int64)
        yield rows.position[sent], self._from[sent], rows.at[sent], was_dead - 1, -was_dead
        emptied = self._emptied
        gone = [np.where(emptied.kind == each, -emptied.emptied, 0) for each in (PURGED, DEAD_PURGED)]
        yield emptied.position, emptied.queue, emptied.at, gone[0], gone[1]

    def _add_times(self, found: defaultdict[tuple[int, int], StepSums], unit: int) -> None:
        """Add times in queues, and subtract consumed dead letters from what talkers took."""
        taken = np.isin(self._rows.kind, (ACKNOWLEDGED, POPPED))
        rows = np.flatnonzero(taken & self._is_known & ~self._was_dead)
        took = self._rows.where(rows)
        lasted = buckets(np.where(took.delivered != 0, took.delivered, took.at) - self._born[rows])
        keys, which = groups(took.queue, took.at // unit, lasted)
        for (queue, step, number), count in zip(keys, summed(which, None, len(keys)).tolist(), strict=True):
            found[queue, step].in_queue[number] = count
        dead = self._rows.where(np.flatnonzero(taken & self._was_dead))
        keys, which = groups(dead.queue, dead.at // unit, dead.talker)
        for (queue, step, who), count in zip(keys, summed(which, None, len(keys)).tolist(), strict=True):
            found[queue, step].talkers[self._talkers[who]] = [0, 0, -count]

    # Changes of the store

    def changes(self, until: int) -> Changes:
        """The batch's changes of the store."""
        rows = np.flatnonzero(self._is_last & self._is_known & (self._rows.kind <= DEAD) & (self._rows.kind != _KNOWN))
        left = self._rows.where(rows)
        put = Places(
            left.message, left.queue, self._dead[rows].astype(np.int64), self._since[rows], left.at, self._born[rows]
        )
        return Changes(self._new, self._known.message, put, list(self._purges()), until)

    def _purges(self) -> Iterator[Purge]:
        for kind, queue, position, at in zip(*(getattr(self._emptied, name).tolist() for name in _PURGE), strict=True):
            for dead in (0, 1):
                if kind in (DELETED, DEAD_PURGED if dead else PURGED):
                    yield Purge(queue, dead, position, at)

    # The oldest messages

    def oldest(self, window: Window) -> dict[tuple[int, int], int]:
        """When the oldest message at each minute's end arrived, by queue and minute. Call it after ``apply``.

        Of the messages that came and left in the same minutes only the first matters, so the sort is over minutes, not
        messages. In the order of arrival, a message is the oldest from the first minute at whose end all earlier ones
        are gone.
        """
        found: dict[tuple[int, int], int] = {}
        reached: defaultdict[int, int] = defaultdict(lambda: window.since // MINUTE)
        for _, queue, low, high, at in sorted([*self._stays(window), *self._standing(window)]):
            for minute in range(max(low, reached[queue]), high + 1):
                found[queue, minute] = at
            reached[queue] = max(reached[queue], high + 1)
        return found

    def _stays(self, window: Window) -> Iterator[tuple[int, int, int, int, int]]:
        """Each stay: its first position, queue, first and last minute at whose end it lasted, and its start."""
        rows = self._rows
        enters = np.isin(rows.kind, (PUBLISHED, REDRIVEN)) & self._is_known
        enters |= (rows.kind == _KNOWN) & ~self._dead & (self._since > self._before(rows.queue))
        at = np.flatnonzero(enters)
        after = np.minimum(at + 1, len(rows.at) - 1)
        left = np.where(self._is_last[at], window.until + MINUTE, rows.at[after])
        left = np.minimum(left, self._emptied_at(rows.queue[at], self._since[at], window))
        low, high = rows.at[at] // MINUTE, left // MINUTE - 1
        there = np.flatnonzero(low <= high)
        at, low, high = at[there], np.maximum(low[there], window.since // MINUTE), high[there]
        order = np.argsort(self._since[at], kind="stable")
        keys, which = groups(rows.queue[at][order], low[order], high[order])
        firsts = np.full(len(keys), len(order), np.int64)
        np.minimum.at(firsts, which, np.arange(len(order)))
        for (queue, begin, end), number in zip(keys, at[order][firsts].tolist(), strict=True):
            yield int(self._since[number]), queue, begin, end, int(rows.at[number])

    def _standing(self, window: Window) -> Iterator[tuple[int, int, int, int, int]]:
        """The same for the oldest message of each queue, if it was there before the batch."""
        found = self._store.oldest(window.position, self._purged)
        for queue, (since, at) in found.items():
            gone = self._emptied_at(np.array([queue]), np.array([since]), window)[0]
            yield since, queue, window.since // MINUTE, int(min(gone, window.until + MINUTE)) // MINUTE - 1, at

    def _before(self, queues: Array) -> Array:
        """Up to which positions queues were emptied before the batch."""
        numbers, which = np.unique(queues, return_inverse=True)
        return np.array([self._purged.get((number, 0), -1) for number in numbers.tolist()], np.int64)[which]

    def _emptied_at(self, queues: Array, since: Array, window: Window) -> Array:
        """When messages that arrived at these positions were purged; a time after the batch: they were not."""
        found = np.full(len(queues), window.until + MINUTE, np.int64)
        emptied = self._emptied.where(np.flatnonzero(self._emptied.kind != DEAD_PURGED))
        for queue in np.unique(emptied.queue).tolist():
            purges, rows = emptied.where(emptied.queue == queue), np.flatnonzero(queues == queue)
            after = np.searchsorted(purges.position, since[rows])
            found[rows] = np.append(purges.at, window.until + MINUTE)[after]
        return found


_PURGE = ("kind", "queue", "position", "at")
