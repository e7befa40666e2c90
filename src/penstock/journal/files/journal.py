"""The journal in a folder, in each role of the contract."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

from penstock.journal.backup import Manifest, copy_journal, mark_put_back
from penstock.journal.contract import (
    AcceptedLoss,
    ExtentInfo,
    Journal,
    JournalInfo,
    JournalTools,
    OwnedJournal,
    OwnerOptions,
    Progress,
    Repair,
    Space,
    Span,
    Verdict,
)
from penstock.journal.errors import JournalRefused
from penstock.journal.files.checkpoints import CheckpointReader, Checkpoints
from penstock.journal.files.disk import Disk, RealDisk
from penstock.journal.files.folder import NAME, load_folder, take_lock
from penstock.journal.files.follower import JournalReader
from penstock.journal.files.log import FileLog
from penstock.journal.files.recovery import refuse
from penstock.journal.files.transfer import FolderSource, FolderTarget, folder_source, folder_target
from penstock.journal.files.values import FileValues
from penstock.journal.format.segment import is_segment
from penstock.journal.repair.plan import RepairPlan, plan
from penstock.journal.repair.rewrite import carry_out
from penstock.journal.repair.survey import survey, verdict_of


class FileJournal(Journal):
    """The journal in a folder. Its owner holds a lock of the operating system, so no other broker can take over."""

    shared = False

    def __init__(self, folder: str | os.PathLike[str], options: OwnerOptions | None = None) -> None:
        self.where = os.fspath(folder)
        self._options = options

    @override
    def own(self) -> OwnedFiles:
        """Create the folder if it is missing."""
        return OwnedFiles(RealDisk(self.where), self._options)

    @override
    def follow(self, *, identity: int | None = None) -> JournalReader:
        return JournalReader(self.where, identity=identity)

    @override
    def stand_by(self) -> NoReturn:
        raise JournalRefused(f"{self.where} is a folder: one broker owns it, and no other can stand by")

    @override
    def abandon(self) -> None:
        """Do nothing: calls to a disk can't be interrupted."""

    @override
    def tools(self) -> FileTools:
        return FileTools(self.where)

    @override
    def transfer_source(self) -> AbstractContextManager[FolderSource]:
        return folder_source(self.where)

    @override
    def transfer_target(self) -> AbstractContextManager[FolderTarget]:
        return folder_target(self.where)


class OwnedFiles(OwnedJournal):
    """A folder whose lock is held."""

    memory_bytes = 0
    lease = None
    _may_be_damaged = True

    def __init__(self, disk: Disk, options: OwnerOptions | None = None) -> None:
        """Lock the folder, and read its state."""
        self.log = FileLog(disk, options, look_first=True)
        self.checkpoints = Checkpoints(disk, self.log.identity, self.log.space, may_be_damaged=self._may_be_damaged)
        self.values = FileValues(disk)
        self.space: Space = self.log.space
        self.address = f"file:{os.path.abspath(disk.where)}"
        self.report = list(map(str, self.log.report))
        self.warnings = []
        self.given_up = self.log.given_up

    @property
    @override
    def expects_checkpoint(self) -> bool:
        return self.log.expects_checkpoint

    @override
    def check_reach(self, position: int) -> bool:
        return self.log.check_reach(position)

    @override
    def begin(self) -> None:
        self.log.begin()

    @override
    def close(self) -> None:
        self.log.close()


class FileTools(JournalTools):
    """Commands for operators on a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @override
    def create(self) -> bool:
        if os.path.isfile(os.path.join(self._folder, NAME)):
            return False
        FileLog(RealDisk(self._folder)).close()
        return True

    @override
    def check(self) -> None:
        if not any(name == NAME or is_segment(name) for name in os.listdir(self._folder)):
            raise JournalRefused(f"{self._folder} is not a journal: it has neither {NAME} nor segments")

    @override
    def size(self) -> int:
        with suppress(OSError):  # a segment may have been trimmed
            return sum(path.stat().st_size for path in Path(self._folder).glob("*.seg"))
        return 0

    @override
    def verify(self, progress: Progress) -> Verdict:
        self.check()
        return verdict_of(survey(RealDisk(self._folder, read_only=True), progress))

    @override
    def info(self) -> JournalInfo:
        self.check()
        disk = RealDisk(self._folder, read_only=True)
        with closing(JournalReader(disk)) as reader:
            kept, checkpoints = load_folder(disk), CheckpointReader(disk, reader.identity)
            return JournalInfo(
                kept.created if kept else None,
                [self._extent(span) for span in reader.spans()],
                [(position, checkpoints.size(position)) for position in checkpoints.positions()],
            )

    @override
    def back_up(self, target: str, progress: Callable[[int], bool]) -> Manifest:
        return copy_journal(self._folder, target, progress)

    @override
    def accept_loss(self) -> AcceptedLoss:
        self.check()
        disk = RealDisk(self._folder)
        with closing(take_lock(disk)):
            found = survey(disk, deep=False)
            refuse(disk.where, found)
            return AcceptedLoss(found.end, mark_put_back(disk, found.end))

    def _extent(self, span: Span) -> ExtentInfo:
        name = span.key[0]
        size = os.stat(os.path.join(self._folder, name)).st_size
        return ExtentInfo(name, span.first, span.end - span.first, span.created, size, span.finished)

    @contextmanager
    @override
    def repair(self, progress: Progress) -> Iterator[FileRepair]:
        self.check()
        disk = RealDisk(self._folder)
        with closing(take_lock(disk)):
            yield FileRepair(disk, progress)


class FileRepair(Repair):
    """A repair of a folder whose lock is held."""

    def __init__(self, disk: Disk, progress: Progress) -> None:
        self._disk = disk
        self._survey = survey(disk, progress)
        self._plan: RepairPlan = plan(disk, self._survey)
        self.found = verdict_of(self._survey)
        self.idle = self._plan.idle
        self.lost = self._plan.lost

    @override
    def plan(self) -> list[str]:
        todo, lines = self._plan, []
        if todo.new:
            lines.append(f"To be written: {', '.join(new.name for new in todo.new)}")
        lines += [f"To get its name back: {old} is {new}" for old, new in todo.renamed]
        if todo.strays or todo.copied or todo.moved:
            lines.append(f"To be kept aside: {', '.join([*todo.strays, *todo.copied, *todo.moved])}")
        return lines

    @override
    def carry_out(self, progress: Progress) -> list[str]:
        return [] if self.idle else carry_out(self._disk, self._plan, progress)

    @override
    def check(self) -> Verdict:
        return self.found if self.idle else verdict_of(survey(self._disk))
