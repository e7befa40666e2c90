"""Sums of each queue by step of time, and the rows that the tables of ``insight`` show of them.

Pure: no Spark and no files. The sums of a batch are added to the open steps, and rows are made of these. Everything is
a sum or a maximum, so it does not matter how events were cut into batches.

A step is a minute. While everything so far lies within a short time, there are finer steps as well, for the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

#: Durations are counted in buckets that grow by this factor, so a percentile is off by at most 1 %.
GROWTH = 1.0202
SECOND = 1_000_000
MINUTE = 60 * SECOND
#: Steps finer than a minute, and the time since the first event up to which they are kept: as many as a plot shows.
FINER = {SECOND: 5 * MINUTE, 10 * SECOND: 40 * MINUTE}
#: With more queues than this there are no finer steps: their plots would be too many to look at.
FINER_QUEUES = 50
PERCENTILES = (50, 95, 99)
#: Talkers of a queue and minute that are listed; the rest share one row.
TALKERS = 20
OTHERS = "(others)"

COUNTS = (
    "published",
    "bytes_in",
    "acknowledged",
    "popped",
    "redelivered",
    "returned",
    "dead",
    "redriven",
    "expired",
    "dropped",
    "purged",
)


class QueueKey(NamedTuple):
    """A queue's name."""

    namespace: str
    queue: str


class StepSums(msgspec.Struct):
    """The sums of one queue and step."""

    counts: dict[str, int] = {}
    #: The change in messages and in dead letters over the step; since the deletion, if the queue was deleted.
    waiting: int = 0
    buried: int = 0
    deleted: bool = False
    #: When the message that was the oldest at the end arrived; None: the queue was empty. Only for minutes.
    oldest: int | None = None
    in_queue: dict[int, int] = {}
    to_acknowledge: dict[int, int] = {}
    reasons: dict[str, int] = {}
    #: Published, bytes and taken, by protocol and host.
    talkers: dict[str, list[int]] = {}

    @classmethod
    def empty(cls) -> StepSums:
        """Sums that start at zero."""
        return cls({}, in_queue={}, to_acknowledge={}, reasons={}, talkers={})

    def add(self, other: StepSums) -> None:
        """Add later sums of the same step."""
        for mine, more in (
            (self.counts, other.counts),
            (self.in_queue, other.in_queue),
            (self.to_acknowledge, other.to_acknowledge),
            (self.reasons, other.reasons),
        ):
            _add(mine, more)
        for who, values in other.talkers.items():
            before = self.talkers.get(who, [0, 0, 0])
            self.talkers[who] = [had + more for had, more in zip(before, values, strict=True)]
        if other.deleted:
            self.waiting = self.buried = 0
        self.waiting += other.waiting
        self.buried += other.buried
        self.deleted = self.deleted or other.deleted


def _add(mine: dict[Any, int], more: dict[Any, int]) -> None:
    for key, value in more.items():
        mine[key] = mine.get(key, 0) + value


class Depth(msgspec.Struct):
    """The number of messages in a queue, and of its dead letters."""

    waiting: int = 0
    buried: int = 0


class QueueSteps(msgspec.Struct):
    """The state of a queue: its depth before its open steps, and these, by their number since 1970."""

    namespace: str
    queue: str
    depth: Depth
    steps: dict[int, StepSums] = msgspec.field(name="minutes")


class InsightState(msgspec.Struct):
    """The state between batches."""

    #: The newest time of an event, in microseconds; 0 before the first.
    watermark: int = 0
    #: By minute.
    queues: list[QueueSteps] = []
    #: The time of the first event, in microseconds; 0 before it.
    first: int = 0
    #: The same in finer steps, by their microseconds.
    finer: dict[int, list[QueueSteps]] = {}


def duration(number: int) -> float:
    """The duration of a bucket, in seconds."""
    return 0.0 if number == 0 else 2 * GROWTH**number / (GROWTH + 1) / 1e6


def percentile(histogram: dict[int, int], percent: float) -> float | None:
    """A percentile (nearest rank) in seconds; None for an empty histogram."""
    rank = math.ceil(sum(histogram.values()) * percent / 100)
    for number in sorted(histogram):
        rank -= histogram[number]
        if rank <= 0:
            return duration(number)
    return None


def finest(span: int) -> int:
    """The finest steps for a period of this length."""
    return next((unit for unit, limit in FINER.items() if span < limit), MINUTE)


