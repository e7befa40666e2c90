"""What operators may ask of a journal: to be checked, shown, copied and repaired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.journal.backup import Manifest

#: Told how many more bytes were looked at.
Progress = Callable[[int], None]


class Defect(Protocol):
    """Something that is wrong, where it lies, and what is lost by it."""

    @property
    def file(self) -> str:
        """The part of the journal that has it."""

    @property
    def offset(self) -> int:
        """The byte in that part."""

    @property
    def text(self) -> str:
        """What is wrong."""

    @property
    def lost(self) -> tuple[int, int] | None:
        """Positions, end excluded; None: nothing."""

    def _asdict(self) -> dict[str, Any]:
        """All of it, for programs."""


class Verdict(NamedTuple):
    """What a check of every byte has found."""

    problems: Sequence[Defect]
    notes: Sequence[str]
    #: Whether a broker starts in spite of the problems.
    startable: bool
    extents: int
    blocks: int
    bytes: int
    #: The position after the last event.
    end: int


class ExtentInfo(NamedTuple):
    """An extent, for people."""

    name: str
    first: int
    events: int
    created: int
    bytes: int
    finished: bool


class JournalInfo(NamedTuple):
    """What a journal says of itself. Times are microseconds since 1970."""

    #: None where that can't be told.
    created: int | None
    extents: Sequence[ExtentInfo]
    #: Positions of checkpoints, and their bytes.
    checkpoints: Sequence[tuple[int, int]]


class Repair(Protocol):
    """A repair: first what is wrong and what would be done, then, if it is wanted, doing it."""

    #: The problems before the repair.
    found: Verdict
    #: Whether there is nothing to do.
    idle: bool
    #: Ranges of positions, ends excluded, that will be given up.
    lost: Sequence[tuple[int, int]]

    def plan(self) -> Sequence[str]:
        """What will be done, a line each, for people."""

    def carry_out(self, progress: Progress) -> list[str]:
        """Do it. Returns the names of what is kept aside. If it is interrupted, it can be done again."""

    def check(self) -> Verdict:
        """What is wrong after it."""


class AcceptedLoss(NamedTuple):
    """What was behind ``end`` is given up. Positions go on at ``resumes``, or higher."""

    end: int
    resumes: int


class JournalTools(Protocol):
    """For operators.

    All but ``create``, ``accept_loss`` and ``repair`` work while a broker runs, and change nothing.
    """

    def create(self) -> bool:
        """Make a new, empty one. False: there is one. A broker that starts does it as well. Raises JournalRefused."""

    def accept_loss(self) -> AcceptedLoss:
        """Go on from an earlier state: brokers that know what came after it accept that it is lost.

        Numbering goes on where no position can have been used. Raises JournalOwned while a broker has it, or
        JournalRefused.
        """

    def check(self) -> None:
        """Raise JournalRefused unless it is a journal."""

    def size(self) -> int:
        """About how many bytes a check will read: for a progress bar."""

    def verify(self, progress: Progress) -> Verdict:
        """Look at every byte. Raises JournalRefused if there is no journal."""

    def info(self) -> JournalInfo:
        """What it says of itself. Raises JournalRefused if there is no journal."""

    def back_up(self, target: str, progress: Callable[[int], bool]) -> Manifest:
        """Copy it into a new folder, from which ``backup.restore_backup`` makes a data folder.

        ``progress`` is told how many more bytes were copied, and ends the copy by False. Raises LogError or OSError;
        then nothing is left at the target.
        """

    def repair(self, progress: Progress) -> AbstractContextManager[Repair]:
        """Check it, and be ready to repair it; nobody else may own it meanwhile. Raises JournalRefused."""
