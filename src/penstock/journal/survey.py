"""Every byte of a data folder looked at: what `penstock journal verify` says, and what a repair starts from.

A survey changes nothing and needs no lock: a broker may write, roll and trim meanwhile. It judges as a start does (see
``recovery``), but does not stop at the first thing that is wrong, and looks into every block. What is behind the last
sound block of the newest segment is the remains of an unfinished write, or one that is going on just now, unless a
sound block follows that says that all before it was on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.journal.block import SYNCED, Block, BlockError
from penstock.journal.checkpoints import BadCheckpoint, Checkpoints
from penstock.journal.checksum import crc32
from penstock.journal.disk import Disk, File
from penstock.journal.folder import NAME as FOLDER
from penstock.journal.folder import Folder
from penstock.journal.log import FIRST_POSITION, Durability
from penstock.journal.reading import next_sound, only_zeros, read_footer, walk
from penstock.journal.recovery import GAP
from penstock.journal.segment import CLEAN, HEADER_SIZE, Footer, SegmentHeader, is_segment
from penstock.journal.tail import NAME as TAIL
from penstock.journal.tail import Tail, read_tail

Progress = Callable[[int], None]


class Problem(NamedTuple):
    """Something that is wrong. ``lost`` is the range of positions, end excluded; None if no event is lost by it."""

    file: str
    offset: int
    text: str
    lost: tuple[int, int] | None = None


class Run(NamedTuple):
    """Sound blocks in a row: offsets and positions, ends excluded."""

    offset: int
    stop: int
    first: int
    end: int


@dataclass
class SegmentSurvey:
    """What is in one segment file."""

    name: str
    first: int
    size: int
    header: SegmentHeader | None = None
    footer: Footer | None = None
    runs: list[Run] = field(default_factory=list)
    blocks: int = 0
    messages: int = 0
    #: Checksum of the last sound block, or of the header.
    chain: int = 0
    last_at: int = 0
    #: It must be written anew to be of use: something is wrong inside of it.
    damaged: bool = False

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


@dataclass
class Survey:
    """What was found. ``problems`` are damage, ``notes`` are what a start puts right without losing anything."""

    folder: Folder | None = None
    tail: Tail | None = None
    segments: list[SegmentSurvey] = field(default_factory=list)
    #: Position and size of each checkpoint, and what is wrong with it, if anything.
    checkpoints: list[tuple[int, int, str | None]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The position after the last event."""
        return self.segments[-1].end if self.segments else FIRST_POSITION

    @property
    def resumes(self) -> int:
        """Where a start would go on."""
        last = self.segments[-1] if self.segments else None
        weak = last is not None and last.header is not None and last.header.durability is not Durability.COMMIT
        return self.end + (GAP if weak and last is not None and not last.clean else 0)

    def missing_start(self) -> tuple[int, int] | None:
        """The positions that the `tail` file knows of, below the first segment."""
        if self.tail is None or not self.segments or self.tail.start >= self.segments[0].first:
            return None
        return self.tail.start, self.segments[0].first


def survey(disk: Disk, progress: Progress = lambda size: None) -> Survey:
    """Look at everything. ``progress`` is told how many bytes were looked at since the last time.

    Raises JournalRefused where a segment is newer than this Penstock.
    """
    found = Survey(tail=read_tail(disk))  # first: all that it speaks of is in the files by now
    names = disk.names()
    if FOLDER in names:
        _look_at_folder(disk, found)
    else:
        found.problems.append(Problem(FOLDER, 0, "it is missing"))
    if found.tail is None:
        found.notes.append(f"{TAIL} is missing or torn: the next start makes it anew")
    identity = found.folder.identity if found.folder else _likely_identity(disk, names)
    _look_at_checkpoints(disk, found, identity)
    segments = sorted(filter(is_segment, names))
    for name in segments:
        try:
            file = disk.open(name)
        except FileNotFoundError:  # trimmed meanwhile
            continue
        try:
            found.segments.append(_Look(file, name, found, progress, is_last=name == segments[-1]).run(identity))
        finally:
            file.close()
    _check_links(found)
    _check_end(found)
    return found


