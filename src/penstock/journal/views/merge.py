"""Merges small blocks, so that readers pay their cost per block less often.

A broker under little load commits message by message. Reading such blocks one by one costs a hundred times as much as
reading the same rows in large blocks. Merging them first costs little per block, and saves most of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import sub

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from penstock.journal.contract import LocatedBlock
from penstock.journal.format.block import DTYPES, Block, BlockError, Ints
from penstock.schema import COLUMN, COLUMNS, Rows

#: Blocks with fewer rows are merged, up to these numbers of rows and bytes.
SMALL = 64
MOST_ROWS = 4096
MOST_BYTES = 4 * 1024 * 1024

_NUMBERS = {column.name for column in COLUMNS if column.type != "binary"}
_SORTS = {column.name: (Rows.ALL, Rows.MESSAGES, Rows.OTHERS).index(column.rows) for column in COLUMNS}


class MergedBlock(Block):
    """Consecutive blocks in the form of one. ``at`` counts from 1970; byte strings are copied."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.header = blocks[0].header
        self.view = memoryview(b"")
        self.offset = blocks[0].offset
        self.first, self.end = blocks[0].first, blocks[-1].end
        self.count = self.end - self.first
        self.epoch, self.base = blocks[0].epoch, 0
        self.messages = sum(block.messages for block in blocks)
        self._blocks = blocks
        self._binaries: dict[str, tuple[npt.NDArray[np.int32], memoryview]] = {}
        self._present = 0
        self._parts: dict[str, list[tuple[int, bytes]]] = {}
        row = message = 0
        for block in blocks:
            self._present |= block.header.present
            starts = (row, message, row - message)
            for name, data in block.pieces(_NUMBERS):
                self._parts.setdefault(name, []).append((starts[_SORTS[name]], data))
            row, message = row + block.count, message + block.messages

    @override
    def has(self, name: str) -> bool:
        return bool(self._present >> COLUMN[name].id & 1)

    @override
    def column(self, name: str) -> Ints:
        dtype = DTYPES[COLUMN[name].type]
        raw = bytearray(np.array(COLUMN[name].default, dtype).tobytes() * self.rows(name))
        for start, data in self._parts.get(name, ()):
            raw[start * dtype.itemsize : start * dtype.itemsize + len(data)] = data
        values: Ints = np.frombuffer(raw, dtype)
        if name == "at":
            return values.astype(np.int64) + self._per_row([block.base for block in self._blocks])
        if name == "source":
            counts = [len(block.sources) or 1 for block in self._blocks]
            return values.astype(np.int64) + self._per_row([0, *np.cumsum(counts)[:-1].tolist()])
        return values

    @property
    @override
    def sources(self) -> list[bytes]:
        return [source for block in self._blocks for source in block.sources or [b""]]

    @override
    def binary(self, name: str) -> tuple[npt.NDArray[np.int32], memoryview]:
        found = self._binaries.get(name)
        if found is None:
            found = self._binaries[name] = self._join(name)
        return found

    def _join(self, name: str) -> tuple[npt.NDArray[np.int32], memoryview]:
        sizes: list[int] = []
        parts: list[memoryview] = []
        for block in self._blocks:
            if not block.has(name):
                sizes += [0] * block.rows(name)
                continue
            offsets, data = block.binary(name)
            ends = offsets.tolist()
            if ends[0]:
                raise BlockError(block.offset, f"the offsets of column {name} are out of order")
            sizes += map(sub, ends[1:], ends)
            parts.append(data)
        return np.cumsum([0, *sizes]).astype(np.int32), memoryview(b"".join(parts))

    def _per_row(self, values: list[int]) -> npt.NDArray[np.int64]:
        return np.repeat(np.array(values, np.int64), [block.count for block in self._blocks])


def merged(blocks: Iterable[LocatedBlock]) -> Iterator[LocatedBlock]:
    """The same rows in the same order, with small blocks merged."""
    group: list[Block] = []
    extent = None
    rows = size = 0
    for found in blocks:
        block = found.block
        small = block.count < SMALL
        if group and (not small or found.extent is not extent or rows >= MOST_ROWS or size >= MOST_BYTES):
            yield LocatedBlock(_one(group), extent)  # type: ignore[arg-type]  # a group has an extent
            group, rows, size = [], 0, 0
        if not small:
            yield found
            continue
        extent = found.extent
        group.append(block)
        rows, size = rows + block.count, size + block.header.length
    if group:
        yield LocatedBlock(_one(group), extent)  # type: ignore[arg-type]


def _one(group: list[Block]) -> Block:
    return group[0] if len(group) == 1 else MergedBlock(group)
