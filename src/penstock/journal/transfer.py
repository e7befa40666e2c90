"""Copying a journal to another place, block for block: from a folder into a database, back, or to another of its kind.

The copy is the same journal: its identity, positions, checkpoints, readers and tokens come along. Nobody may own either
end meanwhile. Each block is checked as it is read, against its own checksums and the block before it, and the copy as a
whole when it is complete; until then no broker starts on it. A copy that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from penstock.journal.errors import JournalDamaged
from penstock.journal.files.disk import File
from penstock.journal.files.segment_assembly import SegmentSums
from penstock.journal.files.segment_reader import next_sound, walk
from penstock.journal.format.block import BlockError, BlockHeader
from penstock.journal.format.segment import HEADER_SIZE, segment_name

#: Values that belong to a journal wherever it is; others are of the machine that it was on.
VALUES = ("readers.json", "tokens.json")

#: Told how many more bytes were looked at or written.
Progress = Callable[[int], None]


class TransferFacts(NamedTuple):
    """What a journal says of itself as a whole: see ``contract.Log``. ``created`` is in microseconds since 1970."""

    identity: int
    created: int
    epoch: int
    head: int
    low: int
    floor: int
    #: Ranges of positions, ends excluded, that an operator has given up by a repair.
    given_up: tuple[tuple[int, int], ...]
    #: Events behind ``head`` were lost, so numbering must go on where none of them was.
    put_back: bool = False


class TransferExtent(NamedTuple):
    """An extent. ``header`` is that of a segment, ``size`` the bytes of its blocks."""

    header: bytes
    sums: SegmentSums
    size: int

    @property
    def name(self) -> str:
        """That of its segment."""
        return segment_name(self.sums.first)


class TransferBlock(NamedTuple):
    """A block whose checksums were right."""

    header: BlockHeader
    data: memoryview


class TransferSource(Protocol):
    """A journal that is copied. Nobody else may change it meanwhile."""

    facts: TransferFacts
    #: Oldest first.
    extents: list[TransferExtent]

    def blocks(self, extent: TransferExtent) -> Iterator[TransferBlock]:
        """The blocks of an extent. Raises JournalDamaged at a bad one."""

    def checkpoints(self) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of each."""

    def value(self, name: str) -> bytes | None:
        """A value; None if there is none."""

    def confirm(self) -> None:
        """Raises JournalRefused if somebody has changed it since."""


class TransferTarget(Protocol):
    """Where a journal is copied to: nothing, or what an interrupted copy of the same journal has left."""

    def begin(self, facts: TransferFacts, extents: list[TransferExtent]) -> None:
        """Make it ready. What is there of other extents goes. Raises JournalRefused where something else is."""

    def reached(self, extent: TransferExtent) -> int:
        """All blocks of an extent that end at or below this position are there."""

    def add(self, extent: TransferExtent, blocks: Iterable[TransferBlock], progress: Progress) -> None:
        """Add the blocks of an extent that are not there, in order."""

    def put_checkpoint(self, position: int, data: bytes) -> None:
        """Add a checkpoint."""

    def put_value(self, name: str, value: bytes) -> None:
        """Add a value."""

    def end(self, progress: Progress) -> None:
        """All is there: check it, and let brokers start on it. Raises JournalRefused if it is not sound."""


class Copied(NamedTuple):
    """What was copied."""

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
    """Copy all. ``measure`` is told what begins and how many bytes there are, and gives who is told of each step.

    ``restores``: the source is a backup of a journal that has gone on since.
    Raises LogError, or OSError; then the target is no journal yet, and the same call goes on where it was.
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
    """The blocks in a segment file, each checked. Raises JournalDamaged."""
    position, offset = extent.sums.first, HEADER_SIZE
    chain = int.from_bytes(extent.header[-4:], "little")
    try:
        for header, view, at in walk(file, HEADER_SIZE, HEADER_SIZE + extent.size, position, chain):
            yield TransferBlock(header, view)
            position, offset = header.end, at + header.length
        if position != extent.sums.end:
            raise BlockError(offset, f"it ends at position {position}, but {extent.sums.end} was confirmed")
    except BlockError as error:
        sound = next_sound(file, error.offset, position + 1, stop=HEADER_SIZE + extent.size)
        lost = (position, sound.first if sound is not None else max(extent.sums.end, position + 1))
        raise JournalDamaged(where, extent.name, error.offset, lost, error.reason) from None
