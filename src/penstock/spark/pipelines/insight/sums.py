"""``insight``: events become sums by queue and minute. See docs/pipelines.md.

Executors add up what single events show (``partials``): one stage, no shuffle. The few sums, and the moves of messages,
come to the driver. It knows where messages were before (``messages``, ``lives``), and adds everything to the open
minutes (``minutes``). A batch is a function of its events and of the state after the previous batch, so a repeated
batch has the same result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.spark.pipelines.insight.lives import Lives, Window
from penstock.spark.pipelines.insight.messages import Changes, MessageStore
from penstock.spark.pipelines.insight.minutes import MINUTE, SECOND, InsightState, Ledgers, QueueKey, StepSums
from penstock.spark.pipelines.insight.partials import Moves, Partial, add_up, decode, encode, gathered, joined

#: The columns of the view ``events`` that are read.
COLUMNS = (
    "position", "kind", "at", "message", "namespace", "queue", "deliveries", "delivered_at", "reason", "protocol",
    "peer", "payload_size", "count",
)  # fmt: skip
#: Rows that an executor holds in memory and adds up at once.
GATHERED = 100_000

#: A position that no event has.
LAST = 2**62

Parts = Sequence[tuple[Partial, Moves]]


class BatchSums(NamedTuple):
    """The result of a batch."""

    ledgers: Ledgers
    changes: Changes


def transform(events: DataFrame, state: InsightState) -> DataFrame:
    """A batch of the view ``events`` as rows of two encoded columns, ``sums`` and ``moves``; see ``partials``."""
    since, unit = state.watermark, min(state.finer, default=MINUTE if state.watermark else SECOND)

    def partials(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches, GATHERED):
            found = [pa.array([each], pa.binary()) for each in encode(*add_up(table, since, unit))]
            yield pa.RecordBatch.from_arrays(found, names=["sums", "moves"])

    return events.select(*COLUMNS).mapInArrow(partials, "sums binary, moves binary")


def collect(partials: DataFrame) -> Parts:
    """Run Spark's job, and decode its rows."""
    return [decode(bytes(row["sums"]), bytes(row["moves"])) for row in partials.collect()]


def add(state: InsightState, parts: Parts, store: MessageStore) -> BatchSums:
    """Add a batch to the state. Changes the store too, without a commit."""
    first = min(partial.first for partial, _ in parts)
    until = max(state.watermark, *(partial.last for partial, _ in parts))
    ledgers = Ledgers(state, first, until)
    for partial, _ in parts:
        for each in partial.sums:
            ledgers.add(QueueKey(*partial.queues[each.queue]), each.step * partial.unit, each.sums)
    names, talkers, moves = joined(parts)
    numbers, new = _numbered(store, names)
    moves = moves._replace(queue=np.array([numbers[each] for each in names], np.int64)[moves.queue])
    lives = Lives(moves, talkers, store, new)
    changes = lives.changes(until)
    keys = {number: key for key, number in numbers.items()}
    unit, found = ledgers.finest, defaultdict[tuple[int, int], StepSums](StepSums.empty)
    lives.add_to(found, unit)
    for (queue, step), sums in sorted(found.items(), key=lambda item: item[0]):
        ledgers.add(keys[queue], step * unit, sums)
    store.apply(changes)
    start = int(moves.position[0]) if len(moves.position) else LAST
    for (queue, minute), at in lives.oldest(Window(state.watermark or first, until, start)).items():
        ledgers.minutes.step(keys[queue], minute).oldest = at
    return BatchSums(ledgers, changes)


def _numbered(store: MessageStore, names: Iterable[QueueKey]) -> tuple[dict[QueueKey, int], dict[int, QueueKey]]:
    """The numbers of queues, and which of them are new to the store."""
    numbers, new = store.queues(), {}
    for name in names:
        if name not in numbers:
            numbers[name] = len(numbers) + 1
            new[numbers[name]] = name
    return numbers, new