def _look_at_folder(disk: Disk, found: Survey) -> None:
    file = disk.open(FOLDER)
    try:
        found.folder = Folder.decode(file.read(file.size(), 0))
    except (ValueError, KeyError, TypeError) as error:
        found.problems.append(Problem(FOLDER, 0, f"it can not be used: {error}"))
    finally:
        file.close()


def _likely_identity(disk: Disk, names: list[str]) -> int:
    """Whose segments these are, when the folder does not say it: the newest header that can be read tells."""
    for name in sorted(filter(is_segment, names), reverse=True):
        file = disk.open(name)
        try:
            header = SegmentHeader.decode(file.read(HEADER_SIZE, 0))
        finally:
            file.close()
        if header is not None:
            return header.identity
    return 0


def _look_at_checkpoints(disk: Disk, found: Survey, identity: int) -> None:
    checkpoints = Checkpoints(disk, identity)
    for position in checkpoints.positions():
        name = f"{position:016x}.ckpt"
        try:
            size, bad = checkpoints.size(position), None
            checkpoints.read(position)
        except FileNotFoundError:  # a newer one took its place
            continue
        except BadCheckpoint as error:
            bad = str(error)
            found.problems.append(Problem(name, 0, bad))
        found.checkpoints.append((position, size, bad))


class _Look:
    """At one segment."""

    def __init__(self, file: File, name: str, found: Survey, progress: Progress, *, is_last: bool) -> None:
        self.file = file
        self.found = found
        self.progress = progress
        self.is_last = is_last
        self.segment = SegmentSurvey(name, int(name[:16], 16), file.size())

    def run(self, identity: int) -> SegmentSurvey:
        segment = self.segment
        segment.header = SegmentHeader.decode(self.file.read(HEADER_SIZE, 0))
        if segment.header is not None and (segment.header.first, segment.header.identity) != (segment.first, identity):
            self._bad(0, "it belongs to another journal, or was renamed", (segment.first, segment.first + 1))
            return segment
        segment.footer = read_footer(self.file, segment.first)
        if segment.header is None:
            if self.is_last and next_sound(self.file, 0, segment.first) is None:
                self.found.notes.append(f"{segment.name} was never written to: the next start removes it")
                return segment
            self._bad(0, "its header is unreadable", None)
        else:
            segment.chain = int.from_bytes(segment.header.encode()[-4:], "little")
            segment.last_at = segment.header.created
        self._blocks()
        self._index()
        return segment

    def _blocks(self) -> None:
        """Go from block to block; after a bad one, from the next sound one on."""
        segment = self.segment
        at: int | None = HEADER_SIZE
        position = segment.first
        chain = segment.chain if segment.header is not None else None
        while at is not None:
            stop = segment.footer.blocks_end if segment.footer else self.file.size()
            error = self._walk(Run(at, at, position, position), stop, chain)
            if error is None:
                break
            at, position, chain = self._after(error)
        if at is not None and segment.footer is None and self.is_last:
            text = "ends without reserved space behind its last block: it was cut short"
            self.found.notes.append(f"{segment.name} {text}")

    def _walk(self, run: Run, stop: int, chain: int | None) -> BlockError | None:
        """Add sound blocks to a run until there is a bad one, which is returned."""
        segment = self.segment
        try:
            for header, view, offset in walk(self.file, run.offset, stop, run.first, chain):
                Block(header, view, offset)
                run = run._replace(stop=offset + header.length, end=header.end)
                segment.blocks += 1
                segment.messages += header.messages
                segment.chain, segment.last_at = header.crc, max(segment.last_at, header.base)
                self.progress(header.length)
        except BlockError as error:
            return error
        finally:
            if run.stop > run.offset:
                segment.runs.append(run)
        return None

    def _after(self, error: BlockError) -> tuple[int | None, int, int | None]:
        """Where to go on after a bad block, and what must follow there; None at the end."""
        segment, offset = self.segment, error.offset
        position = segment.runs[-1].end if segment.runs else segment.first
        if segment.footer is None and (footer := read_footer(self.file, segment.first)) is not None:
            segment.footer = footer  # it was finished while we were looking
            return (None if offset == footer.blocks_end else offset), position, segment.chain
        if segment.footer is None and self.is_last:
            if only_zeros(self.file, offset):
                return None, position, None
            if next_sound(self.file, offset, position, SYNCED) is None:
                self._note_remains(offset, error)
                return None, position, None
        sound = next_sound(self.file, offset, position)
        if sound is not None and sound.offset == offset and sound.first == position:
            if sound.header.previous == segment.chain:
                return offset, position, segment.chain  # the writer was at it when we looked first
            self._bad(offset, error.reason, None)
            return offset, position, None
        if sound is None and segment.footer is None:
            return self._end_of_blocks(offset, position, error)
        high = sound.first if sound is not None else max(segment.end, position + 1)
        self._bad(offset, error.reason, (position, high))
        return (sound.offset if sound is not None else None), high, None

    def _end_of_blocks(self, offset: int, position: int, error: BlockError) -> tuple[None, int, None]:
        """A segment in the middle without a footer ends with its blocks; if that is too early, the next one knows."""
        self._bad(offset, f"its footer is unreadable ({error.reason})", None)
        return None, position, None

    def _note_remains(self, offset: int, error: BlockError) -> None:
        text = "there is an unfinished write behind the last block: a broker is at it, or the next start cuts it off"
        self.found.notes.append(f"{self.segment.name}, byte {offset}: {text} ({error.reason})")

    def _index(self) -> None:
        footer = self.segment.footer
        if footer is not None:
            raw = self.file.read(16 * footer.entries, footer.blocks_end)
            if crc32(raw) != footer.index_crc:
                self._bad(footer.blocks_end, "its index is damaged; a reader makes it anew each time", None)

    def _bad(self, offset: int, text: str, lost: tuple[int, int] | None) -> None:
        self.segment.damaged = True
        self.found.problems.append(Problem(self.segment.name, offset, text, lost))


