"""What happened in a queue in a minute: counts that add up, and what the tables of ``insight`` show of them.

Pure: no Spark and no files. Spark hands in sums for each batch; here they are added to the minutes that are still open,
and rows are made of them. Everything is a sum or a largest value, so the way the events were cut into batches does not
matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from penstock.spark.pipelines.insight.parts import StatePart

#: Durations are counted in buckets that grow by this factor: a percentile is off by 1 % at most.
GROWTH = 1.0202
MINUTE = 60_000_000
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


class Minute(msgspec.Struct):
    """The sums of one queue and minute. The minute is counted from 1970."""

    counts: dict[str, int] = {}
    #: How many more are in the queue, and among its dead letters, at the minute's end than at its beginning.
    waiting: int = 0
    buried: int = 0
    deleted: bool = False
    #: When the message came that was the oldest at the end; None: there was none.
    oldest: int | None = None
    in_queue: dict[int, int] = {}
    to_acknowledge: dict[int, int] = {}
    reasons: dict[str, int] = {}
    #: By protocol and host: published, bytes, taken.
    talkers: dict[str, list[int]] = {}


class Depth(msgspec.Struct):
    """How many messages are in a queue, and among its dead letters."""

    waiting: int = 0
    buried: int = 0


class QueueMinutes(msgspec.Struct):
    """A queue as it is remembered: how deep it was before its open minutes, and these."""

    namespace: str
    queue: str
    depth: Depth
    minutes: dict[int, Minute]


class InsightState(msgspec.Struct):
    """What is remembered from batch to batch."""

    #: The newest time of an event, microseconds; 0 before the first.
    watermark: int = 0
    queues: list[QueueMinutes] = []
    #: What is known of messages; None: it is in one piece, as an earlier version has left it.
    parts: list[StatePart] | None = None


def bucket(microseconds: int) -> int:
    """The bucket that a duration is counted in."""
    return 0 if microseconds <= 1 else math.ceil(math.log(microseconds) / math.log(GROWTH))


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


class MinuteSums:
    """Adds batches to what is remembered, and shows it as rows."""

    def __init__(self, memory: InsightState) -> None:
        self._queues = {QueueKey(each.namespace, each.queue): each for each in memory.queues}
        self.watermark = memory.watermark

    def minute(self, queue: QueueKey, minute: int) -> Minute:
        """The sums to add to."""
        entry = self._queues.get(queue)
        if entry is None:
            entry = self._queues[queue] = QueueMinutes(*queue, Depth(), {})
        found = entry.minutes.get(minute)
        if found is None:
            found = entry.minutes[minute] = Minute({}, in_queue={}, to_acknowledge={}, reasons={}, talkers={})
        return found

    def forget_oldest(self, minute: int) -> None:
        """What was the oldest in this minute is told anew, as the minute was not over."""
        for entry in self._queues.values():
            if minute in entry.minutes:
                entry.minutes[minute].oldest = None

    def memory(self, delay: int) -> InsightState:
        """What to remember: minutes that ended more than ``delay`` before the newest event are closed."""
        closed = (self.watermark - delay) // MINUTE
        for entry in self._queues.values():
            for minute, depth in _depths(entry):
                if minute < closed:
                    entry.depth = depth
            entry.minutes = {minute: sums for minute, sums in entry.minutes.items() if minute >= closed}
        kept = [each for each in self._queues.values() if each.minutes or each.depth.waiting or each.depth.buried]
        return InsightState(self.watermark, kept)

    def queue_rows(self) -> Iterator[dict[str, Any]]:
        """The table ``queues``: a row for each queue and minute in which something happened or waited."""
        for queue, entry in self._queues.items():
            for minute, depth in _depths(entry):
                sums = entry.minutes[minute]
                row: dict[str, Any] = {"namespace": queue.namespace, "queue": queue.queue, "minute": minute * MINUTE}
                row |= {name: sums.counts.get(name, 0) for name in COUNTS}
                row["depth"], row["dead_depth"] = depth.waiting, depth.buried
                end = min((minute + 1) * MINUTE, self.watermark)
                row["oldest_seconds"] = None if sums.oldest is None else max(0, end - sums.oldest) / 1e6
                for percent in PERCENTILES:
                    row[f"in_queue_p{percent}"] = percentile(sums.in_queue, percent)
                    row[f"to_acknowledge_p{percent}"] = percentile(sums.to_acknowledge, percent)
                yield row

    def reason_rows(self) -> Iterator[dict[str, Any]]:
        """The table ``dead_letters``."""
        for names, minute, sums in self._all():
            for reason, count in sorted(sums.reasons.items()):
                yield {**names, "minute": minute * MINUTE, "reason": reason, "messages": count}

    def talker_rows(self) -> Iterator[dict[str, Any]]:
        """The table ``talkers``: those who sent or took the most, and all others together."""
        for names, minute, sums in self._all():
            ranked = sorted(sums.talkers.items(), key=lambda item: (-item[1][0] - item[1][2], item[0]))
            rest = [item[1] for item in ranked[TALKERS:]]
            if rest:
                ranked[TALKERS:] = [(f" {OTHERS}", [sum(column) for column in zip(*rest, strict=True)])]
            for who, (published, size, taken) in ranked:
                protocol, _, host = who.partition(" ")
                row = {"protocol": protocol or None, "host": host, "published": published, "bytes_in": size}
                yield {**names, "minute": minute * MINUTE, **row, "taken": taken}

    def _all(self) -> Iterator[tuple[dict[str, Any], int, Minute]]:
        for queue, entry in self._queues.items():
            for minute in sorted(entry.minutes):
                yield {"namespace": queue.namespace, "queue": queue.queue}, minute, entry.minutes[minute]


def _depths(entry: QueueMinutes) -> Iterable[tuple[int, Depth]]:
    """How deep the queue was at the end of each minute, in order."""
    waiting, buried = entry.depth.waiting, entry.depth.buried
    found = []
    for minute in sorted(entry.minutes):
        sums = entry.minutes[minute]
        waiting, buried = max(0, waiting + sums.waiting), max(0, buried + sums.buried)
        if sums.deleted:
            waiting = buried = 0
        found.append((minute, Depth(waiting, buried)))
    return found
