"""What an earlier version has left of messages that were still there: Parquet files, which go into the database."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipelines.insight.messages import Changes, Places, Purge
from penstock.spark.pipelines.insight.minutes import QueueKey

_COLUMNS = ["message", "namespace", "queue", "published_at", "entered_at", "dead", "purged_at"]
#: They did not say at which positions messages came to where they were. Purged ones are before all purges from now on
#: and one at position 0; dead letters before all purges from now on.
_PURGED, _DEAD = -1, 0


class _Part(msgspec.Struct):
    files: list[str]


class _Memory(msgspec.Struct):
    """What is read of an earlier version's memory. Without parts, messages are in one piece, ``lives``."""

    watermark: int = 0
    parts: list[_Part] | None = None


def earlier(state: Path, folder: Path) -> Changes:
    """What puts everything that was known after a batch, in this folder, into an empty database."""
    memory = msgspec.json.decode((folder / "memory.json").read_bytes(), type=_Memory)
    files = sorted((folder / "lives").glob("*.parquet"))
    if memory.parts is not None:
        files = [state / "parts" / name for part in memory.parts for name in part.files]
    tables = [pq.read_table(file, columns=_COLUMNS, partitioning=None) for file in files]
    if not tables:
        return Changes({}, np.zeros(0, np.int64), Places.of(()), [], memory.watermark)
    return _changes(pa.concat_tables(tables).sort_by("message"), memory.watermark)


def _changes(rows: pa.Table, until: int) -> Changes:
    names = list(map(QueueKey, rows.column("namespace").to_pylist(), rows.column("queue").to_pylist()))
    numbers: dict[QueueKey, int] = {}
    queue = np.array([numbers.setdefault(name, len(numbers) + 1) for name in names], np.int64)
    message, published, entered = (rows.column(name).to_numpy() for name in ("message", "published_at", "entered_at"))
    dead = rows.column("dead").to_numpy().astype(np.int64)
    purged_at = rows.column("purged_at").fill_null(0).to_numpy()
    # One that was sent to its queue is behind what had been published by then.
    came = message[np.maximum(np.searchsorted(np.maximum.accumulate(published), entered, "right") - 1, 0)]
    since = np.where(entered == published, message, came)
    since = np.where(purged_at != 0, _PURGED, np.where(dead != 0, _DEAD, since))
    put = Places(message, queue, dead, since, entered, published)
    over = {(int(queue[at]), int(dead[at])): int(purged_at[at]) for at in np.flatnonzero(purged_at).tolist()}
    purges = [Purge(*key, 0, at) for key, at in over.items()]
    return Changes({number: key for key, number in numbers.items()}, np.zeros(0, np.int64), put, purges, until)
