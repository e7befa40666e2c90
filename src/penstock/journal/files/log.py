"""The log in a folder of segment files.

    penstock.json              format, identity, epoch                     ``folder``
    lock                       held by the running broker                  ``folder``
    tail                       how far it goes, for other processes        ``tail``
    reserve                    room for when the disk is full              ``space``
    000000000000002a.seg       the events from position 42 on              ``segment``
    0000000000000c00.ckpt      the state before position 3072              ``checkpoints``

All other files are left alone. A start never appends to an old segment: the first append makes a new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager

from mypy_extensions import mypyc_attr

from penstock.journal.contract import FIRST_POSITION, BadRange, Durability, Extent, OwnerOptions
from penstock.journal.errors import Gone, JournalDamaged, JournalRefused, LogClosed, LogFailed, LogFull, is_full
from penstock.journal.files.checkpoints import is_checkpoint
from penstock.journal.files.disk import Disk, File
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.folder import Folder, store_folder, take_lock
from penstock.journal.files.kept_segments import load_kept
from penstock.journal.files.recovery import Recovered, check_reach, inspect, put_right
from penstock.journal.files.segment_reader import (
    BadBlocks,
    Locator,
    Unsound,
    next_sound,
    read_blocks,
    scan,
    walk,
    while_open,
)
from penstock.journal.files.segment_writer import SegmentWriter
from penstock.journal.files.space import START_BYTES, DiskSpace
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.files.tail import TailWriter
from penstock.journal.format.block import Batch, Block, BlockError
from penstock.journal.format.segment import HEADER_SIZE, KEPT, Segment, is_kept, is_segment
from penstock.journal.repair.survey import Finding
from penstock.journal.segmented_log import SegmentedLog


@mypyc_attr(allow_interpreted_subclasses=True)  # tests put seams into it
class FileLog(SegmentedLog):
    """The durable log of one broker. See ``contract.Log``."""

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

        With ``look_first`` nothing that is there is changed before ``begin``: the log can be read, and let go.
        ``identity`` and ``created`` (microseconds) are for a new journal; they are drawn and looked up if not given.
        Finished segments are opened by their headers and footers alone; their blocks are checked when they are read.
        Raises JournalRefused with what to do, LogFailed if the disk does not work, LogFull if there is no room at all.
        """
        super().__init__(options)
        #: What was put right at the start.
        self.report: list[Finding] = []
        self._disk = disk
        self._failed: LogFailed | None = None
        self._closed = False
        self._committed = self._synced = FIRST_POSITION
        self._syncs = self.options.durability is Durability.COMMIT
        self._waits_for_sync = self.options.durability is Durability.INTERVAL
        self._floor = 0
        self._folder: Folder
        self._found: Recovered
        self._writer: SegmentWriter | None = None
        self._tail: TailWriter | None = None
        self._locator = Locator(disk)
        with self._disk_errors(starting=True):
            self._lock = take_lock(disk)
        self._space: DiskSpace | None = None
        try:
            with self._disk_errors(starting=True):
                self._space = DiskSpace(disk, self.options.reserve)
                self._space.make_sure(START_BYTES)
                _make_if_new(disk, identity, created)
                self._recover()
            if not look_first:
                self.begin()
        except BaseException:
            self._let_go()
            raise

    # What it says of itself

    @property
    def identity(self) -> int:
        """See Log."""
        return self._folder.identity

    @property
    def epoch(self) -> int:
        """See Log."""
        return self._folder.epoch

    @property
    def committed(self) -> int:
        """See Log."""
        return self._committed

    @property
    def synced(self) -> int:
        """Every event below this position is on disk, whatever the durability asks for."""
        return self._synced

    @property
    def floor(self) -> int:
        """See Log."""
        return max(self._floor, self.start)

    @property
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
        return self._folder.given_up

    def check_reach(self, position: int) -> bool:
        """Whether all events from a checkpoint's position on are there to be read; False: it is too old.

        Raises JournalDamaged if they should be and are not.
        """
        return check_reach(self._disk, self._segments, self._end, position, trimmed=bool(self._folder.start))

    @property
    def space(self) -> DiskSpace:
        """The room there is."""
        assert self._space is not None
        return self._space

    # Writing

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """See Log."""
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
            if not self._folder.start:
                self._note_start_anyway()
        except OSError as error:
            raise self._fail(error) from error

    def _sync_writer(self, writer: SegmentWriter) -> None:
        began = time.perf_counter()
        writer.sync()
        self.sync_seconds += time.perf_counter() - began

    def sync(self) -> None:
        """See Log. Under OS too this waits for the disk."""
        self._check_usable()
        with self._disk_errors(fatal=True):
            if self._writer is not None:
                self._sync_writer(self._writer)
            self._committed = self._synced = self._end
            self._publish()

    def seal(self, epoch: int) -> None:
        """See Log. The epoch is on disk on return."""
        self._check_usable()
        self._check_newer(epoch)
        with self._disk_errors(fatal=True):
            self.space.spend(lambda: self._note_start(epoch), START_BYTES)
            self._publish()

    def set_floor(self, position: int) -> None:
        """See Log."""
        self._floor = position

    def trim(self, before: int, keep: Container[int] = ()) -> None:
        """See Log. Any thread may call it."""
        self._check_usable()
        with self._disk_errors(fatal=True):
            going = [segment for segment in self._segments[:-1] if segment.end <= before]
            noted = True
            if going:
                with self._changing:
                    self._segments = self._segments[len(going) :]
                    self._publish()  # before the files go, so that readers don't start on them
                noted = self._note_start_anyway()  # nor must a start take them for lost
            for oldest in going:
                if oldest.first in keep:
                    self._keep(oldest)
                else:
                    self._locator.forget(oldest)
                    self._disk.unlink(oldest.name)
                self._disk.sync()  # one by one: a crash must not bring back an older one without its successor
            if not noted:
                self._note_start_anyway()

    def release(self, extent: Extent) -> None:
        """See Log."""
        self._check_usable()
        segment = next(each for each in self._kept if each.first == extent.first)
        with self._disk_errors(fatal=True):
            self._kept = [each for each in self._kept if each is not segment]
            self._locator.forget(segment)
            self._disk.unlink(segment.name)
            self._disk.sync()

    def _keep(self, segment: Segment) -> None:
        self._locator.forget(segment)
        self._disk.rename(segment.name, segment.name + KEPT)
        segment.name += KEPT
        self._kept = [*self._kept, segment]

    def _note_start_anyway(self) -> bool:
        """As below. False: on a full disk, `tail` must do for now, which takes no space; room is about to be made."""
        try:
            self.space.spend(self._note_start, START_BYTES)
        except LogFull:
            assert self._tail is not None
            with self._changing:  # commits write over what is copied
                self._tail.keep()
            return False
        return True

    def _note_start(self, epoch: int = 0) -> None:
        """Write down from where on all must be there, once there is something; and the epoch, if it is a new one."""
        written = bool(self._segments and (self._folder.start or self._segments[0].blocks))
        start = self.start if written else self._folder.start
        folder = self._folder._replace(start=start, epoch=epoch or self.epoch)
        store_folder(self._disk, folder)
        self._folder = folder

    def close(self) -> None:
        """See Log. The next start then has nothing to scan."""
        if self._closed:
            return
        try:
            if self._failed is None and self._tail is not None:
                with self._disk_errors(fatal=True):
                    self._finish_segment()
                    self._committed = self._end
                    self._publish()
        finally:
            self._closed = True
            self._let_go()

    # Reading

    def read(self, start: int) -> Iterator[Block]:
        """See Log. Each block's checksum is checked, unless that was done when the log was opened."""
        limit = self._committed
        for segment in self._segments:
            if segment.end > start and segment.first < limit:
                yield from self._read_segment(segment, start, limit)

    def locate(self, position: int) -> Block:
        """The block that has this position, committed or not. Raises Gone."""
        segment = self._segment_of(position)
        try:
            with self._disk_errors():
                block = self._locator.find(segment, position)
        except Unsound as error:
            raise JournalDamaged(self._disk.where, segment.name, error.offset, error.lost, error.reason) from None
        if block is None:
            raise self._gone(position)
        return block

    def resident(self, position: int) -> Block | None:
        """See Log."""
        segment = self._find_segment(position)
        return None if segment is None else self._locator.resident(segment, position)

    def at_once(self, position: int) -> Block | None:
        """See Log: the system has it in memory."""
        segment = self._find_segment(position)
        return None if segment is None else self._locator.at_once(segment, position)

    def check(self, extent: Extent) -> Iterator[tuple[int, BadRange | None]]:
        """See Log."""
        segment = self._segment_of(extent.first)
        steps = while_open(
            lambda: self._disk.open(segment.name),
            lambda file: scan(file, HEADER_SIZE, segment.blocks_end, segment.first, segment.end),
        )
        for block, bad in steps:
            yield (block.header.length if block is not None else 0), bad and _bad_range(segment, bad)

    def forget_damage(self) -> None:
        """See Log."""
        self._locator.forget_damage()

    def forget_unused(self) -> bool:
        """See Log."""
        return self._locator.forget_unused()

    # How it is done

    def _recover(self) -> None:
        found = self._found = inspect(self._disk)
        self._folder = found.folder
        self.report = found.findings
        self._segments = found.segments
        self._kept = load_kept(self._disk, self.identity)
        self._end = self._committed = self._synced = found.end
        self._floor = found.tail.floor if found.tail else 0

    def begin(self) -> None:
        """Put right what a crash has left, and be ready to write. Raises LogFull without room for that."""
        with self._disk_errors(starting=True):
            put_right(self._disk, self._found)
            self._tail = TailWriter(self._disk, self.options.durability, self.identity)
            self._publish()

    def _writer_for(self, batch: Batch, *, roll: bool) -> SegmentWriter:
        if roll:
            self._finish_segment()
        if self._writer is None:
            header = self._next_header(batch, self.options.durability)
            self._writer = SegmentWriter(self._disk, header, self.space)
            with self._changing:
                self._segments = [*self._segments, self._writer.segment]
        return self._writer

    def _finish_segment(self) -> None:
        if self._writer is not None and self._writer.segment.blocks:
            self._writer.finish()
            self._writer = None
            self._synced = self._end

    def _read_segment(self, segment: Segment, start: int, limit: int) -> Iterator[Block]:
        return while_open(
            lambda: self._open_segment(segment), lambda file: self._read_blocks(file, segment, start, limit)
        )

    def _open_segment(self, segment: Segment) -> File:
        with self._disk_errors():
            return self._disk.open(segment.name)

    def _read_blocks(self, file: File, segment: Segment, start: int, limit: int) -> Iterator[Block]:
        position = max(start, segment.first)
        try:
            with self._disk_errors():
                offset, position, chain = self._find_start(file, segment, start)
                for block in read_blocks(
                    file, offset, segment.blocks_end, position, chain, verify=not segment.verified
                ):
                    if block.end > limit:
                        return
                    position = block.end
                    if position > start:
                        yield block
        except BlockError as error:
            raise self._damaged(segment, error, position, file) from None

    def _find_start(self, file: File, segment: Segment, start: int) -> tuple[int, int, int | None]:
        """Offset and position of the block with an event, and the checksum it must be chained to, if that is known.

        What is damaged before it does not matter.
        """
        offset, position = HEADER_SIZE, segment.first
        chain: int | None = int.from_bytes(segment.header.encode()[-4:], "little")
        if start <= segment.first:
            return offset, position, chain
        offset = self._locator.offset(segment, start)
        if offset > HEADER_SIZE:
            position, chain = start, None
        try:
            for header, _, at in walk(file, offset, segment.blocks_end, verify=False):
                if header.end > start:
                    return at, header.first, chain
                offset, position, chain = at + header.length, header.end, header.crc
        except BlockError:
            sound = next_sound(file, offset, start, stop=segment.blocks_end)
            if sound is not None and sound.first == start:
                return sound.offset, start, None
        return offset, position, chain

    def _damaged(self, segment: Segment, error: BlockError, position: int, file: File) -> JournalDamaged:
        """The error with what is lost: up to the next sound block, or to the segment's end."""
        sound = next_sound(file, error.offset, position + 1, stop=segment.blocks_end)
        lost = (position, sound.first if sound is not None else segment.end)
        return JournalDamaged(self._disk.where, segment.name, error.offset, lost, error.reason)

    def _publish(self) -> None:
        assert self._tail is not None
        with self._changing:
            start = self.start
            try:
                self._tail.publish(self._committed, max(self._floor, start), start, self._folder.epoch)
            except OSError as error:
                if not is_full(error):  # it has its block; where that is not enough, readers see the next one
                    raise

    def _check_usable(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise LogClosed(f"the journal in {self._disk.where} was closed")

    @contextmanager
    def _disk_errors(self, *, fatal: bool = False, starting: bool = False) -> Iterator[None]:
        """Turn an OSError into LogFailed; a fatal one ends the log, for what is on disk is not known any more.

        A start that finds no room can be tried again: it raises LogFull.
        """
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not fatal:
                raise Gone(f"a segment was trimmed while it was being read: {error.filename}") from None
            if is_full(error) and starting:
                raise LogFull(f"the disk under {self._disk.where} is full: {error}. Make room") from error
            if fatal:
                raise self._fail(error) from error
            raise self._failure(error) from error

    def _fail(self, error: OSError) -> LogFailed:
        self._failed = self._failure(error)
        return self._failed

    def _failure(self, error: OSError) -> LogFailed:
        return LogFailed(
            f"the disk failed under {self._disk.where}: {error}. Nothing more is accepted: mend it and restart"
        )

    def _let_go(self) -> None:
        self._locator.close()
        for held in (self._writer, self._tail, self._space, self._lock):
            if held is not None:
                held.close()


def _bad_range(segment: Segment, bad: BadBlocks) -> BadRange:
    return BadRange(bad.first, bad.end, f"{segment.name}, byte {bad.offset}", bad.reason)


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
