"""Render the events of a journal one by one, for people and for scripts."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np

from penstock.cli.output import escape, moment
from penstock.journal.contract import GAP, Follower, LocatedBlock
from penstock.journal.format.block import Block
from penstock.journal.format.catalogue import QueueName
from penstock.patterns import fits_queue
from penstock.schema import COLUMNS, Kind, Reason, Rows

#: Columns beyond those that all rows have, in the order in which they are shown.
_MORE = tuple(column for column in COLUMNS if column.rows is not Rows.ALL and column.name not in ("payload", "detail"))
_TIMES = {"expires_at", "not_before", "published_at", "carried_expires_at", "delivered_at", "new_expires_at"}
_REASONS = {"reason", "carried_dead"}
_FIRST = {"position", "at", "kind", "queue"}

Event = dict[str, Any]


def position_of(reader: Follower, text: str) -> int:
    """A position, from a number, `earliest`, `latest` or a time. Raises ValueError."""
    if text == "earliest":
        return reader.earliest
    if text == "latest":
        return reader.latest
    if text.isdecimal():
        return max(int(text), 1)
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return reader.position_at(round(at.timestamp() * 1_000_000))


def events(
    reader: Follower,
    start: int,
    stop: int,
    *,
    pattern: str | None = None,
    kinds: frozenset[Kind] = frozenset(),
    payload: bool = False,
) -> Iterator[Event]:
    """The events between two positions, with the columns that differ from their defaults.

    With a ``pattern`` of namespace/queue, only those of matching queues.
    """
    for found in reader.read(start, stop, accept_loss=True):
        block = found.block
        low, high = max(start - block.first, 0), min(stop, block.end) - block.first
        wanted = np.isin(block.kinds, list(kinds)) if kinds else np.ones(block.count, np.bool_)
        for row in (np.flatnonzero(wanted[low:high]) + low).tolist():
            name = _queue_of(found, row, stop)
            if pattern is None or (name is not None and fits_queue(pattern, *name)):
                yield _event(found, row, name, payload=payload)


def _queue_of(found: LocatedBlock, row: int, limit: int) -> QueueName | None:
    number = int(found.block.queues[row])
    return found.extent.name_of(number, limit) if number else None


def _event(found: LocatedBlock, row: int, name: QueueName | None, *, payload: bool) -> Event:
    block = found.block
    kind, number = int(block.kinds[row]), int(block.queues[row])
    event: Event = {"position": block.first + row, "at": moment(block.base + int(block.column("at")[row]))}
    event["kind"] = Kind(kind).name.lower() if kind in set(Kind) else f"kind {kind}"
    if number:
        event["queue"] = str(name) if name else f"queue {number}"
    if block.sources:
        event["source"] = block.sources[int(block.source[row])].decode("utf-8", "backslashreplace")
    message_rows = block.message_rows()
    before = int(np.searchsorted(message_rows, row))
    if before < len(message_rows) and int(message_rows[before]) == row:
        event |= _message(block, before, payload=payload)
    else:
        event |= _other(block, row - before)
    return event


def _message(block: Block, index: int, *, payload: bool) -> Event:
    event = _columns(block, index, Rows.MESSAGES)
    offsets, data = block.binary("payload")
    event["payload_size"] = int(offsets[index + 1] - offsets[index])
    if payload:
        event["payload"] = bytes(data[offsets[index] : offsets[index + 1]])
    return event


def _other(block: Block, index: int) -> Event:
    event = _columns(block, index, Rows.OTHERS)
    detail = block.value("detail", index)
    if isinstance(detail, bytes) and detail:
        event["detail"] = detail.decode("utf-8", "backslashreplace")
    return event


def _columns(block: Block, index: int, rows: Rows) -> Event:
    """The values of one kind of columns that differ from their defaults."""
    event: Event = {}
    for column in _MORE:
        if column.rows is rows and block.has(column.name):
            value = block.value(column.name, index)
            if value not in (column.default, b""):
                event[column.name] = _plain(column.name, value)
    return event


def _plain(name: str, value: int | bytes) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if name in _TIMES:
        return moment(value)
    return Reason(value).name.lower() if name in _REASONS and value in set(Reason) else value


def positions(lost: tuple[int, int]) -> str:
    """A range of positions in words."""
    first, end = lost
    if end - first >= GAP:
        return f"all positions from {first} on"  # their number is unknown
    return f"position {first}" if end - first == 1 else f"positions {first} to {end - 1} ({end - first} events)"


def for_people(event: Event) -> str:
    """An event on one line, escaped."""
    first = f"{event['position']:>12}  {event['at']}  {event['kind']:<17} {escape(event.get('queue', '-'))}"
    return " ".join([first, *(f"{name}={_shown(value)}" for name, value in event.items() if name not in _FIRST)])


def _shown(value: Any) -> str:
    return f'"{escape(value)}"' if isinstance(value, bytes) else escape(str(value))


def for_json(event: Event) -> Event:
    """An event for JSON: the payload as Base64."""
    if "payload" in event:
        return {**event, "payload": base64.b64encode(event["payload"]).decode()}
    return event
