"""A broker made from a table: how a start gets its queues back.

Messages that were out when the broker went away are ready again, at their old place and with their counts unchanged:
a delivery is written down by what ends it, so the journal never knew of these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.core.broker import Broker
from penstock.core.expiry import Expiry
from penstock.core.gathering import Array
from penstock.core.lane import Lane
from penstock.core.queue import Queue
from penstock.core.table import QueueEntry, Table


def restore(table: Table, next_position: int) -> Broker:
    """The broker whose messages are those of the table. Call ``tick`` before anything else: time has passed."""
    broker = Broker(next_position)
    meta = table.meta
    broker.next_queue_id = meta.next_queue_id
    broker.namespaces = {name: {} for name in meta.namespaces}
    for number, entry in meta.queues.items():
        broker.enter(_queue(number, entry))
    _fill(broker, table)
    for number, requests in meta.requests.items():
        if number in broker.queues:
            broker.queues[number].requests = {bytes.fromhex(key): value for key, value in requests.items()}
    positions, queues = table.columns["position"], table.columns["queue"]
    for position, asked in meta.asked.items():
        queue = broker.queues[int(queues[np.searchsorted(positions, position)])]
        queue.asked[position] = bytes.fromhex(asked)
        broker.asked[bytes.fromhex(asked)] = (queue, position)
    broker.check()
    return broker


def _queue(number: int, entry: QueueEntry) -> Queue:
    queue = Queue(number, entry.namespace, entry.name, entry.policy, entry.created_at)
    for name, value in entry.counters.items():
        setattr(queue.counters, name, value)
    return queue


def _fill(broker: Broker, table: Table) -> None:
    """Give every queue its rows."""
    queues = table.columns["queue"]
    columns = {name: table.column(name) for name in ("size", "expires", "retries", "priority", "reason", "due")}
    columns |= {name: table.column(name) for name in ("deliveries", "published_retries")}
    columns |= {"position": table.columns["position"], "rank": table.ranks()}
    if not len(queues):
        return
    order = None if (queues[1:] >= queues[:-1]).all() else np.argsort(queues, kind="stable")
    ordered = queues if order is None else queues[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(ordered)], strict=True):
        rows = slice(start, stop) if order is None else order[start:stop]
        queue = broker.queues[int(ordered[start])]
        _fill_queue(queue, {name: column[rows] for name, column in columns.items()})
        broker.schedule(queue)


def _fill_queue(queue: Queue, columns: dict[str, Array]) -> None:
    dead = columns["reason"] != 0
    delayed = columns["due"] != 0
    ready = ~(dead | delayed)
    queue.dead = _lane(columns, dead, columns["rank"])
    fires = np.where(columns["expires"], np.minimum(columns["due"], columns["expires"]), columns["due"])
    queue.delayed = _lane(columns, delayed, fires)
    for priority in np.unique(columns["priority"][ready]).tolist():
        _add_lane(queue, columns, ready & (columns["priority"] == priority), priority)
    queue.deliveries = _noted(columns["position"], columns["deliveries"], columns["deliveries"] != 0)
    spent = columns["retries"] != columns["published_retries"]
    queue.published_retries = _noted(columns["position"], columns["published_retries"], spent)
    moved = ready & (columns["rank"] != columns["position"])
    queue.moved = _noted(columns["position"], columns["rank"], moved)


def _add_lane(queue: Queue, columns: dict[str, Array], which: NDArray[np.bool_], priority: int) -> None:
    lane = _lane(columns, which, columns["rank"], priority)
    queue.lanes[priority] = lane
    queue.priorities.append(priority)
    queue.ready += len(lane)
    queue.ready_bytes += lane.bytes
    expires = columns["expires"][which]
    expiring = expires != 0
    if expiring.any():
        expiry = queue.expiries[priority] = Expiry()
        expiry.add_many(expires[expiring], columns["rank"][which][expiring])


def _lane(columns: dict[str, Array], which: NDArray[np.bool_], keys: Array, priority: int = 0) -> Lane:
    """A lane of some rows, sorted by these keys."""
    order = np.flatnonzero(which)
    sorting = keys[order]
    if not (sorting[1:] >= sorting[:-1]).all():
        order = order[np.argsort(sorting, kind="stable")]
    names = ("position", "size", "expires", "retries", "priority", "reason")
    return Lane.from_columns([keys[order], *(columns[name][order] for name in names)], priority)


def _noted(positions: Array, values: Array, which: NDArray[np.bool_]) -> dict[int, int]:
    return dict(zip(positions[which].tolist(), values[which].tolist(), strict=True))
