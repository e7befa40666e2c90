"""What ``insight`` knows of messages, in files by the position at which they were published: its *parts*.

A batch reads and replaces the parts of the messages that it is about, and no others, so that it costs what has changed
and not what waits. Of the others, one thing is needed: which message of each queue is the oldest. That is remembered
with the part. Pure but for ``describe``, which reads a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: Positions of a part. Parts with few messages left are put together, up to so many messages.
GRAIN = 16_384
#: More parts than this are put together where they can be.
MOST_PARTS = 256


class QueueInPart(msgspec.Struct, frozen=True, array_like=True):
    """A queue that has messages in a part, and when the oldest of those came that wait; None: none waits."""

    namespace: str
    queue: str
    oldest: int | None


class StatePart(msgspec.Struct, frozen=True):
    """Messages of the grains from ``low`` to ``high``, and what has to be known of them without reading them."""

    low: int
    high: int
    files: list[str]
    rows: int
    held: list[QueueInPart]
    #: The time of the earliest purge among them; None: none was purged.
    purged_at: int | None = None


class Touch(msgspec.Struct, frozen=True):
    """What a batch is about: grains of messages, and queues that were emptied; purges before ``forget`` are over."""

    grains: frozenset[int]
    emptied: frozenset[tuple[str, str]]
    forget: int

    def concerns(self, part: StatePart) -> bool:
        """Whether the part has to be read."""
        if part.purged_at is not None and part.purged_at <= self.forget:
            return True
        if any((each.namespace, each.queue) in self.emptied for each in part.held):
            return True
        if part.high - part.low < len(self.grains):
            return any(grain in self.grains for grain in range(part.low, part.high + 1))
        return any(part.low <= grain <= part.high for grain in self.grains)


class PartChoice(msgspec.Struct, frozen=True):
    """The parts that a batch replaces, those that stay, and the ranges of grains that become one part each."""

    replaced: list[StatePart]
    kept: list[StatePart]
    ranges: list[tuple[int, int]]


def choose(parts: Sequence[StatePart], touch: Touch) -> PartChoice:
    """What to do with the parts that there are."""
    runs = _runs(parts) if len(parts) > MOST_PARTS else [[part] for part in parts]
    replaced: list[StatePart] = []
    kept: list[StatePart] = []
    ranges = []
    for run in runs:
        if len(run) == 1 and not touch.concerns(run[0]):
            kept += run
        else:
            replaced += run
            ranges.append((run[0].low, run[-1].high))
    return PartChoice(replaced, kept, [each for each in ranges if each[0] < each[1]])


def _runs(parts: Sequence[StatePart]) -> list[list[StatePart]]:
    """Parts beside each other that have no more messages together than one should have."""
    runs: list[list[StatePart]] = []
    rows = 0
    for part in sorted(parts, key=lambda each: each.low):
        rows += part.rows
        if not runs or rows > GRAIN:
            runs.append([])
            rows = part.rows
        runs[-1].append(part)
    return runs


def standing(parts: Iterable[StatePart]) -> list[tuple[str, str, int]]:
    """When the oldest message of each queue came, of those in these parts."""
    found: dict[tuple[str, str], int] = {}
    for part in parts:
        for each in part.held:
            if each.oldest is not None:
                key = each.namespace, each.queue
                found[key] = min(each.oldest, found.get(key, each.oldest))
    return [(*key, oldest) for key, oldest in found.items()]


def describe(low: int, ranges: Iterable[tuple[int, int]], files: Sequence[Path], names: Sequence[str]) -> StatePart:
    """The part that begins at ``low``, in these files, which will have these names."""
    columns = ["namespace", "queue", "entered_at", "dead", "purged_at"]
    rows = pa.concat_tables([pq.ParquetFile(file).read(columns) for file in files])
    purged = rows.column("purged_at")
    waiting = rows.filter(pc.and_(pc.invert(rows.column("dead")), purged.is_null()))
    oldest = {(each["namespace"], each["queue"]): each["entered_at_min"] for each in _by_queue(waiting)}
    held = [
        QueueInPart(*key, oldest.get(key))
        for key in sorted((row["namespace"], row["queue"]) for row in _by_queue(rows))
    ]
    high = dict(ranges).get(low, low)
    return StatePart(low, high, list(names), rows.num_rows, held, pc.min(purged).as_py())


def _by_queue(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.group_by(["namespace", "queue"]).aggregate([("entered_at", "min")]).to_pylist()
    return found
