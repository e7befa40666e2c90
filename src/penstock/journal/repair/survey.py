"""Surveying a data folder: the one judgement of its damage that a start, `verify` and `repair` share.

A start makes a *shallow* survey: it reads the headers and footers of finished segments, and every block of a segment
without a footer. `verify` and `repair` make a *deep* one, which reads every byte. Both use the same code, so they
agree. Damage inside finished segments stops a start only if the start has to read it, which means after the newest
usable checkpoint. Each problem says whether it stops a start (``stops``).

Nothing is changed and no lock is needed: a broker may write, roll and trim meanwhile.

Headers, not names, identify the files of the journal, so renamed segments and those of other journals are recognized.
``penstock.json`` and ``tail`` say where the journal begins; they are written before a segment is removed on purpose.
The bytes after the last valid block of the last segment decide what happened to its end:

* zeros to the end of the file: the stop was between two commits. Nothing is lost.
* other bytes, but no valid block with the ``SYNCED`` flag: a commit that was never confirmed, or that is in progress.
  The next start cuts it off.
* a valid block with that flag: everything before it was synced, so confirmed events are damaged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from penstock.journal.contract import FIRST_POSITION, GAP, Defect, Durability, Tail, Verdict
from penstock.journal.errors import TOO_OLD, JournalRefused
from penstock.journal.files.checkpoints import CheckpointReader
from penstock.journal.files.disk import File, ReadableDisk, read_whole
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.folder import Folder, OtherFormat
from penstock.journal.files.segment_reader import next_valid, only_zeros, read_footer, scan, walk
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.files.tail import read_tail
from penstock.journal.format.block import SYNCED, Block, BlockError
from penstock.journal.format.checkpoint import BadCheckpoint
from penstock.journal.format.checksum import crc32
from penstock.journal.format.segment import (
    CLEAN,
    HEADER_MAGIC,
    HEADER_SIZE,
    RECHAINED,
    Footer,
    Segment,
    SegmentHeader,
    is_kept,
    is_segment,
    segment_name,
)

Progress = Callable[[int], None]
Range = tuple[int, int]

#: Suffix of a segment while a repair renames it.
MOVED = ".moved"
_SEGMENT = re.compile(r"[0-9a-f]{16}\.seg(\.moved)?")


class Finding(NamedTuple):
    """Something that a start repairs, for the operator."""

    segment: str
    offset: int
    #: Bytes to cut off.
    size: int
    #: Events from this position on may be lost.
    position: int
    text: str

    def __str__(self) -> str:
        return f"{self.segment}, byte {self.offset}: {self.text} ({self.size} bytes, from position {self.position} on)"


class BlockRun(NamedTuple):
    """Contiguous valid blocks: their offsets and positions, ends excluded."""

    offset: int
    stop: int
    first: int
    end: int


@dataclass
class SegmentSurvey:
    """The state of one segment file."""

    #: The file's name, which may be wrong.
    file: str
    first: int
    header: SegmentHeader | None = None
    size: int = 0
    footer: Footer | None = None
    runs: list[BlockRun] = field(default_factory=list)
    blocks: int = 0
    messages: int = 0
    #: The ``chain`` that the next segment must have: the checksum of the last valid block, or of the header.
    chain: int = 0
    last_at: int = 0
    #: Whether it is damaged inside, so that a repair must rewrite it.
    damaged: bool = False
    #: Built from its blocks, if it has no footer.
    built: Segment | None = None

    @property
    def name(self) -> str:
        """The name that it should have."""
        return segment_name(self.first)

    @property
    def end(self) -> int:
        """The position after its last event."""
        if self.footer is not None:
            return self.footer.end
        return self.runs[-1].end if self.runs else self.first

    @property
    def clean(self) -> bool:
        """Whether its writer finished it."""
        return self.footer is not None and bool(self.footer.flags & CLEAN)

    @property
    def weak(self) -> bool:
        """Whether events after its end may have been shown and lost."""
        return self.header is not None and self.header.durability is not Durability.COMMIT and not self.clean


@dataclass
class Survey:
    """The state of a folder. ``problems`` are damage, ``notes`` are what a start repairs without a loss."""

    folder: Folder | None = None
    tail: Tail | None = None
    #: Every event from this position on is required; 0: unknown.
    start: int = 0
    #: The segments of this journal, oldest first.
    segments: list[SegmentSurvey] = field(default_factory=list)
    #: Files that are named like segments, but are none of this journal's.
    strays: list[str] = field(default_factory=list)
    #: The last segment, if nothing was written to it.
    blank: str | None = None
    #: Position and size of each checkpoint, and its problem, if any.
    checkpoints: list[tuple[int, int, str | None]] = field(default_factory=list)
    problems: list[Defect] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The position after the last event."""
        return self.segments[-1].end if self.segments else FIRST_POSITION

    @property
    def resumes(self) -> int:
        """The position at which a start would resume."""
        low = self.end + (GAP if self.segments and self.segments[-1].weak else 0)
        return max(low, self.folder.resumes if self.folder is not None else 0)

    @property
    def startable(self) -> bool:
        """Whether a start would not be refused."""
        return not any(problem.stops for problem in self.problems)

    @property
    def missing_start(self) -> Range | None:
        """The required positions before the first segment, without a gap in the numbering; None if there are none."""
        first = self.segments[0] if self.segments else None
        if first is None or not self.start:
            return None
        below = first.header.after if first.header is not None else first.first
        return (self.start, below) if self.start < below else None

    def reaches(self, position: int) -> bool:
        """Whether the segments contain all events from a checkpoint's position on."""
        if not self.segments or not (position <= self.end or position == self.resumes):
            return False
        header = self.segments[0].header
        return (header.after if header is not None else self.segments[0].first) <= position


