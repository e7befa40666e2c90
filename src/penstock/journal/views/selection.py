"""Which rows of which blocks a view shows, and how many blocks go together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.journal.contract import HeldExtent, LocatedBlock
from penstock.journal.format.block import Block
from penstock.journal.format.catalogue import QueueName
from penstock.schema import Kind

#: A group is complete with so many rows: less costs more per row, for us and for Spark …
GOOD_ROWS = 8192
#: … or with so many bytes and at least so many rows …
GOOD_BYTES = 8 * 1024 * 1024
LEAST_ROWS = 512
#: … and never has more payload bytes than one block may have.
MOST_BYTES = 64 * 1024 * 1024

#: Queue numbers, or a question about a queue's name; None for all queues.
Queues: TypeAlias = Collection[int] | Callable[[QueueName], bool] | None
Index: TypeAlias = npt.NDArray[np.intp]

_PUBLISHED = np.zeros(256, np.bool_)
_PUBLISHED[Kind.PUBLISHED] = True
#: What the view of events leaves out: it is about where things lie, not about what happened.
SHOWN = np.ones(256, np.bool_)
SHOWN[[Kind.CARRIED, Kind.CATALOGUE, Kind.HELD]] = False


class Piece(NamedTuple):
    """Some rows of one block."""

    block: Block
    extent: HeldExtent
    #: Row numbers.
    rows: Index
    #: Where the position of every queue's name is looked up at most: the end of what may be read.
    limit: int
    #: Whether these are known to be all rows of the block, in order: its columns can be taken as they are.
    whole: bool = False

    def name_of(self, number: int) -> QueueName | None:
        """The name of a queue that the block mentions."""
        return self.extent.name_of(number, self.limit)


class Selection:
    """The rows that are wanted: a range of positions, some kinds, some queues."""

    def __init__(self, start: int, stop: int, queues: Queues, *, messages: bool) -> None:
        self.start = start
        self.stop = stop
        self.queues = queues
        self._kinds = _PUBLISHED if messages else SHOWN
        self._messages = messages
        self._verdicts: dict[int, bool] = {}
        self._extent: HeldExtent | None = None

    def piece(self, found: LocatedBlock) -> Piece | None:
        """The wanted rows of a block, if it has any."""
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
        """Whether every row is wanted, as far as that is told by columns with one value for all rows."""
        if block.first < self.start or block.end > self.stop or not _alike(block.kinds):
            return False
        if not self._kinds[block.kinds[0]]:
            return False
        return self.queues is None or (_alike(block.queues) and bool(self._of_queues(block, extent)))

    def _of_queues(self, block: Block, extent: HeldExtent) -> Any:
        if extent is not self._extent:  # a number may mean another queue there
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
    """Pieces that become one batch. Small ones are put together; a large one stays alone, and is not copied."""
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
    """Whether a column of a block has one value for all rows, and is stored so."""
    return not values.strides[0]


def _bytes(piece: Piece) -> int:
    """The payload bytes of the block, of which the piece has all or some."""
    return int(piece.block.binary("payload")[0][-1])
