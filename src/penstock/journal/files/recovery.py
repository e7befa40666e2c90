"""Recovering a folder of segments: ``survey`` finds the problems, and this module acts on them.

A start is refused, and the folder left as it was, if anything that was confirmed is missing. Otherwise
``finish_recovery`` finishes a last segment that its writer did not finish, without marking it clean, and removes one
without blocks. An unclean stop, under a durability that confirms before it syncs, may have lost events that readers
have seen. Their positions must not name other events, so numbering resumes ``GAP`` higher.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from penstock.journal.contract import FIRST_POSITION, Tail
from penstock.journal.errors import JournalDamaged, JournalRefused
from penstock.journal.files.disk import Disk
from penstock.journal.files.folder import Folder
from penstock.journal.files.segment_writer import finish
from penstock.journal.format.segment import Segment
from penstock.journal.repair.survey import Finding, SegmentSurvey, Survey, survey


@dataclass
class Recovered:
    """The state of a folder. ``end`` is the position of the next append."""

    folder: Folder
    tail: Tail | None = None
    segments: list[Segment] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    end: int = FIRST_POSITION
    #: For ``finish_recovery``: a file that was never written to, and a last segment that its writer did not finish.
    remove: str | None = None
    unfinished: Segment | None = None


def inspect(disk: Disk) -> Recovered:
    """Survey the folder without changing it. Raises JournalRefused, or JournalDamaged if events are missing."""
    found = survey(disk, deep=False)
    refuse(disk.where, found)
    assert found.folder is not None
    segments = [_segment(each) for each in found.segments]
    epoch = max([found.folder.epoch, *(segment.header.epoch for segment in segments)])
    start = found.folder.start and max(found.start, found.folder.start)
    recovered = Recovered(found.folder._replace(epoch=epoch, start=start), found.tail, segments)
    recovered.end, recovered.remove = found.resumes, found.blank
    recovered.findings = [note for note in found.notes if note.segment != "tail"]
    recovered.findings += [
        Finding(each.file, each.offset, 0, found.end, each.text) for each in found.problems if not each.stops
    ]
    if segments and not segments[-1].finished:
        recovered.unfinished = segments[-1]
    return recovered


def refuse(where: str, found: Survey) -> None:
    """Raise the first problem with which a start can't continue; lost events come first."""
    stopping = [problem for problem in found.problems if problem.stops]
    for problem in sorted(stopping, key=lambda problem: problem.lost is None):
        if problem.lost is not None:
            raise JournalDamaged(where, problem.file, problem.offset, problem.lost, problem.text)
        raise JournalRefused(
            f"{where}/{problem.file}: {problem.text}. Restore the right file, or, to keep everything valid: penstock"
            f" journal repair {where}"
        )


def _segment(found: SegmentSurvey) -> Segment:
    assert found.header is not None
    if found.built is not None:
        found.built.verified = True
        return found.built
    assert found.footer is not None
    segment = Segment(found.header)
    segment.finish(found.footer)
    return segment


def finish_recovery(disk: Disk, found: Recovered) -> None:
    """Repair what a crash has left, as ``inspect`` found it."""
    if found.remove is not None:
        disk.unlink(found.remove)
        disk.sync()
    if found.unfinished is not None:
        with closing(disk.open(found.unfinished.name)) as file:
            finish(file, found.unfinished, clean=False)


def check_reach(disk: Disk, segments: list[Segment], end: int, position: int, *, trimmed: bool) -> bool:
    """Whether the log has every event from a checkpoint's position on.

    False: the checkpoint lies before the first segment. Raises JournalDamaged if the log ends before it, or, unless
    ``trimmed``, if the segments between the checkpoint and the first one were not removed on purpose.
    """
    last = segments[-1] if segments else None
    name, offset, reached = (last.name, last.blocks_end, last.end) if last else ("no segment", 0, FIRST_POSITION)
    if reached < position != end:
        reason = f"the journal ends at position {reached}, but there is a checkpoint at {position}"
        raise JournalDamaged(disk.where, name, offset, (reached, position), reason)
    first = segments[0] if segments else None
    if first is None or first.header.after <= position:
        return True
    if not trimmed:
        reason = f"the segments between the checkpoint at {position} and this one are missing"
        raise JournalDamaged(disk.where, first.name, 0, (position, first.header.after), reason)
    return False
