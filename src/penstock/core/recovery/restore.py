"""Make a broker from a table: how a start restores its queues.

Messages that were out when the broker ended are ready again, at their old place and with their counts unchanged: a
delivery is recorded by what ends it, so the journal never knew of these. Leased ones are out as before: the journal
records leases.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from penstock.core.broker import Broker
from penstock.core.catalogue import QueueEntry
from penstock.core.commands.lease import restore_lease
from penstock.core.commands.queues import add_queue
from penstock.core.queue import Queue
from penstock.core.recovery.column_storage import is_one_value
from penstock.core.recovery.event_columns import Array
from penstock.core.recovery.rows import COLUMNS
from penstock.core.recovery.table import Table
from penstock.core.structures.item import Item
from penstock.core.structures.request_ids import RequestIds

Rows: TypeAlias = Array | slice


def restore(table: Table, next_position: int, now: int = 0) -> Broker:
    """The broker with the table's messages. Call ``tick`` before anything else: time has passed.

    Request IDs that are over by ``now`` are left out.
    """
    broker = Broker(next_position)
    meta = table.meta
    broker.next_queue_id = meta.next_queue_id
    broker.namespaces = {name: {} for name in meta.namespaces}
    for number, entry in meta.queues.items():
        add_queue(broker, _queue(number, entry))
    leased = table.leased()
    _fill(broker, table, leased.values())
    _lease(broker, table, leased)
    for name, each in meta.writers.items():
        broker.writers[name] = replace(each, chunks=dict(each.chunks), digests=dict(each.digests))
        broker.count_writer(each)
    for number, requests in meta.requests.items():
        if (queue := broker.queues.get(number)) is not None:
            asked_ids = meta.requests_asked.get(number, {})
            queue.requests = RequestIds(
                {
                    bytes.fromhex(key): (position, until, bytes.fromhex(asked_ids.get(key, "")))
                    for key, (position, until) in requests.items()
                    if until > now
                }
            )
            broker.schedule_requests(queue)
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


def _fill(broker: Broker, table: Table, leased: Iterable[Array]) -> None:
    """Give every queue its rows."""
    queues = table.columns["queue"]
    if not len(queues):
        return
    columns = {name: table.column(name) for name in COLUMNS} | {"rank": table.ranks()}
    columns["leased"] = np.broadcast_to(np.array(0, np.bool_), len(table))
    for taken in leased:
        if not columns["leased"].flags.writeable:
            columns["leased"] = np.zeros(len(table), np.bool_)
        columns["leased"][taken] = True
    order = None if (queues[1:] >= queues[:-1]).all() else np.argsort(queues, kind="stable")
    ordered = queues if order is None else queues[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(ordered)], strict=True):
        rows = slice(start, stop) if order is None else order[start:stop]
        queue = broker.queues[int(ordered[start])]
        _fill_queue(queue, {name: _pick(column, rows) for name, column in columns.items()})
        broker.schedule(queue)


def _lease(broker: Broker, table: Table, leased: dict[int, Array]) -> None:
    """Give every lease its messages."""
    names = ("position", "size", "expires", "retries", "priority", "reason")
    for position, rows in leased.items():
        columns = [table.ranks()[rows], *(table.column(name)[rows] for name in names)]
        items = map(Item._make, zip(*(column.tolist() for column in columns), strict=True))
        restore_lease(broker, position, table.meta.leases[position], list(items))


def _fill_queue(queue: Queue, columns: dict[str, Array]) -> None:
    dead, delayed, leased = _filled(columns["reason"]), _filled(columns["due"]), _filled(columns["leased"])
    ready: Rows = slice(None)
    alive: Rows = slice(None)
    if dead.size or delayed.size or leased.size:
        waits = (columns["due"] != 0) & ~columns["leased"]
        delayed = np.flatnonzero(waits)
        alive = np.flatnonzero((columns["reason"] == 0) & ~waits)
        ready = np.flatnonzero((columns["reason"] == 0) & ~waits & ~columns["leased"])
        fires = np.where(columns["expires"], np.minimum(columns["due"], columns["expires"]), columns["due"])
        queue.dead.fill(_sorted(columns, dead, columns["rank"]))
        queue.delayed.fill(_sorted(columns, delayed, fires))
    _add_lanes(queue, columns, ready)
    counted = _filled(columns["deliveries"])
    queue.deliveries = _noted(columns["position"], columns["deliveries"], counted)
    left, published = columns["retries"], columns["published_retries"]
    if not (is_one_value(left) and is_one_value(published) and (left[:1] == published[:1]).all()):
        spent = np.flatnonzero(left != published)
        queue.published_retries = _noted(columns["position"], columns["published_retries"], spent)
    ranks, positions = columns["rank"][alive], columns["position"][alive]
    queue.moved = _noted(positions, ranks, np.flatnonzero(ranks != positions))


def _add_lanes(queue: Queue, columns: dict[str, Array], ready: Rows) -> None:
    """Add a lane for each priority."""
    priorities = _pick(columns["priority"], ready)
    if not len(priorities):
        return
    if is_one_value(priorities):
        _add_lane(queue, columns, ready, int(priorities[0]))
        return
    rows = np.arange(len(columns["priority"]))[ready]
    order = np.argsort(priorities, kind="stable")
    rows, priorities = rows[order], priorities[order]
    cuts = np.flatnonzero(priorities[1:] != priorities[:-1]) + 1
    for part in np.split(rows, cuts):
        _add_lane(queue, columns, part, int(columns["priority"][part[0]]))


def _add_lane(queue: Queue, columns: dict[str, Array], rows: Rows, priority: int) -> None:
    queue.ready.fill(priority, _sorted(columns, rows, columns["rank"]))


def _sorted(columns: dict[str, Array], rows: Rows, keys: Array) -> list[Array]:
    """The columns of a lane: some rows, sorted by these keys."""
    sorting = keys[rows]
    if not (sorting[1:] >= sorting[:-1]).all():
        order = np.argsort(sorting, kind="stable")
        sorting, rows = sorting[order], order if isinstance(rows, slice) else rows[order]
    names = ("position", "size", "expires", "retries", "priority", "reason")
    return [sorting, *(_pick(columns[name], rows) for name in names)]


def _noted(positions: Array, values: Array, rows: Array) -> dict[int, int]:
    return dict(zip(positions[rows].tolist(), values[rows].tolist(), strict=True))


# A table returns a column that it does not keep as one value for all rows, so that ten million default priorities are
# not read one by one.


def _pick(column: Array, rows: Rows) -> Array:
    """Some rows of a column; one value for all stays that."""
    if not is_one_value(column) or isinstance(rows, slice):
        return column[rows]
    return column[: len(rows)]


def _filled(column: Array) -> Array:
    """The rows with a value other than 0."""
    return np.empty(0, np.intp) if is_one_value(column) and not column[:1].any() else np.flatnonzero(column)
