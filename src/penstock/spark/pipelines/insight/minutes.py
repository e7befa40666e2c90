"""What happened in a queue in a step of time: counts that add up, and what the tables of ``insight`` show of them.

Pure: no Spark and no files. Each batch hands in its sums; here they are added to the steps that are still open, and
rows are made of them. Everything is a sum or a largest value, so the way the events were cut into batches does not
matter.

A step is a minute. While all that is known lies within a short time, there are finer ones as well, for the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

#: Durations are counted in buckets that grow by this factor: a percentile is off by 1 % at most.
GROWTH = 1.0202
SECOND = 1_000_000
MINUTE = 60 * SECOND
#: Steps finer than a minute, and how long after the first event they are kept: as many as a plot shows.
FINER = {SECOND: 5 * MINUTE, 10 * SECOND: 40 * MINUTE}
#: With more queues than this, there are no finer steps: nobody looks at as many plots in the first minutes.
FINER_QUEUES = 50
PERCENTILES = (50, 95, 99)
#: So many talkers of a queue and minute are named; the others are one row.
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
    #: How many more are in the queue, and among its dead letters, at the end than at the beginning; or, if the queue
    #: was deleted meanwhile, than after that.
    waiting: int = 0
    buried: int = 0
    deleted: bool = False
    #: When the message came that was the oldest at the end; None: there was none. Known of minutes only.
    oldest: int | None = None
    in_queue: dict[int, int] = {}
    to_acknowledge: dict[int, int] = {}
    reasons: dict[str, int] = {}
    #: By protocol and host: published, bytes, taken.
    talkers: dict[str, list[int]] = {}

    @classmethod
    def none(cls) -> StepSums:
        """Sums to add to: nothing happened yet."""
        return cls({}, in_queue={}, to_acknowledge={}, reasons={}, talkers={})

    def add(self, other: StepSums) -> None:
        """Add what happened later in the same step."""
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
    """How many messages are in a queue, and among its dead letters."""

    waiting: int = 0
    buried: int = 0


class QueueSteps(msgspec.Struct):
    """A queue as it is remembered: how deep it was before its open steps, and these, by their number since 1970."""

    namespace: str
    queue: str
    depth: Depth
    steps: dict[int, StepSums] = msgspec.field(name="minutes")


class InsightState(msgspec.Struct):
    """What is remembered from batch to batch."""

    #: The newest time of an event, microseconds; 0 before the first.
    watermark: int = 0
    #: By minute.
    queues: list[QueueSteps] = []
    #: The time of the first event, microseconds; 0 before it.
    first: int = 0
    #: By finer steps, and their microseconds.
    finer: dict[int, list[QueueSteps]] = {}


def duration(number: int) -> float:
    """The duration that a bucket stands for, in seconds."""
    return 0.0 if number == 0 else 2 * GROWTH**number / (GROWTH + 1) / 1e6


def percentile(histogram: dict[int, int], percent: float) -> float | None:
    """The duration, in seconds, that so many percent do not exceed (nearest rank); None without any."""
    rank = math.ceil(sum(histogram.values()) * percent / 100)
    for number in sorted(histogram):
        rank -= histogram[number]
        if rank <= 0:
            return duration(number)
    return None


def finest(span: int) -> int:
    """The steps in which so long a time is shown."""
    return next((unit for unit, limit in FINER.items() if span < limit), MINUTE)


class Ledger:
    """Adds batches to what is remembered, in steps of one length, and shows it as rows."""

    def __init__(self, unit: int, queues: Iterable[QueueSteps], watermark: int) -> None:
        self.unit = unit
        self.watermark = watermark
        self._queues = {QueueKey(each.namespace, each.queue): each for each in queues}

    def __len__(self) -> int:
        return len(self._queues)

    def step(self, queue: QueueKey, number: int) -> StepSums:
        """The sums to add to."""
        entry = self._queues.get(queue)
        if entry is None:
            entry = self._queues[queue] = QueueSteps(*queue, Depth(), {})
        found = entry.steps.get(number)
        if found is None:
            found = entry.steps[number] = StepSums.none()
        return found

    def forget_oldest(self, number: int) -> None:
        """What was the oldest in this step is told anew, as the step was not over."""
        for entry in self._queues.values():
            if number in entry.steps:
                entry.steps[number].oldest = None

    def close(self, delay: int) -> list[QueueSteps]:
        """What to remember: steps that ended more than ``delay`` before the newest event are closed."""
        closed = (self.watermark - delay) // self.unit
        for entry in self._queues.values():
            for number, depth in _depths(entry):
                if number < closed:
                    entry.depth = depth
            entry.steps = {number: sums for number, sums in entry.steps.items() if number >= closed}
        return [each for each in self._queues.values() if each.steps or each.depth.waiting or each.depth.buried]

    def queue_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each queue and step in which something happened or, of minutes, waited."""
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
        """The table ``dead_letters``."""
        for names, sums in self._all():
            for reason, count in sorted(sums.reasons.items()):
                yield {**names, "reason": reason, "messages": count}

    def talker_rows(self) -> Iterator[dict[str, Any]]:
        """The table ``talkers``: those who sent or took the most, and all others together."""
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
    """What is remembered: by minute, and in finer steps while all of it is about a short time."""

    def __init__(self, memory: InsightState, first: int, until: int) -> None:
        """``first`` is the time of the batch's first event, ``until`` the newest of all so far."""
        self.first = memory.first or first
        self.minutes = Ledger(MINUTE, memory.queues, until)
        self.minutes.forget_oldest(memory.watermark // MINUTE)
        self.finer = {
            unit: Ledger(unit, memory.finer.get(unit, ()), until)
            for unit, limit in FINER.items()
            if until - self.first < limit and (unit in memory.finer or not memory.watermark)
        }

    @property
    def finest(self) -> int:
        """The finest steps that there are, in microseconds."""
        return min(self.finer, default=MINUTE)

    def add(self, queue: QueueKey, at: int, sums: StepSums) -> None:
        """Add sums of a step that began at a time and is no longer than the finest."""
        for ledger in (self.minutes, *self.finer.values()):
            ledger.step(queue, at // ledger.unit).add(sums)

    def memory(self, delay: int) -> InsightState:
        """What to remember. ``delay`` is how long after its end a step is closed, in microseconds."""
        few = len(self.minutes) <= FINER_QUEUES
        finer = {unit: ledger.close(delay) for unit, ledger in self.finer.items() if few}
        return InsightState(self.minutes.watermark, self.minutes.close(delay), self.first, finer)


def _depths(entry: QueueSteps) -> Iterable[tuple[int, Depth]]:
    """How deep the queue was at the end of each step, in order."""
    waiting, buried = entry.depth.waiting, entry.depth.buried
    found = []
    for number in sorted(entry.steps):
        sums = entry.steps[number]
        if sums.deleted:
            waiting = buried = 0
        waiting, buried = max(0, waiting + sums.waiting), max(0, buried + sums.buried)
        found.append((number, Depth(waiting, buried)))
    return found
