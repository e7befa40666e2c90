"""Opening a folder of segments: which are there, do they hang together, and how does the last one end.

Theory of operation
-------------------
Every segment but the last was finished before the next one was made, so headers and footers are enough to see that none
is missing (``segment`` has the links). Their blocks are checked when they are read.

The last one may have been left by a crash. Then its blocks are read one by one up to the first that is not sound. What
follows decides:

* zeros to the end of the file: the stop was between two commits. Nothing is lost.
* something, but no sound block with the ``SYNCED`` flag: the remains of a commit that nobody was told of. It is cut
  off, and a ``Finding`` says so.
* a sound block that was written when all before it was synced: what is bad was confirmed once. The start is refused.

The same holds for a header: a last segment without a sound one, and without sound blocks, was never written to.

All of this is found out before anything is changed (``inspect``), so that a refused start leaves the folder as it was.
Then (``put_right``) the last segment is finished in place of its writer, but not marked clean. A stop that was not
clean, under a durability that confirms before it syncs, may have lost events that someone has seen; their positions
must not name other events, so numbering then resumes ``GAP`` higher.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.journal.block import SYNCED, BlockError
from penstock.journal.disk import Disk, File
from penstock.journal.errors import JournalDamaged, JournalRefused
from penstock.journal.log import FIRST_POSITION, Durability
from penstock.journal.reading import next_sound, only_zeros, read_footer, walk
from penstock.journal.segment import HEADER_SIZE, Segment, SegmentHeader, is_segment
from penstock.journal.tail import Tail
from penstock.journal.writing import finish

#: More events than any broker could have written between two syncs.
GAP = 2**32


class Finding(NamedTuple):
    """Something that was put right at the start, and that an operator should know of."""

    segment: str
    offset: int
    #: Bytes that were cut off.
    size: int
    #: Events from this position on may be gone.
    position: int
    text: str

    def __str__(self) -> str:
        return f"{self.segment}, byte {self.offset}: {self.text} ({self.size} bytes, from position {self.position} on)"


@dataclass
class Recovered:
    """What was found. ``end`` is where the next append goes."""

    segments: list[Segment] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    end: int = FIRST_POSITION
    #: What is to be done: a file that was never written to, and a last segment that its writer did not finish.
    remove: str | None = None
    unfinished: Segment | None = None


def inspect(disk: Disk, identity: int, tail: Tail | None) -> Recovered:
    """Look at the folder without changing it. Raises JournalDamaged where confirmed events are missing."""
    found = Recovered()
    names = sorted(name for name in disk.names() if is_segment(name))
    for name in names:
        _Opening(disk, identity, name, is_last=name == names[-1]).run(found)
    for before, after in zip(found.segments, found.segments[1:], strict=False):
        _check_link(disk, before, after)
    _pass_over_empty(found)
    if found.segments:
        last = found.segments[-1]
        weak = last.header.durability is not Durability.COMMIT and not last.clean
        found.end = last.end + (GAP if weak else 0)
    _check_tail(disk, found, tail)
    return found


def _pass_over_empty(found: Recovered) -> None:
    """A last segment without blocks is removed, unless it may have had some that were seen and then lost."""
    empty = found.unfinished
    if empty is None or empty.blocks or empty.header.durability is not Durability.COMMIT:
        return
    found.segments.remove(empty)
    found.unfinished, found.remove = None, empty.name
    found.findings.append(Finding(empty.name, 0, 0, empty.first, "nothing was written to it: removed"))


def put_right(disk: Disk, found: Recovered) -> None:
    """Do what ``inspect`` found to be done."""
    if found.remove is not None:
        disk.unlink(found.remove)
        disk.sync()
    if found.unfinished is not None:
        file = disk.open(found.unfinished.name)
        try:
            finish(file, found.unfinished, clean=False)
        finally:
            file.close()


class _Opening:
    """One segment file, at the start."""

    def __init__(self, disk: Disk, identity: int, name: str, *, is_last: bool) -> None:
        self.disk = disk
        self.identity = identity
        self.name = name
        self.is_last = is_last

    def run(self, found: Recovered) -> None:
        file = self.disk.open(self.name)
        try:
            segment = self._header(file)
            if segment is None:
                found.remove = self.name
                position, text = int(self.name[:16], 16), "its header was never written: removed"
                found.findings.append(Finding(self.name, 0, file.size(), position, text))
                return
            footer = read_footer(file, segment.first)
            if footer is not None:
                segment.finish(footer)
            elif self.is_last:
                self._end(found, file, segment)
            else:
                self._rebuild(found, file, segment)
            found.segments.append(segment)
        finally:
            file.close()

    def _header(self, file: File) -> Segment | None:
        """The segment; None if it is the last and was never begun."""
        header = SegmentHeader.decode(file.read(HEADER_SIZE, 0))
        position = int(self.name[:16], 16)
        if header is None:
            sound = next_sound(file, 0, position)
            if self.is_last and sound is None:
                return None
            raise self._damaged(0, (position, sound.first if sound else position + 1), "its header is unreadable")
        if header.first != position or header.identity != self.identity:
            raise JournalRefused(
                f"{self.disk.where}/{self.name} belongs to another journal or has another name than it was given: move"
                " it out of the folder"
            )
        return Segment(header)

    def _end(self, found: Recovered, file: File, segment: Segment) -> None:
        """Find where a last segment without a footer ends."""
        bad = _scan(file, segment)
        offset, size = segment.blocks_end, file.size()
        if bad is not None and not only_zeros(file, offset):
            later = next_sound(file, offset, segment.end, SYNCED)
            if later is not None:
                raise self._damaged(offset, (segment.end, later.first), bad.reason)
            text = f"the remains of an unfinished write were cut off ({bad.reason})"
            found.findings.append(Finding(self.name, offset, size - offset, segment.end, text))
        elif bad is None:
            text = "the file ends without the reserved space behind its last block: it was cut short"
            found.findings.append(Finding(self.name, offset, 0, segment.end, text))
        segment.verified = True
        found.unfinished = segment

    def _rebuild(self, found: Recovered, file: File, segment: Segment) -> None:
        """A segment in the middle has lost its footer. If that is all, its blocks tell what the footer told."""
        bad = _scan(file, segment)
        segment.verified = True
        text = f"its footer is unreadable; its blocks end at position {segment.end}"
        reason = bad.reason if bad else ""
        found.findings.append(Finding(self.name, segment.blocks_end, 0, segment.end, f"{text} {reason}".strip()))

    def _damaged(self, offset: int, lost: tuple[int, int], reason: str) -> JournalDamaged:
        return JournalDamaged(self.disk.where, self.name, offset, lost, reason)


def _scan(file: File, segment: Segment) -> BlockError | None:
    """Read every block that is sound into the segment. Returns what ended it; None at the end of the file."""
    try:
        for header, _, _ in walk(file, HEADER_SIZE, file.size(), segment.first, segment.chain):
            segment.add(header)
    except BlockError as error:
        return error
    return None


def _check_link(disk: Disk, before: Segment, after: Segment) -> None:
    """Raise if something is missing between two segments."""
    wanted = after.header.after
    if before.end != wanted:
        reason = f"it ends at position {before.end}, but {after.name} was begun when the log ended at {wanted}"
    elif before.chain != after.header.chain:
        reason = f"it is not the segment that {after.name} was begun after"
    else:
        return
    lost = (min(before.end, wanted), max(before.end, wanted)) if before.end != wanted else (before.first, before.end)
    raise JournalDamaged(disk.where, before.name, before.blocks_end, lost, reason)


def _check_tail(disk: Disk, found: Recovered, tail: Tail | None) -> None:
    """Raise if the `tail` file knows of more. It may say ``found.end``, when the last start had nothing to append."""
    name, offset, end = _last(found.segments)
    if tail is None or not end < tail.committed != found.end:
        return
    reason = f"the journal ends at position {end}, but {tail.committed} was confirmed"
    if tail.durability is not Durability.OS:
        raise JournalDamaged(disk.where, name, offset, (end, tail.committed), reason)
    found.findings.append(Finding(name, offset, 0, end, reason))


def check_reach(disk: Disk, segments: list[Segment], end: int, position: int) -> None:
    """Raise JournalDamaged unless everything from a checkpoint's position to the log's end is there."""
    name, offset, last = _last(segments)
    if last < position != end:
        reason = f"the journal ends at position {last}, but there is a checkpoint at {position}"
        raise JournalDamaged(disk.where, name, offset, (last, position), reason)
    if segments and segments[0].header.after > position:
        first = segments[0]
        reason = f"the segments between the checkpoint at {position} and this one are missing"
        raise JournalDamaged(disk.where, first.name, 0, (position, first.header.after), reason)


def _last(segments: list[Segment]) -> tuple[str, int, int]:
    """Where the last segment ends: its name, offset and position."""
    if not segments:
        return "no segment", 0, FIRST_POSITION
    return segments[-1].name, segments[-1].blocks_end, segments[-1].end
