"""Selects the rows of blocks that a view shows, and groups them into batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.journal.contract import HeldExtent, LocatedBlock
from penstock.journal.format.block import Block
from penstock.journal.format.catalogue import QueueName
from penstock.schema import Kind

#: A group is complete with this number of rows, since smaller ones cost more per row, here and in Spark …
GOOD_ROWS = 8192
#: … or with these numbers of payload bytes and rows …
GOOD_BYTES = 8 * 1024 * 1024
LEAST_ROWS = 512
#: … and never exceeds the payload bytes of the largest block.
MOST_BYTES = 64 * 1024 * 1024

#: Queue numbers, or a predicate on names; None for all queues.
Queues: TypeAlias = Collection[int] | Callable[[QueueName], bool] | None
Index: TypeAlias = npt.NDArray[np.intp]

_PUBLISHED = np.zeros(256, np.bool_)
_PUBLISHED[Kind.PUBLISHED] = True
#: The view of events leaves these out: they are about storage, not about messages or queues.
SHOWN = np.ones(256, np.bool_)
SHOWN[[Kind.CARRIED, Kind.CATALOGUE, Kind.HELD]] = False


class Piece(NamedTuple):
    """Some rows of one block."""

    block: Block
    extent: HeldExtent
    #: Row numbers.
    rows: Index
    #: The end of the readable range, up to which queue names are looked up.
    limit: int
    #: Whether these are all rows of the block, in order, so that its columns can be used as they are.
    whole: bool = False

    def name_of(self, number: int) -> QueueName | None:
        """The name of one of the block's queues."""
        return self.extent.name_of(number, self.limit)


class Selection:
    """Selects rows by position, kind and queue."""

    def __init__(self, start: int, stop: int, queues: Queues, *, messages: bool) -> None:
        self.start = start
        self.stop = stop
        self.queues = queues
        self._kinds = _PUBLISHED if messages else SHOWN
        self._messages = messages
        self._verdicts: dict[int, bool] = {}
        self._extent: HeldExtent | None = None

    def piece(self, found: LocatedBlock) -> Piece | None:
        """The selected rows of a block; None if there are none."""
        block, extent = found
        if self._messages and not block.messages:
            return None
        limit = min(block.end, self.stop)
        if self._wants_all(block, extent):
            return Piece(block, extent, np.arange(block.count), limit, whole=True)
        mask = self._kinds[block.kinds]
        mask[: max(self.start - block.first, 0)] = False
        mask[max(self.stop - block.first, 0) :] = False
        if self.queues is not None:
            mask &= self._of_queues(block, extent)
        rows = np.flatnonzero(mask)
        return Piece(block, extent, rows, limit) if rows.size else None

    def _wants_all(self, block: Block, extent: HeldExtent) -> bool:
        """Whether constant columns show that every row is selected."""
        if block.first < self.start or block.end > self.stop or not _alike(block.kinds):
            return False
        if not self._kinds[block.kinds[0]]:
            return False
        return self.queues is None or (_alike(block.queues) and bool(self._of_queues(block, extent)))

    def _of_queues(self, block: Block, extent: HeldExtent) -> Any:
        if extent is not self._extent:  # a number may stand for another queue there
            self._extent, self._verdicts = extent, {}
        numbers = block.queues
        if _alike(numbers):
            return self._wants(int(numbers[0]), block)
        wanted = [number for number in np.unique(numbers).tolist() if self._wants(number, block)]
        return np.isin(numbers, wanted)

    def _wants(self, number: int, block: Block) -> bool:
        verdict = self._verdicts.get(number)
        if verdict is None:
            verdict = self._verdicts[number] = self._decide(number, block)
        return verdict

    def _decide(self, number: int, block: Block) -> bool:
        if not callable(self.queues):
            return self.queues is None or number in self.queues
        assert self._extent is not None
        name = self._extent.name_of(number, block.end) if number else None
        return name is not None and self.queues(name)


def groups(pieces: Iterable[Piece], *, payloads: bool) -> Iterator[list[Piece]]:
    """Group pieces into batches. Small ones are combined; a large one stays alone, and is not copied."""
    group: list[Piece] = []
    held = held_bytes = 0
    for piece in pieces:
        adds = _bytes(piece) if payloads else 0
        if group and held_bytes + adds > MOST_BYTES:
            yield group
            group, held, held_bytes = [], 0, 0
        group.append(piece)
        held += len(piece.rows)
        held_bytes += adds
        if held >= GOOD_ROWS or (held_bytes >= GOOD_BYTES and held >= LEAST_ROWS):
            yield group
            group, held, held_bytes = [], 0, 0
    if group:
        yield group


def _alike(values: npt.NDArray[Any]) -> bool:
    """Whether a column of a block is stored as one value for all rows."""
    return not values.strides[0]


def _bytes(piece: Piece) -> int:
    """The payload bytes of the piece's whole block."""
    return int(piece.block.binary("payload")[0][-1])