class Ledger:
    """The open steps of all queues, of one length: takes the sums of batches, and makes rows."""

    def __init__(self, unit: int, queues: Iterable[QueueSteps], watermark: int) -> None:
        self.unit = unit
        self.watermark = watermark
        self._queues = {QueueKey(each.namespace, each.queue): each for each in queues}

    def __len__(self) -> int:
        return len(self._queues)

    def step(self, queue: QueueKey, number: int) -> StepSums:
        """The sums of a step."""
        entry = self._queues.get(queue)
        if entry is None:
            entry = self._queues[queue] = QueueSteps(*queue, Depth(), {})
        found = entry.steps.get(number)
        if found is None:
            found = entry.steps[number] = StepSums.empty()
        return found

    def forget_oldest(self, number: int) -> None:
        """Discard the oldest messages at the end of this step: it was not over yet."""
        for entry in self._queues.values():
            if number in entry.steps:
                entry.steps[number].oldest = None

    def close(self, delay: int) -> list[QueueSteps]:
        """Close the steps that ended more than ``delay`` before the newest event. Returns the state."""
        closed = (self.watermark - delay) // self.unit
        for entry in self._queues.values():
            for number, depth in _depths(entry):
                if number < closed:
                    entry.depth = depth
            entry.steps = {number: sums for number, sums in entry.steps.items() if number >= closed}
        return [each for each in self._queues.values() if each.steps or each.depth.waiting or each.depth.buried]

    def queue_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each queue and step with events or, for minutes, waiting messages."""
        for queue, entry in self._queues.items():
            for number, depth in _depths(entry):
                sums = entry.steps[number]
                row: dict[str, Any] = {**queue._asdict(), "start": number * self.unit}
                row |= {name: sums.counts.get(name, 0) for name in COUNTS}
                row["depth"], row["dead_depth"] = depth.waiting, depth.buried
                end = min((number + 1) * self.unit, self.watermark)
                row["oldest_seconds"] = None if sums.oldest is None else max(0, end - sums.oldest) / 1e6
                for percent in PERCENTILES:
                    row[f"in_queue_p{percent}"] = percentile(sums.in_queue, percent)
                    row[f"to_acknowledge_p{percent}"] = percentile(sums.to_acknowledge, percent)
                yield row

    def reason_rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the table ``dead_letters``."""
        for names, sums in self._all():
            for reason, count in sorted(sums.reasons.items()):
                yield {**names, "reason": reason, "messages": count}

    def talker_rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the table ``talkers``: those with the most traffic, and one for the rest."""
        for names, sums in self._all():
            ranked = sorted(sums.talkers.items(), key=lambda item: (-item[1][0] - item[1][2], item[0]))
            rest = [item[1] for item in ranked[TALKERS:]]
            if rest:
                ranked[TALKERS:] = [(f" {OTHERS}", [sum(column) for column in zip(*rest, strict=True)])]
            for who, (published, size, taken) in ranked:
                protocol, _, host = who.partition(" ")
                row = {"protocol": protocol or None, "host": host, "published": published, "bytes_in": size}
                yield {**names, **row, "taken": taken}

    def _all(self) -> Iterator[tuple[dict[str, Any], StepSums]]:
        for queue, entry in self._queues.items():
            for number in sorted(entry.steps):
                yield {**queue._asdict(), "start": number * self.unit}, entry.steps[number]


class Ledgers:
    """The open steps: minutes, and finer ones while everything so far lies within a short time."""

    def __init__(self, state: InsightState, first: int, until: int) -> None:
        """``first`` is the time of the batch's first event, ``until`` the newest so far."""
        self.first = state.first or first
        self.minutes = Ledger(MINUTE, state.queues, until)
        self.minutes.forget_oldest(state.watermark // MINUTE)
        self.finer = {
            unit: Ledger(unit, state.finer.get(unit, ()), until)
            for unit, limit in FINER.items()
            if until - self.first < limit and (unit in state.finer or not state.watermark)
        }

    @property
    def finest(self) -> int:
        """The finest steps, in microseconds."""
        return min(self.finer, default=MINUTE)

    def add(self, queue: QueueKey, at: int, sums: StepSums) -> None:
        """Add sums of a step that began at this time and is at most as long as the finest."""
        for ledger in (self.minutes, *self.finer.values()):
            ledger.step(queue, at // ledger.unit).add(sums)

    def close(self, delay: int) -> InsightState:
        """Close the steps that ended more than ``delay`` microseconds before the newest event. Returns the state."""
        few = len(self.minutes) <= FINER_QUEUES
        finer = {unit: ledger.close(delay) for unit, ledger in self.finer.items() if few}
        return InsightState(self.minutes.watermark, self.minutes.close(delay), self.first, finer)


def _depths(entry: QueueSteps) -> Iterable[tuple[int, Depth]]:
    """The depth of a queue at the end of each step, in order."""
    waiting, buried = entry.depth.waiting, entry.depth.buried
    found = []
    for number in sorted(entry.steps):
        sums = entry.steps[number]
        if sums.deleted:
            waiting = buried = 0
        waiting, buried = max(0, waiting + sums.waiting), max(0, buried + sums.buried)
        found.append((number, Depth(waiting, buried)))
    return found
