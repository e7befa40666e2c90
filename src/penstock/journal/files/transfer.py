"""A folder as the source or target of a copy. An unfinished target is beside the folder, as ``NAME.partial``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress

from typing_extensions import override

from penstock.journal.contract import FIRST_POSITION, Durability, resume_after
from penstock.journal.errors import JournalRefused
from penstock.journal.files.checkpoints import CheckpointReader, checkpoint_name, is_checkpoint
from penstock.journal.files.disk import RealDisk, read_whole, write_all
from penstock.journal.files.folder import LOCK, Folder, load_folder, store_folder, take_lock
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.kept_segments import load_kept
from penstock.journal.files.recovery import inspect
from penstock.journal.files.segment_assembly import SegmentAssembly, SegmentSums
from penstock.journal.files.segment_reader import read_footer
from penstock.journal.files.tail import TailWriter
from penstock.journal.files.values import FileValues
from penstock.journal.format.segment import HEADER_SIZE, Segment, is_segment
from penstock.journal.repair.survey import survey
from penstock.journal.transfer import (
    Progress,
    TransferBlock,
    TransferExtent,
    TransferFacts,
    TransferSource,
    TransferTarget,
    checked_blocks,
)

PARTIAL = ".partial"
#: Bytes written at a time.
_PIECE = 4 * 2**20


class FolderSource(TransferSource):
    """A folder to copy from. Nothing in it is changed."""

    def __init__(self, disk: RealDisk) -> None:
        """The caller holds the folder's lock. Raises JournalRefused or JournalDamaged."""
        self._disk = disk
        found = inspect(disk)
        kept = load_kept(disk, found.folder.identity)
        if kept:
            raise JournalRefused(
                f"{disk.where} has damaged messages in {kept[0].name}: repair that file, or give them up with"
                f" penstock journal repair {disk.where}"
            )
        folder, segments = found.folder, found.segments
        low = segments[0].first if segments else FIRST_POSITION
        floor = found.tail.floor if found.tail else 0
        head = segments[-1].end if segments else FIRST_POSITION
        self.facts = TransferFacts(
            folder.identity,
            folder.created,
            folder.epoch,
            head,
            low,
            floor,
            folder.given_up,
            put_back=found.end > head,
        )
        self.extents = [self._extent(segment) for segment in segments]

    def _extent(self, segment: Segment) -> TransferExtent:
        with closing(self._disk.open(segment.name)) as file:
            header, footer = file.read(HEADER_SIZE, 0), read_footer(file, segment.first)
        flags = footer.flags if footer is not None else 0
        sums = SegmentSums(flags, segment.first, segment.end, segment.last_at, segment.chain, segment.blocks)
        return TransferExtent(header, sums, segment.blocks_end - HEADER_SIZE)

    @override
    def blocks(self, extent: TransferExtent) -> Iterator[TransferBlock]:
        with closing(self._disk.open(extent.name)) as file:
            yield from checked_blocks(self._disk.where, file, extent)

    @override
    def checkpoints(self) -> Iterator[tuple[int, bytes]]:
        for position in CheckpointReader(self._disk, self.facts.identity).positions():
            yield position, read_whole(self._disk, checkpoint_name(position))

    @override
    def value(self, name: str) -> bytes | None:
        return FileValues(self._disk).get(name)

    @override
    def confirm(self) -> None:
        """Do nothing: the lock prevents changes."""


@contextmanager
def folder_source(folder: str) -> Iterator[FolderSource]:
    """Open a folder and lock it. Raises JournalRefused if a broker uses it, or if it is not a journal."""
    if not os.path.isfile(os.path.join(folder, FOLDER)):
        raise JournalRefused(f"{folder} is not a journal: it has no {FOLDER}")
    disk = RealDisk(folder)
    with closing(take_lock(disk)):
        yield FolderSource(disk)


