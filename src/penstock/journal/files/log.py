"""The log in a folder of segment files.

    penstock.json              format, identity, epoch                     ``folder``
    lock                       held by the running broker                  ``folder``
    tail                       how far the log goes, for other processes   ``tail``
    reserve                    space for when the disk is full             ``space``
    000000000000002a.seg       the events from position 42 on              ``segment``
    0000000000000c00.ckpt      the state before position 3072              ``checkpoints``

All other files are ignored. A start never appends to an old segment: the first append begins a new one.

``FileLog`` writes the newest segment and removes the oldest ones. Its parts read (``log_reader``), record where the log
begins and ends (``marks``), and decide what an error of the disk means (``failures``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator
from contextlib import ExitStack

from mypy_extensions import mypyc_attr
from typing_extensions import override

from penstock.journal.contract import FIRST_POSITION, BadRange, Durability, Extent, OwnerOptions
from penstock.journal.errors import JournalRefused, LogClosed
from penstock.journal.files.checkpoints import is_checkpoint
from penstock.journal.files.disk import Disk
from penstock.journal.files.failures import DiskFailures
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.folder import Folder, store_folder, take_lock
from penstock.journal.files.kept_segments import load_kept
from penstock.journal.files.log_reader import LogReader
from penstock.journal.files.marks import JournalMarks
from penstock.journal.files.recovery import check_reach, finish_recovery, inspect
from penstock.journal.files.segment_reader import Locator
from penstock.journal.files.segment_writer import SegmentWriter
from penstock.journal.files.space import START_BYTES, DiskSpace
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.format.block import Batch, Block
from penstock.journal.format.segment import KEPT, Segment, is_kept, is_segment
from penstock.journal.segmented_log import SegmentedLog


@mypyc_attr(allow_interpreted_subclasses=True)  # tests put seams into it
class FileLog(SegmentedLog):
    """The durable log of one broker. Its public methods are those of ``contract.Log`` and ``contract.OwnedJournal``."""

    def __init__(
        self,
        disk: Disk,
        options: OwnerOptions | None = None,
        *,
        identity: int | None = None,
        created: int | None = None,
        look_first: bool = False,
    ) -> None:
        """Open the folder, or make a new journal in it.

        With ``look_first`` nothing that is there is changed before ``begin``: the log can be read and closed.
        ``identity`` and ``created`` (microseconds) are for a new journal; the default is random, and now.
        Finished segments are opened by their headers and footers alone; their blocks are checked when they are read.
        Raises JournalRefused with what to do, LogFailed if the disk does not work, LogFull if there is no room at all.
        """
        super().__init__(options)
        self._disk = disk
        self._begun = self._closed = False
        self._syncs = self.options.durability is Durability.COMMIT
        self._waits_for_sync = self.options.durability is Durability.INTERVAL
        self._writer: SegmentWriter | None = None
        self._failures = DiskFailures(disk.where)
        self._locator = Locator(disk)
        self._reader = LogReader(disk, self._locator, self._failures)
        self._files = ExitStack()  # closed together
        with self._failures.converted(starting=True):
            self._files.callback(take_lock(disk).close)
        self._files.callback(self._locator.close)
        try:
            with self._failures.converted(starting=True):
                self.space = DiskSpace(disk, self.options.reserve)
                self._files.callback(self.space.close)
                self.space.make_sure(START_BYTES)
                _make_if_new(disk, identity, created)
                found = self._found = inspect(disk)
                floor = found.tail.floor if found.tail else 0
                self._marks = JournalMarks(disk, self.space, found.folder, floor)
                self._files.callback(self._marks.close)
                #: What the start repaired.
                self.report = found.findings
                self._segments = found.segments
                self._kept = load_kept(disk, self.identity)
                self._end = self._committed = self._synced = found.end
            if not look_first:
                self.begin()
        except BaseException:
            self._close_files()
            raise

    def begin(self) -> None:
        """Repair what a crash has left, and get ready to write. Raises LogFull without room for that."""
        with self._failures.converted(starting=True):
            finish_recovery(self._disk, self._found)
            self._marks.begin(self.options.durability)
            self._begun = True
            self._publish()

    # Its state

    @property
    @override
    def identity(self) -> int:
        return self._marks.folder.identity

    @property
    @override
    def epoch(self) -> int:
        return self._marks.folder.epoch

    @property
    def committed(self) -> int:
        """Every event below this position is as durable as the options ask for."""
        return self._committed

    @property
    def synced(self) -> int:
        """Every event below this position is on disk, whatever the durability."""
        return self._synced

    @property
    def floor(self) -> int:
        """Where the history for readers begins."""
        return max(self._marks.floor, self.start)

    @property
    @override
    def _growing(self) -> Segment | None:
        return self._writer.segment if self._writer is not None else None

    @property
    def expects_checkpoint(self) -> bool:
        """One is written when a segment is finished, and at a clean stop; before anything is trimmed at the latest."""
        segments = self._segments
        return self.start > FIRST_POSITION or len(segments) > 1 or any(segment.clean for segment in segments)

    @property
    def given_up(self) -> tuple[tuple[int, int], ...]:
        """Ranges of positions, ends excluded, that an operator has given up by a repair."""
        return self._marks.folder.given_up

    def check_reach(self, position: int) -> bool:
        """Whether all events from a checkpoint's position on are readable; False: the checkpoint is too old.

        Raises JournalDamaged if they should be and are not.
        """
        return check_reach(self._disk, self._segments, self._end, position, trimmed=bool(self._marks.folder.start))

    # Writing

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """Write one block, and sync it under COMMIT. A failed write or sync ends the log."""
        self._check_usable()
        self._check_expected(batch, expected_position, epoch)
        try:
            writer = self._writer_for(batch, roll=roll)
            writer.append(batch, epoch)
            self._end = writer.segment.end
            if self._syncs:
                self._sync_writer(writer)
                self._synced = self._end
            if not self._waits_for_sync:
                self._committed = self._end
                self._publish()
            if not self._marks.folder.start:
                self._store_start()
        except OSError as error:
            raise self._failures.end_log(error) from error

    def _writer_for(self, batch: Batch, *, roll: bool) -> SegmentWriter:
        if roll:
            self._finish_segment()
        if self._writer is None:
            header = self._next_header(batch, self.options.durability)
            self._writer = SegmentWriter(self._disk, header, self.space)
            with self._changing:
                self._segments = [*self._segments, self._writer.segment]
        return self._writer

    def _sync_writer(self, writer: SegmentWriter) -> None:
        began = time.perf_counter()
        writer.sync()
        self.sync_seconds += time.perf_counter() - began

    def _finish_segment(self) -> None:
        if self._writer is not None and self._writer.segment.blocks:
            self._writer.finish()
            self._writer = None
            self._synced = self._end

    def sync(self) -> None:
        """Commit everything. Under OS too this waits for the disk."""
        self._check_usable()
        with self._failures.converted(fatal=True):
            if self._writer is not None:
                self._sync_writer(self._writer)
            self._committed = self._synced = self._end
            self._publish()

    def seal(self, epoch: int) -> None:
        """Accept only appends with this epoch. The epoch is on disk on return."""
        self._check_usable()
        self._check_newer(epoch)
        with self._failures.converted(fatal=True):
            self._marks.store_epoch(epoch, self._required_from())
            self._publish()

    def set_floor(self, position: int) -> None:
        """Move the beginning of the history. Readers see it after the next append or sync."""
        self._marks.set_floor(position)

    def close(self) -> None:
        """Finish the segment, so that the next start has nothing to scan."""
        if self._closed:
            return
        try:
            if self._failures.fatal is None and self._begun:
                with self._failures.converted(fatal=True):
                    self._finish_segment()
                    self._committed = self._end
                    self._publish()
        finally:
            self._closed = True
            self._close_files()

    def _close_files(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._files.close()

    # Removing old segments

    def trim(self, before: int, keep: Container[int] = ()) -> None:
        """Remove segments that end at or below a position, or keep them apart. Any thread may call it."""
        self._check_usable()
        with self._failures.converted(fatal=True):
            going = [segment for segment in self._segments[:-1] if segment.end <= before]
            stored = True
            if going:
                with self._changing:
                    self._segments = self._segments[len(going) :]
                    self._publish()  # before the files go, so that readers don't start on them
                stored = self._store_start()  # nor must a start take them for lost
            for oldest in going:
                if oldest.first in keep:
                    self._keep(oldest)
                else:
                    self._locator.forget(oldest)
                    self._disk.unlink(oldest.name)
                self._disk.sync()  # one by one: a crash must not bring back an older one without its successor
            if not stored:
                self._store_start()

    def _keep(self, segment: Segment) -> None:
        self._locator.forget(segment)
        self._disk.rename(segment.name, segment.name + KEPT)
        segment.name += KEPT
        self._kept = [*self._kept, segment]

    def release(self, extent: Extent) -> None:
        """Remove a kept segment. Any thread may call it."""
        self._check_usable()
        segment = next(each for each in self._kept if each.first == extent.first)
        with self._failures.converted(fatal=True):
            self._kept = [each for each in self._kept if each is not segment]
            self._locator.forget(segment)
            self._disk.unlink(segment.name)
            self._disk.sync()

    # Reading

    def read(self, start: int) -> Iterator[Block]:
        """The committed blocks with events at ``start`` or later, in order. Raises JournalDamaged at a bad one."""
        return self._reader.read(self._segments, start, self._committed)

    @override
    def locate(self, position: int) -> Block:
        block = self._reader.locate(self._segment_of(position), position)
        if block is None:
            raise self._gone(position)
        return block

    @override
    def resident(self, position: int) -> Block | None:
        segment = self._find_segment(position)
        return None if segment is None else self._locator.resident(segment, position)

    @override
    def at_once(self, position: int) -> Block | None:
        segment = self._find_segment(position)
        return None if segment is None else self._locator.at_once(segment, position)

    def check(self, extent: Extent) -> Iterator[tuple[int, BadRange | None]]:
        """Verify a finished segment step by step. Any thread may call it."""
        return self._reader.check(self._segment_of(extent.first))

    def forget_damage(self) -> None:
        """Read damaged places again when they are needed: the file may have been replaced."""
        self._locator.forget_damage()

    def forget_unused(self) -> bool:
        """Drop cached blocks if none was used since the last call. Returns whether there were any."""
        return self._locator.forget_unused()

    # Its files

    def _publish(self) -> None:
        with self._changing:
            self._marks.publish(self._committed, self.start)

    def _required_from(self) -> int:
        """The position from which on a start requires every event; 0 before the first block is written."""
        stored, segments = self._marks.folder.start, self._segments
        return self.start if segments and (stored or segments[0].blocks) else stored

    def _store_start(self) -> bool:
        """Store where a start begins to read. False: on a full disk only the ``tail``, which needs no room, has it."""
        if self._marks.store_start(self._required_from()):
            return True
        with self._changing:  # a commit may overwrite the tail that is copied
            self._marks.keep_published()
        return False

    def _check_usable(self) -> None:
        if self._failures.fatal is not None:
            raise self._failures.fatal
        if self._closed:
            raise LogClosed(f"the journal in {self._disk.where} was closed")


def _make_if_new(disk: Disk, identity: int | None, created: int | None) -> None:
    """Write down whose journal this will be, in a folder that has none."""
    names = disk.names()
    if FOLDER in names:
        return
    if any(name == TAIL or is_segment(name) or is_kept(name) or is_checkpoint(name) for name in names):
        raise JournalRefused(
            f"{disk.where} has files of a journal but no penstock.json: put it back, or: penstock journal repair"
            f" {disk.where}"
        )
    if identity is None:
        identity = int.from_bytes(os.urandom(8), "little")
    store_folder(disk, Folder(identity, time.time_ns() // 1000 if created is None else created))