def verdict_of(found: Survey) -> Verdict:
    """The survey's result for operators."""
    return Verdict(
        problems=found.problems,
        notes=list(map(str, found.notes)),
        startable=found.startable,
        extents=len(found.segments),
        blocks=sum(segment.blocks for segment in found.segments),
        bytes=sum(segment.size for segment in found.segments),
        end=found.end,
    )


def survey(disk: ReadableDisk, progress: Progress = lambda size: None, *, deep: bool = True) -> Survey:
    """Survey a folder. ``progress`` is called with the bytes read since its last call.

    Raises JournalRefused where `penstock.json` or a segment has a format that this Penstock does not read.
    """
    return _Surveyor(disk, progress, deep=deep).run()


class _Surveyor:
    """Surveys one folder."""

    def __init__(self, disk: ReadableDisk, progress: Progress, *, deep: bool) -> None:
        self.disk = disk
        self.progress = progress
        self.deep = deep
        tail, self.kept_tail = read_tail(disk)  # first: everything up to it is in the files by now
        self.found = Survey(tail=tail)
        #: Problems inside finished segments, by their index, and the positions after them: see ``_judge_blocks``.
        self.inside: list[tuple[int, int]] = []
        self.unreadable: list[tuple[str, int, bool]] = []

    def run(self) -> Survey:
        names = self.disk.names()
        self._read_folder(names)
        headers = self._read_headers(sorted(name for name in names if _SEGMENT.fullmatch(name)))
        identity = self._choose_identity(headers)
        if self.found.tail is None:
            self._add_note(TAIL, "it is missing or torn: the next start replaces it")
        elif self.found.tail.identity != identity:
            self._add_note(TAIL, "it belongs to another journal: the next start replaces it")
            self.found.tail = None
        for segment, is_last in self._own_segments(headers, identity):
            with _opened(self.disk, segment.file) as file, suppress(FileNotFoundError):  # trimmed meanwhile
                if file is not None:
                    _SegmentSurveyor(file, segment, self, is_last=is_last).run()
                    self.found.segments.append(segment)
        self._drop_blank_segment()
        self._check_start(identity)
        self._check_links()
        self._check_end()
        if self.deep:
            self._check_checkpoints(identity)
            self._check_kept_segments(sorted(filter(is_kept, names)))
        self._judge_blocks()
        return self.found

    def add_problem(self, file: str, offset: int, text: str, lost: Range | None = None, *, stops: bool = True) -> None:
        """Record damage."""
        self.found.problems.append(Defect(file, offset, text, lost, stops))

    def _add_note(self, file: str, text: str, offset: int = 0) -> None:
        self.found.notes.append(Finding(file, offset, 0, self.found.end, text))

    # Which files belong to the journal

    def _read_folder(self, names: list[str]) -> None:
        if FOLDER not in names:
            self.add_problem(FOLDER, 0, "it is missing")
            return
        try:
            self.found.folder = Folder.decode(read_whole(self.disk, FOLDER))
        except OtherFormat as error:
            raise JournalRefused(f"{self.disk.where}/{FOLDER} cannot be used: {error}") from None
        except (ValueError, KeyError, TypeError) as error:
            self.add_problem(FOLDER, 0, f"it cannot be used: {error}")

    def _read_headers(self, names: list[str]) -> list[tuple[str, SegmentHeader | None]]:
        """The files with blocks or a header: the name and header of each."""
        headers: list[tuple[str, SegmentHeader | None]] = []
        for name in names:
            with _opened(self.disk, name) as file:
                if file is None:
                    continue
                header = SegmentHeader.decode(file.read(HEADER_SIZE, 0))
                if header is None and next_valid(file, 0, 0) is None:
                    self.unreadable.append((name, file.size(), _is_blank(file)))
                else:
                    headers.append((name, header))
        return headers

    def _choose_identity(self, headers: list[tuple[str, SegmentHeader | None]]) -> int:
        """The journal's identity: that of most files. ``penstock.json`` wins a tie."""
        folder, tail = self.found.folder, self.found.tail
        known = [folder.identity] if folder is not None else []
        known += [tail.identity] if tail is not None else []
        known += [header.identity for _, header in headers if header is not None]
        identity = max(known, key=known.count) if known else 0
        if folder is not None and folder.identity != identity:
            self.add_problem(FOLDER, 0, "it belongs to another journal")
            self.found.folder = None
        return identity

    def _own_segments(
        self, headers: list[tuple[str, SegmentHeader | None]], identity: int
    ) -> Iterator[tuple[SegmentSurvey, bool]]:
        """The segments of this journal in order, and whether each is the last. Records all others as strays."""
        segments: dict[int, SegmentSurvey] = {}
        # Correctly named files come first: of two with the same header, the one with its own name counts.
        for name, header in sorted(headers, key=lambda each: not _is_named(*each)):
            if header is not None and header.identity != identity:
                self._add_stray(name, "it belongs to another journal: move it out of the folder")
                continue
            first = header.first if header is not None else int(name[:16], 16)
            segment = SegmentSurvey(name, first, header)
            if first in segments:
                self._add_stray(
                    name, f"{segments[first].file} is the segment from position {first} on: move this one out"
                )
                continue
            segments[first] = segment
            if name != segment.name:
                self.add_problem(name, 0, f"it was renamed: it is {segment.name}")
        ordered = [segments[first] for first in sorted(segments)]
        for segment in ordered:
            yield segment, segment is ordered[-1]

    def _add_stray(self, name: str, text: str) -> None:
        self.found.strays.append(name)
        self.add_problem(name, 0, text)

    def _drop_blank_segment(self) -> None:
        """Ignore a last segment without blocks, unless it may have had some that were shown and then lost."""
        found = self.found
        last = found.segments[-1] if found.segments else None
        if last is not None and last.header is not None and not last.footer and not last.runs and not last.weak:
            found.segments.pop()
            found.blank = last.file
            found.notes.append(Finding(last.file, 0, 0, last.first, "nothing was written to it: removed"))
        for name, size, blank in self.unreadable:
            position = int(name[:16], 16)
            if blank and position in (found.end, found.resumes) and is_segment(name):
                found.blank = name
                found.notes.append(Finding(name, 0, size, position, "its header was never written: removed"))
            else:
                self._add_stray(name, "its header is unreadable, and nothing in it is a block of a journal")

    # Continuity

    def _check_start(self, identity: int) -> None:
        """Check that the oldest segments are there. Their removal is recorded beforehand."""
        found = self.found
        folder = found.folder
        if self.deep and folder is not None:  # a broker may have trimmed since
            folder = Folder.decode(read_whole(self.disk, FOLDER))
        tails = [found.tail, self.kept_tail if self.kept_tail and self.kept_tail.identity == identity else None]
        found.start = max([folder.start if folder else 0, *(tail.start for tail in tails if tail)])
        if not found.segments:
            self._report_empty(folder)
        elif (missing := found.missing_start) is not None:
            text = f"the journal begins at position {missing[0]}: the segments before this one are missing"
            self.add_problem(found.segments[0].file, 0, text, missing)
        newest = max((segment.header.epoch for segment in found.segments if segment.header), default=0)
        if folder is not None and folder.epoch < newest:
            self._add_note(FOLDER, f"it has epoch {folder.epoch}, but the journal {newest}: the next start corrects it")

    def _report_empty(self, folder: Folder | None) -> None:
        found = self.found
        committed = found.tail.committed if found.tail else 0
        if FIRST_POSITION < committed != found.resumes or (folder is not None and folder.start):
            start = max(found.start, FIRST_POSITION)
            highest = max([committed, *self._valid_checkpoints(folder)])
            lost = (start, highest if highest > start else start + GAP)
            self.add_problem("the journal", 0, "no segment of it is left", lost)

    def _valid_checkpoints(self, folder: Folder | None) -> Iterator[int]:
        identity = folder.identity if folder else self.found.tail.identity if self.found.tail else 0
        checkpoints = CheckpointReader(self.disk, identity)
        for position in checkpoints.positions():
            with suppress(BadCheckpoint, FileNotFoundError):
                checkpoints.read(position)
                yield position

    def _check_links(self) -> None:
        """Each segment contains the end and the checksum of the one before it."""
        segments = self.found.segments
        for before, after in pairwise(list(segments)):
            header = after.header
            if header is None:
                continue
            if before.end > after.first:
                self.add_problem(before.file, 0, f"it overlaps {after.name}: a repair was interrupted")
                before.damaged = True
            elif before.end < header.after:
                self._report_gap(before, after, header.after)
            elif not before.damaged and (before.end, before.chain) != (header.after, header.chain):
                self.add_problem(before.file, before.size, f"it is not the segment that {after.name} was begun after")

    def _report_gap(self, before: SegmentSurvey, after: SegmentSurvey, wanted: int) -> None:
        found = self.found
        if before.end < found.start:
            # The segments between were removed on purpose, so this one was put back by hand.
            while found.segments[0] is not after:
                self._add_stray(found.segments.pop(0).file, "it was removed before, and later ones too: move it out")
        low = max(before.end, found.start)
        if low < wanted:
            text = f"it ends at position {before.end}, but {after.name} was begun when the log ended at {wanted}"
            self.add_problem(before.file, before.size, text, (low, wanted))

    def _check_end(self) -> None:
        """Compare the end with ``tail``, which has ``resumes`` if the last start appended nothing."""
        found = self.found
        end, tail = found.end, found.tail
        # A broker that stops writes a checkpoint at the end, and one that continues begins another segment.
        silent = tail is None and found.segments and found.segments[-1].clean
        if silent and end not in CheckpointReader(self.disk, 0).positions():
            self._add_note(found.segments[-1].file, "it is unknown whether the journal continued after it")
        if tail is None or not found.segments or not end < tail.committed != found.resumes:
            return
        text = f"the journal ends at position {end}, but {tail.committed} was confirmed"
        if tail.durability is Durability.OS:
            found.notes.append(Finding(found.segments[-1].file, 0, 0, end, text))
        else:
            self.add_problem(found.segments[-1].file, 0, text, (end, tail.committed))

    def _check_checkpoints(self, identity: int) -> None:
        checkpoints = CheckpointReader(self.disk, identity)
        for position in checkpoints.positions():
            name = f"{position:016x}.ckpt"
            try:
                size, bad = checkpoints.size(position), None
                checkpoints.read(position)
            except FileNotFoundError:  # a newer one has replaced it
                continue
            except BadCheckpoint as error:
                bad = str(error)
                self.add_problem(name, 0, bad, stops=False)
            self.found.checkpoints.append((position, size, bad))
        good = [position for position, _, bad in self.found.checkpoints if bad is None]
        for position in good[-1:] if self.found.segments else []:
            self._check_newest_checkpoint(f"{position:016x}.ckpt", position)

    def _check_newest_checkpoint(self, name: str, position: int) -> None:
        """A start uses the newest readable one."""
        found = self.found
        if position > found.end and position != found.resumes:
            if not any(problem.lost and problem.lost[1] >= position for problem in found.problems):
                text = f"the journal ends at position {found.end}, but there is a checkpoint at {position}"
                self.add_problem(found.segments[-1].file, 0, text, (found.end, position))
        elif not found.reaches(position) and found.missing_start is None:
            self.add_problem(name, 0, TOO_OLD, stops=False)
            found.checkpoints = [
                (at, size, bad or (TOO_OLD if at <= position else None)) for at, size, bad in found.checkpoints
            ]

    def _check_kept_segments(self, names: list[str]) -> None:
        """Report damage in kept segments that was not given up."""
        given_up = self.found.folder.given_up if self.found.folder else ()
        for name in names:
            with _opened(self.disk, name) as file:
                if file is None:
                    continue
                footer = read_footer(file, int(name[:16], 16))
                if footer is None:
                    continue
                for _, bad in scan(file, HEADER_SIZE, footer.blocks_end, footer.first, footer.end):
                    if bad is not None and not any(low <= bad.first and bad.end <= high for low, high in given_up):
                        text = f"messages in it are damaged, so it was kept when it was trimmed ({bad.reason})"
                        self.add_problem(name, bad.offset, text, (bad.first, bad.end), stops=False)

    def _judge_blocks(self) -> None:
        """Damage stops a start only after the checkpoint that it uses."""
        good = [position for position, _, bad in self.found.checkpoints if bad is None and self.found.reaches(position)]
        known = max(good, default=0)
        for index, end in self.inside:
            problem = self.found.problems[index]
            self.found.problems[index] = problem._replace(stops=end > known)


