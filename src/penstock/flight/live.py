"""The current content of the queues, as a snapshot computed in this process so that the broker need not pause.

Only the broker knows which messages are in flight at a moment, and the end of the log at that moment. The rest comes
from the newest checkpoint and the blocks after it, as in a recovery. The next call continues with the resulting table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.recovery.meta import Meta
from penstock.core.recovery.table import Table
from penstock.flight.flight_requests import OutNow
from penstock.flight.history import Chooser, History
from penstock.flight.problems import trouble
from penstock.flight.views import LIVE, split
from penstock.journal.contract import Follower
from penstock.journal.errors import Gone
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views.arrow import spellings
from penstock.journal.views.placed import Holding, Places
from penstock.schema import Reason

#: How often to retry a snapshot after compaction has moved messages.
TRIES = 5
#: Seconds to wait for a commit.
COMMIT_SECONDS = 30.0

STATES = ("ready", "out", "delayed", "dead")
_FROM_TABLE = ("namespace", "queue", "state", "deliveries", "reason")
Codes = npt.NDArray[np.int8]


class Snapshot(NamedTuple):
    """The live messages at one moment, sorted by their places."""

    places: Places
    sizes: npt.NDArray[np.uint32]
    queues: npt.NDArray[np.uint32]
    names: dict[int, QueueName]
    states: Codes
    deliveries: npt.NDArray[np.uint32]
    reasons: npt.NDArray[np.uint8]
    holding: Holding


class Picked(NamedTuple):
    """The messages to read: their queues, range of positions and states."""

    queues: Chooser
    positions: tuple[int, int]
    states: Collection[str]


class Live:
    """Takes snapshots. Threads may share one."""

    def __init__(self, history: History, outs: Callable[[], OutNow], now: Callable[[], float] = time.time) -> None:
        self._reader = history.reader
        self._outs = outs
        self._now = now
        self._lock = Lock()
        self._table: Table | None = None

    def read(
        self,
        columns: Sequence[str],
        queues: Chooser,
        positions: tuple[int, int] = (0, 2**63),
        states: Collection[str] = STATES,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the view. The snapshot is taken before the first is requested.

        Messages in other states or outside of ``positions`` (first, exclusive end) are not read.
        """
        return _batches(self._snapshot(Picked(queues, positions, states)), list(columns) or LIVE.names)

    def _snapshot(self, picked: Picked) -> Snapshot:
        for _ in range(TRIES):
            outs = self._outs()
            self._wait_for(outs.position)
            with self._lock:
                table = self._fold(outs.position)
                try:
                    return _take(self._reader, table, outs, int(self._now() * 1e6), picked)
                except Gone:
                    continue
        raise trouble("away", "messages are being moved faster than they can be found; try again")

    def _wait_for(self, position: int) -> None:
        deadline = time.monotonic() + COMMIT_SECONDS
        while self._reader.latest < position:
            if time.monotonic() > deadline:
                raise trouble("away", "the broker does not commit")
            time.sleep(0.005)

    def _fold(self, stop: int) -> Table:
        """The table up to a position, or to the end of the block around it."""
        table, self._table = self._table, None
        if table is None or table.meta.position < self._reader.tail().start:
            table = newest_table(self._reader, stop)
        begin = table.meta.position
        if begin < stop:
            table.apply(located.block for located in self._reader.read(begin, stop, accept_loss=True))
            if begin > 1 and begin < self._reader.tail().start:
                raise trouble("away", "the journal was trimmed meanwhile; try again")
        for column in table.columns.values():
            column.flags.writeable = False  # snapshots share the columns: the table copies one before it changes it
        table.meta.forget_requests(int(self._now() * 1e6))
        self._table = table
        return table


def newest_table(reader: Follower, stop: int) -> Table:
    """The state at the newest checkpoint that is not after ``stop``."""
    checkpoint = reader.checkpoint(stop)
    return Table() if checkpoint is None else Table(msgspec.json.decode(checkpoint.meta, type=Meta), checkpoint.columns)


def _take(reader: Follower, table: Table, outs: OutNow, now: int, picked: Picked) -> Snapshot:
    names = {number: QueueName(entry.namespace, entry.name) for number, entry in table.meta.queues.items()}
    wanted = [number for number, name in names.items() if picked.queues is None or picked.queues(name)]
    states = _states(table, np.frombuffer(outs.messages, "<u8"), now)
    positions = table.column("position")
    sound = ~np.isin(positions, np.frombuffer(outs.damaged, "<u8"))
    sound &= (positions >= picked.positions[0]) & (positions < picked.positions[1])
    sound &= np.isin(states, [STATES.index(state) for state in picked.states])
    rows = np.flatnonzero(np.isin(table.column("queue"), wanted) & sound)
    places = table.places()[rows]
    order = np.argsort(places, kind="stable")
    rows = rows[order]
    return Snapshot(
        places[order],
        table.column("size")[rows],
        table.column("queue")[rows],
        names,
        states[rows],
        table.column("deliveries")[rows],
        table.column("reason")[rows],
        Holding(reader, places),
    )


def _states(table: Table, outs: npt.NDArray[np.uint64], now: int) -> Codes:
    """Each row's index into ``STATES``."""
    states = np.zeros(len(table), np.int8)
    states[table.column("due") > now] = STATES.index("delayed")
    states[table.column("reason") != 0] = STATES.index("dead")
    states[np.isin(table.column("position"), outs)] = STATES.index("out")
    for rows in table.leased().values():
        states[rows] = STATES.index("out")
    return states


def _batches(snapshot: Snapshot, columns: list[str]) -> Iterator[pa.RecordBatch]:
    stored = [name for name in columns if name not in _FROM_TABLE]
    for part in split(snapshot.sizes, payloads="payload" in stored):
        rows = snapshot.holding.read(snapshot.places[part], stored) if stored else None
        arrays = [
            rows.column(name) if rows is not None and name in stored else _from_table(snapshot, part, name)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([LIVE.field(name) for name in columns]))


def _from_table(snapshot: Snapshot, part: slice, name: str) -> pa.Array:
    match name:
        case "state":
            return pa.array(STATES).take(pa.array(snapshot.states[part]))
        case "deliveries":
            return pa.array(snapshot.deliveries[part].astype(np.int64))
        case "reason":
            return pa.array(spellings(Reason), pa.string()).take(pa.array(snapshot.reasons[part]))
        case _:
            numbers, which = np.unique(snapshot.queues[part], return_inverse=True)
            texts = [getattr(snapshot.names[number], name) for number in numbers.tolist()]
            return pa.array(texts, pa.string()).take(pa.array(which))