def _check_links(found: Survey) -> None:
    """Each segment says where the one before it ended, and with which checksum."""
    for before, after in zip(found.segments, found.segments[1:], strict=False):
        header = after.header
        if header is None or header.first != after.first:
            continue
        if before.end > after.first:
            text = f"it goes on past {after.name}: a repair was interrupted"
            found.problems.append(Problem(before.name, 0, text))
            before.damaged = True
        elif before.end < header.after:
            text = f"it ends at position {before.end}, but {after.name} was begun when the log ended at {header.after}"
            found.problems.append(Problem(before.name, before.size, text, (before.end, header.after)))
        elif not before.damaged and (before.end, before.chain) != (header.after, header.chain):
            text = f"{before.name} is not the segment that it was begun after"
            found.problems.append(Problem(after.name, 0, text))


def _check_end(found: Survey) -> None:
    """Compare the end with what the `tail` file and the checkpoints know."""
    end, name = found.end, found.segments[-1].name if found.segments else "the journal"
    tail = found.tail
    if tail is not None and found.folder is not None and tail.identity != found.folder.identity:
        found.notes.append(f"{TAIL} belongs to another journal: the next start makes it anew")
        tail = found.tail = None
    if (missing := found.missing_start()) is not None:
        text = f"the journal began at position {missing[0]}: the segments before this one are missing"
        found.problems.append(Problem(found.segments[0].name, 0, text, missing))
    if tail is not None and end < tail.committed != found.resumes:
        text = f"the journal ends at position {end}, but {tail.committed} was confirmed"
        if tail.durability is Durability.OS:
            found.notes.append(f"{name}: {text}; the operating system had not written it yet")
        else:
            found.problems.append(Problem(name, 0, text, (end, tail.committed)))
            end = tail.committed
    for position, _, bad in found.checkpoints:
        if bad is None and end < position != found.resumes:
            text = f"the journal ends at position {end}, but there is a checkpoint at {position}"
            found.problems.append(Problem(name, 0, text, (end, position)))
            end = position
