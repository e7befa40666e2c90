"""Reading single messages from blocks, for deliveries whose message is not in the cache."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.journal.errors import Gone
from penstock.journal.format.block import Block
from penstock.schema import COLUMN, COLUMNS, Rows

T = TypeVar("T")


class MessageRow(NamedTuple):
    """A message row with the names of its columns in ``schema.COLUMNS``; ``at`` is absolute, ``source`` is resolved."""

    position: int
    kind: int
    at: int
    queue: int
    source: bytes
    payload: bytes
    expires_at: int
    priority: int
    retries: int
    not_before: int
    correlation_id: bytes
    request_id: bytes
    asked_id: bytes
    original: int
    published_at: int
    carried_source: bytes
    carried_rank: int
    carried_deliveries: int
    carried_retries: int
    carried_expires_at: int
    carried_dead: int
    with_ttl: int
    source_info: bytes


_MESSAGE_COLUMNS = tuple(column.name for column in COLUMNS if column.rows is Rows.MESSAGES)
assert MessageRow._fields[5:] == _MESSAGE_COLUMNS, "schema.COLUMNS has message columns that MessageRow lacks"


def gather(positions: Iterable[int], locate: Callable[[int], Block]) -> list[MessageRow]:
    """The messages at these positions, in the given order. Each block is decoded once.

    ``locate`` returns the block with a position. Raises Gone if an event is not a message.
    """
    return _by_block(positions, locate, messages_of)


def gather_numbers(name: str, positions: Iterable[int], locate: Callable[[int], Block]) -> list[int]:
    """As :func:`gather`, for one fixed-width column. Payloads are not touched."""
    return _by_block(positions, locate, lambda block, here: _numbers_of(block, here, name))


def _by_block(
    positions: Iterable[int], locate: Callable[[int], Block], take: Callable[[Block, list[int]], Sequence[T]]
) -> list[T]:
    wanted = list(positions)
    ordered = sorted(set(wanted))
    found: dict[int, T] = {}
    at = 0
    while at < len(ordered):
        block = locate(ordered[at])
        stop = bisect_left(ordered, block.end, at)
        here = ordered[at:stop]
        found.update(zip(here, take(block, here), strict=True))
        at = stop
    return [found[position] for position in wanted]


def _numbers_of(block: Block, positions: Sequence[int], name: str) -> list[int]:
    if not block.has(name):
        return [COLUMN[name].default] * len(positions)
    numbers: list[int] = block.column(name)[_indices(block, positions)].tolist()
    return numbers


def _indices(block: Block, positions: Sequence[int]) -> npt.NDArray[np.intp]:
    """The indexes of the messages at these positions among the block's messages."""
    rows = np.asarray(positions, np.int64) - block.first
    message_rows = block.message_rows()
    indices = np.searchsorted(message_rows, rows)
    if not len(message_rows) or indices[-1] == len(message_rows) or (message_rows[indices] != rows).any():
        raise Gone(f"not every event from position {positions[0]} to {positions[-1]} that was asked for is a message")
    return indices


def messages_of(block: Block, positions: Sequence[int]) -> list[MessageRow]:
    """The messages at these ascending positions of a block. Raises Gone if an event is not a message."""
    indices = _indices(block, positions)
    rows = np.asarray(positions, np.int64) - block.first
    sources = block.sources or [b""]
    columns: list[Any] = [
        positions,
        block.kinds[rows].tolist(),
        (block.column("at")[rows].astype(np.int64) + block.base).tolist(),
        block.queues[rows].tolist(),
        [sources[index] for index in block.source[rows].tolist()],
    ]
    columns += [_values(block, name, indices.tolist()) for name in _MESSAGE_COLUMNS]
    return [MessageRow._make(values) for values in zip(*columns, strict=False)]


def _values(block: Block, name: str, indices: list[int]) -> Any:
    if COLUMN[name].type != "binary":
        return block.column(name)[indices].tolist() if block.has(name) else repeat(COLUMN[name].default)
    if not block.has(name):
        return repeat(b"")
    offsets, data = block.binary(name)
    starts, ends = offsets[:-1][indices].tolist(), offsets[1:][indices].tolist()
    return [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]
