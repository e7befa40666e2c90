"""Planning the repair of a damaged journal, before anything is touched. ``rewrite`` carries out the plan.

Everything valid is kept. A damaged segment is rewritten from its valid blocks, one file per run of blocks; a bridge
(see ``bridge``) replaces lost events. Valid segments are only renamed, if their names are wrong. A checkpoint before
lost events is set aside, because it knows nothing of them: the next start computes the state from the log. A checkpoint
after all lost events is kept: it has the state, and only payloads are lost. ``penstock.json`` records the positions
that are given up, and the next start drops the messages that lay there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.journal.contract import FIRST_POSITION, GAP, Durability, Tail, resume_after
from penstock.journal.errors import JournalRefused
from penstock.journal.files.disk import Disk
from penstock.journal.files.folder import Folder
from penstock.journal.files.segment_reader import walk
from penstock.journal.format.block import Block, BlockHeader
from penstock.journal.format.catalogue import SegmentCatalogue
from penstock.journal.format.encoding import Encoded
from penstock.journal.format.segment import SegmentHeader, is_kept, segment_name
from penstock.journal.repair.bridge import bridge_block
from penstock.journal.repair.survey import BlockRun, Range, SegmentSurvey, Survey
from penstock.schema import COLUMN

_DETAIL = 1 << COLUMN["detail"].id
#: The namespace of queues whose creation is lost.
NAMESPACE = "repaired"


class NewSegment(NamedTuple):
    """A segment to write: a bridge, if it has one, then the blocks of these runs of an old segment."""

    header: SegmentHeader
    bridge: Encoded | None
    source: str
    runs: list[BlockRun]
    clean: bool
    #: The ``chain`` of the next segment; None if there is none, or if it is the CRC of the last block written.
    chain: int | None = None

    @property
    def name(self) -> str:
        """The file name."""
        return segment_name(self.header.first)


@dataclass
class RepairPlan:
    """The steps of a repair."""

    folder: Folder
    tail: Tail | None = None
    #: Lost ranges of positions, ends excluded.
    lost: list[Range] = field(default_factory=list)
    #: Files with the name of a segment that do not belong to this journal, and segments to rename.
    strays: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    new: list[NewSegment] = field(default_factory=list)
    #: Files to copy aside before they are replaced, and files to move aside.
    copied: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    #: Whether ``penstock.json`` must be rebuilt.
    makes_folder: bool = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        changes = (self.strays, self.renamed, self.new, self.copied, self.moved, self.lost, self.makes_folder)
        return not any(changes)


def plan(disk: Disk, found: Survey) -> RepairPlan:
    """Plan what makes a broker start. Raises JournalRefused if nothing is readable."""
    return _Planner(disk, found).run()


class _Planner:
    """Goes through the segments in order, and tracks the end and the checksum of the blocks to keep."""

    def __init__(self, disk: Disk, found: Survey) -> None:
        self.disk = disk
        self.found = found
        headers = [segment.header for segment in found.segments if segment.header is not None]
        folder, self.tail = found.folder, found.tail
        if folder is None:
            folder = _guess_folder(disk.where, headers, self.tail)
        self.durability = (
            headers[-1].durability if headers else self.tail.durability if self.tail else Durability.COMMIT
        )
        self.epoch = max([folder.epoch, *(header.epoch for header in headers)])
        self.identity = folder.identity
        self.plan = RepairPlan(folder, makes_folder=found.folder is None)
        #: The position from which on every event is required.
        self.begin = found.start or FIRST_POSITION
        if found.segments and (not found.start or found.segments[0].first < found.start):
            self.begin = found.segments[0].first
        #: The end of the blocks to keep so far (None: no blocks), and the checksum of the last.
        self.end: int | None = None
        self.chain = 0
        self.before: tuple[int | None, int] = (None, 0)
        self.last_at = min((header.created for header in headers), default=folder.created)

    def run(self) -> RepairPlan:
        plan, segments = self.plan, self.found.segments
        plan.strays = list(self.found.strays)
        plan.renamed = [(each.file, each.name) for each in segments if each.file != each.name]
        for segment, after in zip(segments, [*segments[1:], None], strict=False):
            if segment.damaged:
                self._rewrite(segment, after.first if after is not None and after.header is not None else None)
            else:
                self._keep(segment)
        self._bridge_lost_end(segments)
        plan.lost += [each.lost for each in self.found.problems if is_kept(each.file) and each.lost]
        last = max((high for _, high in plan.lost), default=0)
        plan.moved += [f"{at:016x}.ckpt" for at, _, bad in self.found.checkpoints if bad or at < last]
        if not plan.idle:
            plan.strays += [self.found.blank] if self.found.blank is not None else []
            self._plan_marks()
        return plan

    def _plan_marks(self) -> None:
        """Plan the new contents of ``penstock.json`` and ``tail``."""
        plan = self.plan
        end = self.begin if self.end is None else self.end
        firsts = [each.first for each in self.found.segments if each.name not in plan.moved]
        firsts += [new.header.first for new in plan.new]
        given_up = joined([*plan.folder.given_up, *plan.lost])
        plan.folder = plan.folder._replace(epoch=self.epoch, given_up=given_up, start=min(firsts, default=0))
        start = min(firsts, default=end)
        floor = self.tail.floor if self.tail else start
        plan.tail = Tail(self.durability, self.identity, end, floor, 0, start, self.epoch)

    def _check_start(self, segment: SegmentSurvey) -> None:
        """At the first segment with blocks to keep, record required events before it as lost."""
        if self.end is None and self.begin < segment.first:
            self.plan.lost.append((self.begin, segment.first))

    def _keep(self, segment: SegmentSurvey) -> None:
        """Keep a valid segment unchanged, unless its predecessor overlaps it."""
        header = segment.header
        assert header is not None
        self._check_start(segment)
        if self.end is not None and (self.end, self.chain) != (header.after, header.chain):
            if self.end >= header.after:
                self._rewrite(segment, None)
                return
            self.plan.new.append(self._bridge((self.end, header.after), None)._replace(chain=header.chain))
        self._advance(segment.end, segment.chain, segment.last_at)

    def _rewrite(self, segment: SegmentSurvey, limit: int | None) -> None:
        """Plan new segments from the valid blocks of a damaged one, one for each run without a loss."""
        pieces: list[NewSegment] = []
        for run in self._runs_up_to(segment, limit):
            if pieces and run.first == self.end:
                pieces[-1].runs.append(run)
            elif not pieces and run.first == segment.first and self.end in (None, run.first, _after(segment)):
                self._check_start(segment)
                pieces.append(self._continue_segment(segment, run))
            else:
                lost = (self.begin if self.end is None else self.end, run.first)
                pieces.append(self._bridge(lost, segment)._replace(runs=[run]))
            last = self._last_header(segment, run)
            # The next segment contains the checksum that the block has now, even if the block's chain changes.
            footer = segment.footer
            chain = footer.chain if footer is not None and footer.end == run.end else last.crc
            pieces[-1] = pieces[-1]._replace(chain=chain)
            self._advance(run.end, chain, last.base)
        self.plan.new += pieces
        names = {piece.name for piece in pieces}
        (self.plan.copied if segment.name in names else self.plan.moved).append(segment.name)

    def _continue_segment(self, segment: SegmentSurvey, run: BlockRun) -> NewSegment:
        """A new segment with the header of the old one, if that is readable."""
        old, first = segment.header, self._first_header(segment, run)
        header = SegmentHeader(
            durability=old.durability if old else self.durability,
            identity=self.identity,
            first=segment.first,
            after=segment.first if self.end is None else self.end,
            created=old.created if old else first.base,
            chain=self.chain,
            epoch=old.epoch if old else first.epoch,
        )
        if self.end is None and old is not None:
            header = old
        return NewSegment(header, None, segment.name, [run], segment.clean)

    def _bridge(self, lost: Range, segment: SegmentSurvey | None, *, seen: int | None = None) -> NewSegment:
        """A new segment over a loss, for blocks of ``segment``, if given.

        ``seen`` is the end of the events that ever existed, if that is before the end of the range.
        """
        self.plan.lost.append(lost)
        catalogue = self._catalogue(lost, segment)
        header = SegmentHeader(
            durability=self.durability,
            identity=self.identity,
            first=lost[1] - 1,
            after=lost[0],
            created=self.last_at,
            chain=self.chain,
            epoch=self.epoch,
        )
        previous = header.checksum
        block = bridge_block(catalogue, lost, self.last_at, self.epoch, previous, seen=seen or lost[1])
        return NewSegment(header, block, segment.name if segment else "", [], clean=True)

    def _bridge_lost_end(self, segments: list[SegmentSurvey]) -> None:
        """If the end is lost, resume far above anything that readers can have seen: no position may name two events."""
        known = [position for position, _, bad in self.found.checkpoints if bad is None]
        known += [segment.end for segment in segments]
        known += [problem.lost[1] for problem in self.found.problems if problem.lost and not is_kept(problem.file)]
        if self.tail is not None and self.tail.durability is not Durability.OS:
            known.append(self.tail.committed)
        end = self.begin if self.end is None else self.end
        highest = max(known, default=end)
        resumed = self.found.folder.resumes if self.found.folder is not None else 0
        nothing_left = not segments and any(problem.lost for problem in self.found.problems)
        # The position at which the last start resumed, if it appended nothing, is no loss.
        if highest > end and (nothing_left or highest not in (end + GAP, resumed)):
            self._finish_last(segments[-1:])
            end = self.begin if self.end is None else self.end
            is_known = segments or self.tail is not None
            resumes = highest + GAP if is_known else resume_after(highest, time.time_ns() // 1000)
            self.plan.new.append(self._bridge((end, resumes), None, seen=highest))
            self.plan.lost[-1] = (end, highest)
            self._advance(resumes, 0, self.last_at)

    def _finish_last(self, last: list[SegmentSurvey]) -> None:
        """The former last segment needs a footer now that another one follows."""
        for segment in last:
            if segment.footer is None and not segment.damaged and segment.header is not None and segment.runs:
                self.plan.new.append(NewSegment(segment.header, None, segment.name, segment.runs, clean=False))
                self.plan.copied.append(segment.name)
            elif segment.footer is None and not segment.damaged:
                self.plan.moved.append(segment.name)
                if segment.header is not None:
                    self.end, self.chain = self.before

    def _advance(self, end: int, chain: int, last_at: int) -> None:
        self.before = (self.end, self.chain)
        self.end, self.chain, self.last_at = end, chain, max(self.last_at, last_at)

    # Reading blocks

    def _runs_up_to(self, segment: SegmentSurvey, limit: int | None) -> list[BlockRun]:
        """The runs up to a position. An interrupted repair has already written the rest to another file."""
        if limit is None or segment.end <= limit:
            return segment.runs
        kept: list[BlockRun] = []
        for run in segment.runs:
            cut = run._replace(stop=run.offset, end=run.first)
            for header, _, offset in self._walk(segment.file, run):
                if header.end <= limit:
                    cut = cut._replace(stop=offset + header.length, end=header.end)
            if cut.stop > cut.offset:
                kept.append(cut)
        return kept

    def _walk(self, name: str, run: BlockRun) -> Iterator[tuple[BlockHeader, memoryview, int]]:
        with closing(self.disk.open(name)) as file:
            yield from walk(file, run.offset, run.stop, verify=False)

    def _first_header(self, segment: SegmentSurvey, run: BlockRun) -> BlockHeader:
        return next(header for header, _, _ in self._walk(segment.file, run))

    def _last_header(self, segment: SegmentSurvey, run: BlockRun) -> BlockHeader:
        return [header for header, _, _ in self._walk(segment.file, run)][-1]

    def _catalogue(self, lost: tuple[int, int], segment: SegmentSurvey | None) -> SegmentCatalogue:
        """The queues before the loss, and those mentioned after it."""
        catalogue = SegmentCatalogue()
        before = [each for each in self.found.segments if each.runs and each.runs[0].first < lost[0]]
        if before:
            self._feed(catalogue, before[-1], lost[0])
        if segment is not None:
            later = SegmentCatalogue()
            for each in self.found.segments:
                if each.first > segment.first and each.runs:
                    self._feed(later, each, each.runs[0].end)
            for number in self._mentioned(segment, lost[1]) - catalogue.queues.keys():
                made_up = {"namespace": NAMESPACE, "name": f"queue-{number}", "policy": {}, "created_at": self.last_at}
                catalogue.add(number, later.queues.get(number, made_up))
        return catalogue

    def _feed(self, catalogue: SegmentCatalogue, segment: SegmentSurvey, stop: int) -> None:
        for run in segment.runs:
            for header, view, offset in self._walk(segment.file, run):
                if header.present & _DETAIL and header.first < stop:
                    catalogue.feed(Block(header, view, offset))

    def _mentioned(self, segment: SegmentSurvey, start: int) -> set[int]:
        """The queues that the rest of a segment mentions without their creation."""
        mentioned: set[int] = set()
        known = SegmentCatalogue()
        for run in segment.runs:
            if run.first < start:
                continue
            for header, view, offset in self._walk(segment.file, run):
                block = Block(header, view, offset)
                mentioned.update(set(np.unique(block.queues).tolist()) - known.names.keys())
                known.feed(block)
        return mentioned - {0}


def joined(ranges: list[Range]) -> tuple[Range, ...]:
    """Ranges in order, with touching ones merged."""
    done: list[Range] = []
    for low, high in sorted(ranges):
        if done and low <= done[-1][1]:
            done[-1] = (done[-1][0], max(high, done[-1][1]))
        else:
            done.append((low, high))
    return tuple(done)


def _after(segment: SegmentSurvey) -> int:
    return segment.header.after if segment.header is not None else segment.first


def _guess_folder(where: str, headers: list[SegmentHeader], tail: Tail | None) -> Folder:
    """Reconstruct ``penstock.json``."""
    identities = [header.identity for header in headers] + ([tail.identity] if tail else [])
    if not identities:
        raise JournalRefused(f"{where} is not a journal, or nothing of it is readable: there is nothing to repair")
    identity = max(identities, key=identities.count)
    ours = [header for header in headers if header.identity == identity]
    epochs = [header.epoch for header in ours] + ([tail.epoch] if tail and tail.identity == identity else [])
    created = min((header.created for header in ours), default=0)
    return Folder(identity, created, max(epochs))