class FolderTarget(TransferTarget):
    """A folder to create."""

    def __init__(self, folder: str) -> None:
        """Raises JournalRefused if it is not empty."""
        if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
            raise JournalRefused(f"{folder} is not empty: a journal is copied into a new folder")
        self._folder = folder
        self._partial = folder.rstrip("/") + PARTIAL
        self._disk = RealDisk(self._partial)
        self._facts: TransferFacts | None = None

    @override
    def begin(self, facts: TransferFacts, extents: list[TransferExtent]) -> None:
        self._facts = facts
        names = [name for name in self._disk.names() if name != LOCK]
        known = load_folder(self._disk)
        if (known is None and names) or (known is not None and known.identity != facts.identity):
            raise JournalRefused(f"{self._partial} belongs to something else: move it away")
        wanted = {extent.name for extent in extents}
        for name in names:
            if is_checkpoint(name) or (is_segment(name) and name not in wanted):
                self._disk.unlink(name)
        start = facts.low if extents else 0
        resumes = resume_after(facts.head, time.time_ns() // 1000) if facts.put_back else 0
        folder = Folder(facts.identity, facts.created, facts.epoch, start, facts.given_up, resumes)
        store_folder(self._disk, folder)

    @override
    def reached(self, extent: TransferExtent) -> int:
        """Segments are complete or missing."""
        with suppress(FileNotFoundError), closing(self._disk.open(extent.name)) as file:
            footer, sums = read_footer(file, extent.sums.first), extent.sums
            if footer is not None and file.read(HEADER_SIZE, 0) == extent.header:
                there = SegmentSums(footer.flags, footer.first, footer.end, footer.last_at, footer.chain, footer.blocks)
                return sums.end if there == sums else sums.first
        return extent.sums.first

    @override
    def add(self, extent: TransferExtent, blocks: Iterable[TransferBlock], progress: Progress) -> None:
        with suppress(FileNotFoundError):
            self._disk.unlink(extent.name)
        with closing(self._disk.create(extent.name)) as file:
            assembly = SegmentAssembly(file, extent.header, extent.sums.first)
            for some in in_pieces(blocks, _PIECE):
                assembly.add([(block.header.first, block.header.end, bytes(block.data)) for block in some])
                progress(sum(len(block.data) for block in some))
            assembly.finish(extent.sums)
            file.sync()

    @override
    def put_checkpoint(self, position: int, data: bytes) -> None:
        with closing(self._disk.create(checkpoint_name(position))) as file:
            write_all(file, [data], 0)
            file.sync()

    @override
    def put_value(self, name: str, value: bytes) -> None:
        FileValues(self._disk).put(name, value)

    @override
    def end(self, progress: Progress) -> None:
        assert self._facts is not None
        facts = self._facts
        tail = TailWriter(self._disk, Durability.COMMIT, facts.identity)
        tail.publish(facts.head, facts.floor, facts.low, facts.epoch)
        tail.sync()
        tail.close()
        self._disk.sync()
        found = survey(self._disk, progress)
        if found.problems:
            raise JournalRefused(f"the copy in {self._partial} is damaged: {found.problems[0].text}")
        with suppress(FileNotFoundError):
            os.rmdir(self._folder)
        os.rename(self._partial, self._folder)
        RealDisk(os.path.dirname(os.path.abspath(self._folder))).sync()


@contextmanager
def folder_target(folder: str) -> Iterator[FolderTarget]:
    """Create a folder, locked while it is incomplete. Raises JournalRefused."""
    target = FolderTarget(folder)
    with closing(take_lock(RealDisk(folder.rstrip("/") + PARTIAL))):
        yield target


def in_pieces(blocks: Iterable[TransferBlock], size: int) -> Iterator[list[TransferBlock]]:
    """Group blocks into lists of about ``size`` bytes."""
    some: list[TransferBlock] = []
    have = 0
    for block in blocks:
        some.append(block)
        have += len(block.data)
        if have >= size:
            yield some
            some, have = [], 0
    if some:
        yield some
