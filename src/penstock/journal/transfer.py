"""Copying a journal to another place, block for block: from a folder into a database, back, or to another of its kind.

The copy is the same journal, with its identity, positions, checkpoints, readers and tokens. No broker may own either
end meanwhile. Each block is checked as it is read, against its own checksums and the block before it, and the whole
copy when it is complete; until then no broker starts on it. An interrupted copy can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from penstock.journal.errors import JournalDamaged
from penstock.journal.files.disk import File
from penstock.journal.files.segment_assembly import SegmentSums
from penstock.journal.files.segment_reader import next_valid, walk
from penstock.journal.format.block import BlockError, BlockHeader
from penstock.journal.format.segment import HEADER_SIZE, segment_name

#: Values that belong to the journal. All others belong to its machine.
VALUES = ("readers.json", "tokens.json")

#: Called with the number of bytes processed since the last call.
Progress = Callable[[int], None]


class TransferFacts(NamedTuple):
    """The properties of a journal: see ``contract.Log``. ``created`` is in microseconds since 1970."""

    identity: int
    created: int
    epoch: int
    head: int
    low: int
    floor: int
    #: Ranges of positions, ends excluded, that an operator has given up by a repair.
    given_up: tuple[tuple[int, int], ...]
    #: Events after ``head`` were lost, so numbering must resume above them.
    put_back: bool = False


class TransferExtent(NamedTuple):
    """An extent. ``header`` is that of a segment, ``size`` the bytes of its blocks."""

    header: bytes
    sums: SegmentSums
    size: int

    @property
    def name(self) -> str:
        """The name of its segment."""
        return segment_name(self.sums.first)


class TransferBlock(NamedTuple):
    """A block with valid checksums."""

    header: BlockHeader
    data: memoryview


class TransferSource(Protocol):
    """The journal to copy. Nothing else may change it meanwhile."""

    facts: TransferFacts
    #: Oldest first.
    extents: list[TransferExtent]

    def blocks(self, extent: TransferExtent) -> Iterator[TransferBlock]:
        """The blocks of an extent. Raises JournalDamaged at a bad one."""

    def checkpoints(self) -> Iterator[tuple[int, bytes]]:
        """The position and bytes of each."""

    def value(self, name: str) -> bytes | None:
        """A named value, None if there is none."""

    def confirm(self) -> None:
        """Raise JournalRefused if it has changed since."""


class TransferTarget(Protocol):
    """The target of a copy: empty, or the remains of an interrupted copy of the same journal."""

    def begin(self, facts: TransferFacts, extents: list[TransferExtent]) -> None:
        """Prepare it, and remove other extents. Raises JournalRefused if it contains anything else."""

    def reached(self, extent: TransferExtent) -> int:
        """The position up to which the blocks of an extent are there already."""

    def add(self, extent: TransferExtent, blocks: Iterable[TransferBlock], progress: Progress) -> None:
        """Add the missing blocks of an extent, in order."""

    def put_checkpoint(self, position: int, data: bytes) -> None:
        """Add a checkpoint."""

    def put_value(self, name: str, value: bytes) -> None:
        """Add a value."""

    def end(self, progress: Progress) -> None:
        """Check the complete copy, and make it available to brokers. Raises JournalRefused if it is damaged."""


class Copied(NamedTuple):
    """The result of a copy."""

    facts: TransferFacts
    extents: int
    bytes: int


def copy_journal(
    source: AbstractContextManager[TransferSource],
    target: AbstractContextManager[TransferTarget],
    measure: Callable[[str, int], AbstractContextManager[Progress]],
    *,
    restores: bool = False,
) -> Copied:
    """Copy a journal. ``measure`` gets the name of a phase and its bytes, and returns the progress to call.

    ``restores``: the source is a backup, and its journal has been used since.
    Raises LogError or OSError. The target is not a journal then, and the same call continues the copy.
    """
    with source as old, target as new:
        facts, extents = old.facts, old.extents
        facts = facts._replace(put_back=facts.put_back or restores)
        total = sum(extent.size for extent in extents)
        new.begin(facts, extents)
        with measure("copying", total) as progress:
            for extent in extents:
                _copy_extent(old, new, extent, progress)
            for position, data in old.checkpoints():
                new.put_checkpoint(position, data)
            for name in VALUES:
                value = old.value(name)
                if value is not None:
                    new.put_value(name, value)
        old.confirm()
        with measure("checking", total) as progress:
            new.end(progress)
    return Copied(facts, len(extents), total)


def _copy_extent(old: TransferSource, new: TransferTarget, extent: TransferExtent, progress: Progress) -> None:
    reached = new.reached(extent)
    if reached >= extent.sums.end:
        progress(extent.size)
        return
    new.add(extent, _rest(old.blocks(extent), reached, progress), progress)


def _rest(blocks: Iterator[TransferBlock], position: int, progress: Progress) -> Iterator[TransferBlock]:
    for block in blocks:
        if block.header.end > position:
            yield block
        else:
            progress(len(block.data))


def checked_blocks(where: str, file: File, extent: TransferExtent) -> Iterator[TransferBlock]:
    """The blocks in a segment file, checked. Raises JournalDamaged."""
    position, offset = extent.sums.first, HEADER_SIZE
    chain = int.from_bytes(extent.header[-4:], "little")
    try:
        for header, view, at in walk(file, HEADER_SIZE, HEADER_SIZE + extent.size, position, chain):
            yield TransferBlock(header, view)
            position, offset = header.end, at + header.length
        if position != extent.sums.end:
            raise BlockError(offset, f"it ends at position {position}, but {extent.sums.end} was confirmed")
    except BlockError as error:
        following = next_valid(file, error.offset, position + 1, stop=HEADER_SIZE + extent.size)
        lost = (position, following.first if following is not None else max(extent.sums.end, position + 1))
        raise JournalDamaged(where, extent.name, error.offset, lost, error.reason) from None
