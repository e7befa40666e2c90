"""What operators can do with a journal: check, show, back up and repair it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.journal.backup import Manifest

#: Called with the number of bytes processed since the last call.
Progress = Callable[[int], None]


class Defect(NamedTuple):
    """A fault in a file or table, and the positions lost by it."""

    file: str
    #: The byte in it.
    offset: int
    text: str
    #: Lost positions, end excluded; None if there are none.
    lost: tuple[int, int] | None = None
    #: Whether a start is refused because of it.
    stops: bool = True


class Verdict(NamedTuple):
    """The result of a check of every byte."""

    problems: Sequence[Defect]
    notes: Sequence[str]
    #: Whether a broker starts despite the problems.
    startable: bool
    extents: int
    blocks: int
    bytes: int
    #: The position after the last event.
    end: int


class ExtentInfo(NamedTuple):
    """An extent, for display."""

    name: str
    first: int
    events: int
    created: int
    bytes: int
    finished: bool


class JournalInfo(NamedTuple):
    """A journal's own description. Times are microseconds since 1970."""

    #: None if unknown.
    created: int | None
    extents: Sequence[ExtentInfo]
    #: The position and size in bytes of each checkpoint.
    checkpoints: Sequence[tuple[int, int]]


class Repair(Protocol):
    """A repair: the problems and the plan first, then, if the operator agrees, the repair itself."""

    #: The problems before the repair.
    found: Verdict
    #: Whether there is nothing to do.
    idle: bool
    #: Ranges of positions, ends excluded, that will be given up.
    lost: Sequence[tuple[int, int]]

    def plan(self) -> Sequence[str]:
        """The planned steps, a line each, for display."""

    def carry_out(self, progress: Progress) -> list[str]:
        """Do it. Returns the names of the files set aside. An interrupted repair can be repeated."""

    def check(self) -> Verdict:
        """The problems after the repair."""


class AcceptedLoss(NamedTuple):
    """Events from ``end`` on are given up. Numbering resumes at ``resumes`` or higher."""

    end: int
    resumes: int


class JournalTools(Protocol):
    """Commands for operators.

    All but ``create``, ``accept_loss`` and ``repair`` work while a broker runs, and change nothing.
    """

    def create(self) -> bool:
        """Create an empty journal, as a start does. False: it exists already. Raises JournalRefused."""

    def accept_loss(self) -> AcceptedLoss:
        """Continue from an earlier state: brokers that know later events accept their loss.

        Numbering resumes where no position can have been used. Raises JournalOwned if a broker runs on it, or
        JournalRefused.
        """

    def check(self) -> None:
        """Raise JournalRefused unless it is a journal."""

    def size(self) -> int:
        """The approximate bytes that a check will read, for a progress bar."""

    def verify(self, progress: Progress) -> Verdict:
        """Check every byte. Raises JournalRefused if there is no journal."""

    def info(self) -> JournalInfo:
        """Describe it. Raises JournalRefused if there is no journal."""

    def back_up(self, target: str, progress: Callable[[int], bool]) -> Manifest:
        """Copy it into a new folder, from which ``backup.restore_backup`` makes a data folder.

        ``progress`` gets the number of bytes copied since its last call, and cancels the copy by returning False.
        Raises LogError or OSError, and leaves nothing at the target then.
        """

    def repair(self, progress: Progress) -> AbstractContextManager[Repair]:
        """Check it and plan a repair. It can have no owner meanwhile. Raises JournalRefused."""