@contextmanager
def _opened(disk: ReadableDisk, name: str) -> Iterator[File | None]:
    """The file, or None if a broker has trimmed it meanwhile."""
    try:
        file = disk.open(name)
    except FileNotFoundError:
        yield None
        return
    with closing(file):
        yield file


def _is_named(name: str, header: SegmentHeader | None) -> bool:
    return header is not None and name == segment_name(header.first)


def _is_blank(file: File) -> bool:
    """Whether a crash may have left this of a new segment: at most a part of the header."""
    head = file.read(HEADER_SIZE, 0)
    begun = head.startswith(HEADER_MAGIC) or HEADER_MAGIC.startswith(head.rstrip(b"\0"))
    return begun and only_zeros(file, HEADER_SIZE)


class _SegmentSurveyor:
    """Surveys one segment."""

    def __init__(self, file: File, segment: SegmentSurvey, surveyor: _Surveyor, *, is_last: bool) -> None:
        self.file = file
        self.segment = segment
        self.surveyor = surveyor
        self.is_last = is_last

    def run(self) -> None:
        segment = self.segment
        segment.size = self.file.size()
        segment.footer = footer = read_footer(self.file, segment.first)
        if segment.header is None:
            self._add_problem(0, "its header is unreadable")
        else:
            segment.chain = segment.header.checksum
            segment.last_at = segment.header.created
        if footer is not None and segment.header is not None and not self.surveyor.deep:
            segment.runs = (
                [BlockRun(HEADER_SIZE, footer.blocks_end, segment.first, footer.end)] if footer.blocks else []
            )
            segment.blocks, segment.chain, segment.last_at = footer.blocks, footer.chain, footer.last_at
            return
        if footer is None and segment.header is not None:
            segment.built = Segment(segment.header)
        self._read_blocks()
        if segment.footer is not None and segment.footer.flags & RECHAINED:
            segment.chain = segment.footer.chain
        self._check_index()

    def _read_blocks(self) -> None:
        """Read block after block; after a bad one, continue with the next valid one."""
        segment = self.segment
        at: int | None = HEADER_SIZE
        position = segment.first
        chain = segment.chain if segment.header is not None else None
        while at is not None:
            stop = segment.footer.blocks_end if segment.footer else self.file.size()
            error = self._read_run(BlockRun(at, at, position, position), stop, chain)
            if error is None:
                break
            at, position, chain = self._continue_after(error)
        if at is not None and segment.footer is None and self.is_last:
            self._add_note(self.file.size(), 0, "the file ends without allocated space after its last block")

    def _read_run(self, run: BlockRun, stop: int, chain: int | None) -> BlockError | None:
        """Add valid blocks to a run. Returns the error of the first bad one."""
        segment = self.segment
        try:
            for header, view, offset in walk(self.file, run.offset, stop, run.first, chain):
                if self.surveyor.deep:
                    Block(header, view, offset)
                if segment.built is not None:
                    segment.built.add(header)
                run = run._replace(stop=offset + header.length, end=header.end)
                segment.blocks += 1
                segment.messages += header.messages
                segment.chain, segment.last_at = header.crc, max(segment.last_at, header.base)
                self.surveyor.progress(header.length)
        except BlockError as error:
            return error
        finally:
            if run.stop > run.offset:
                segment.runs.append(run)
        return None

    def _continue_after(self, error: BlockError) -> tuple[int | None, int, int | None]:
        """Offset, position and chain with which to continue after a bad block; no offset at the end."""
        segment, offset = self.segment, error.offset
        position = segment.runs[-1].end if segment.runs else segment.first
        if segment.footer is None and (footer := read_footer(self.file, segment.first)) is not None:
            segment.footer = footer  # it was finished meanwhile
            return (None if offset == footer.blocks_end else offset), position, segment.chain
        if segment.footer is None and self.is_last:
            if only_zeros(self.file, offset):
                return None, position, None
            if next_valid(self.file, offset, position, SYNCED) is None:
                text = f"the remains of an unfinished write are cut off ({error.reason})"
                self._add_note(offset, self.file.size() - offset, text)
                return None, position, None
        following = next_valid(self.file, offset, position)
        if following is not None and following.offset == offset and following.first == position:
            if following.header.previous == segment.chain:
                return offset, position, segment.chain  # the writer was writing it at the first look
            self._add_problem(offset, error.reason, end=following.end)
            return offset, position, None
        if following is None and segment.footer is None:
            return self._end_of_blocks(offset, position, error)
        high = following.first if following is not None else max(segment.end, position + 1)
        self._add_problem(offset, error.reason, (position, high))
        return (following.offset if following is not None else None), high, None

    def _end_of_blocks(self, offset: int, position: int, error: BlockError) -> tuple[None, int, None]:
        """A segment in the middle without a footer ends with its blocks; the next one knows if that is too early."""
        self._add_problem(offset, f"its footer is unreadable ({error.reason})", stops=False)
        return None, position, None

    def _check_index(self) -> None:
        footer = self.segment.footer
        if footer is not None:
            raw = self.file.read(16 * footer.entries, footer.blocks_end)
            if crc32(raw) != footer.index_crc:
                self._add_problem(footer.blocks_end, "its index is damaged; readers rebuild it each time", stops=False)

    def _add_note(self, offset: int, size: int, text: str) -> None:
        segment = self.segment
        self.surveyor.found.notes.append(Finding(segment.file, offset, size, segment.end, text))

    def _add_problem(
        self, offset: int, text: str, lost: Range | None = None, *, end: int | None = None, stops: bool = True
    ) -> None:
        """Record damage. In a finished segment, only damage after the checkpoint stops a start."""
        self.segment.damaged = True
        surveyor = self.surveyor
        if stops and self.segment.footer is not None and self.segment.header is not None:
            surveyor.inside.append((len(surveyor.found.problems), lost[1] if lost else end or self.segment.end))
        surveyor.add_problem(self.segment.file, offset, text, lost, stops=stops)
