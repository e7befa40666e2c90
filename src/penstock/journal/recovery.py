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

Afterwards the segment is finished in place of its writer, but not marked clean. A stop that was not clean, under a
durability that confirms before it syncs, may have lost events that someone has seen; their positions must not name
other events, so numbering then resumes ``GAP`` higher.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.journal.block import SYNCED, Block, BlockError
from penstock.journal.disk import Disk, File
from penstock.journal.errors import JournalDamaged, JournalRefused
from penstock.journal.log import FIRST_POSITION, Durability
from penstock.journal.reading import next_sound, only_zeros, read_blocks, read_footer
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


def recover(disk: Disk, identity: int, tail: Tail | None, from_position: int | None) -> Recovered:
    """Check the folder, and put its end right. ``from_position`` is where the caller will read from, None for all.

    Raises JournalDamaged where confirmed events are missing or unreadable.
    """
    found = Recovered()
    names = sorted(name for name in disk.names() if is_segment(name))
    for name in names:
        _Opening(disk, identity, name, is_last=name == names[-1]).run(found)
    for before, after in zip(found.segments, found.segments[1:], strict=False):
        _check_link(disk, before, after)
    if found.segments:
        last = found.segments[-1]
        weak = last.header.durability is not Durability.COMMIT and not last.clean
        found.end = last.end + (GAP if weak else 0)
    _check_ends(disk, found, tail, from_position)
    return found


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
                self._remove(found, file, "its header was never written: removed")
                return
            footer = read_footer(file, segment.first)
            if footer is not None:
                segment.finish(footer)
            elif self.is_last:
                self._end(found, file, segment)
                if not segment.finished:
                    return
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
        """Find where a last segment without a footer ends, and finish it there; or remove it if nothing is in it."""
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
        if not segment.blocks and segment.header.durability is Durability.COMMIT:
            if found.segments:
                _check_link(self.disk, found.segments[-1], segment)
            self._remove(found, file, "nothing was written to it: removed")
            return
        segment.verified = True
        finish(file, segment, clean=False)

    def _rebuild(self, found: Recovered, file: File, segment: Segment) -> None:
        """A segment in the middle has lost its footer. If that is all, its blocks tell what the footer told."""
        bad = _scan(file, segment)
        segment.verified = True
        text = f"its footer is unreadable; its blocks end at position {segment.end}"
        reason = bad.reason if bad else ""
        found.findings.append(Finding(self.name, segment.blocks_end, 0, segment.end, f"{text} {reason}".strip()))

    def _remove(self, found: Recovered, file: File, text: str) -> None:
        size, position = file.size(), int(self.name[:16], 16)
        self.disk.unlink(self.name)
        self.disk.sync()
        found.findings.append(Finding(self.name, 0, size, position, text))

    def _damaged(self, offset: int, lost: tuple[int, int], reason: str) -> JournalDamaged:
        return JournalDamaged(self.disk.where, self.name, offset, lost, reason)


def _scan(file: File, segment: Segment) -> BlockError | None:
    """Read every block that is sound into the segment. Returns what ended it; None at the end of the file."""
    try:
        for block in read_blocks(file, HEADER_SIZE, file.size(), segment.first, segment.chain):
            segment.add(block.header, last_time(block))
    except BlockError as error:
        return error
    return None


def last_time(block: Block) -> int:
    """The time of the block's last event."""
    return block.base + int(block.column("at")[-1])


def _check_link(disk: Disk, before: Segment, after: Segment) -> None:
    """Raise if something is missing between two segments."""
    header = after.header
    if header.previous_first != before.first:
        missing = f"the segment before it, which started at {header.previous_first}, is missing"
        raise JournalDamaged(disk.where, after.name, 0, (before.end, header.after), missing)
    if header.after != before.end or header.chain != before.chain:
        reason = f"it ends at position {before.end}, the next segment was begun at {header.after}"
        lost = (min(before.end, header.after), max(before.end + 1, header.after))
        raise JournalDamaged(disk.where, before.name, before.blocks_end, lost, reason)


def _check_ends(disk: Disk, found: Recovered, tail: Tail | None, from_position: int | None) -> None:
    """Compare with what is known from elsewhere: the `tail` file, and where the caller's checkpoint is."""
    last = found.segments[-1] if found.segments else None
    name, offset, end = (last.name, last.blocks_end, last.end) if last else ("the journal", 0, FIRST_POSITION)
    if tail is not None and end < tail.committed != found.end:
        reason = f"the journal ends at position {end}, but {tail.committed} was confirmed"
        if tail.durability is not Durability.OS:
            raise JournalDamaged(disk.where, name, offset, (end, tail.committed), reason)
        found.findings.append(Finding(name, offset, 0, end, reason))
    if from_position is None:
        return
    if end < from_position != found.end:
        reason = f"the journal ends at position {end}, but there is a checkpoint at {from_position}"
        raise JournalDamaged(disk.where, name, offset, (end, from_position), reason)
    if found.segments and found.segments[0].header.after > from_position:
        first = found.segments[0]
        reason = f"the segments between the checkpoint at {from_position} and this one are missing"
        raise JournalDamaged(disk.where, first.name, 0, (from_position, first.header.after), reason)
