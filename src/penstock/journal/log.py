"""The contract of a log: what the engine may expect of whatever keeps its events.

One suite, tests/journal/test_log_contract.py, runs against every implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Protocol

from penstock.journal.format.block import Batch, Block
from penstock.journal.format.rows import Message

#: Position of the first event of a new log. 0 stands for "none" in the columns.
FIRST_POSITION = 1
#: Numbering resumes this much higher where events may be lost that somebody has seen: more than any broker could have
#: written between two syncs.
GAP = 2**32


class Durability(Enum):
    """When an event counts as committed. The values are on disk."""

    COMMIT = 1  # each append is synced before it returns
    INTERVAL = 2  # at the next `sync`
    OS = 3  # when the operating system has it; a power failure may lose it


class Log(Protocol):
    """An ordered, durable sequence of events with one writer.

    One thread appends, syncs and trims; any thread may read. Positions grow by one per event, except that a log may
    resume at a higher position after an unclean stop: ask ``end`` for the next position, never compute it.
    """

    @property
    def identity(self) -> int:
        """64 random bits that tell this log from every other one."""

    @property
    def start(self) -> int:
        """The lowest position that may still be there."""

    @property
    def end(self) -> int:
        """The position that the next append must have."""

    @property
    def committed(self) -> int:
        """Every event below this position is durable, as durable as the log was asked to be."""

    @property
    def epoch(self) -> int:
        """The epoch of the last ``seal``; 0 for a new log."""

    @property
    def wants_roll(self) -> bool:
        """Whether the next append should pass ``roll=True`` (and start with a catalogue of the queues)."""

    @property
    def floor(self) -> int:
        """Where the history that readers are shown begins. Positions below serve deliveries only."""

    def set_floor(self, position: int) -> None:
        """Move the history floor. It is shown to other processes with the next append or sync."""

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """Add one block. On return it is committed, except that INTERVAL commits with the next ``sync``.

        Raises Fenced when the position or the epoch is not the log's, LogFailed when the disk fails (and then on
        every later call), LogFull when there is no room (the same append may be tried again), ValueError when the
        batch can not be a block.
        """

    def sync(self) -> None:
        """Commit all that was appended."""

    def seal(self, epoch: int) -> None:
        """Take over: from now on only appends with this epoch are accepted. Raises Fenced if it is not a newer one."""

    def read(self, start: int) -> Iterator[Block]:
        """The committed blocks with events at ``start`` or later, in order. Raises JournalDamaged at a bad one."""

    def messages(self, positions: Iterable[int]) -> list[Message]:
        """The messages at these positions, in the order asked for. Raises Gone if one of them is not there."""

    def locate(self, position: int) -> Block:
        """The block that has this position, committed or not. Raises Gone, or JournalDamaged."""

    def numbers(self, name: str, positions: Iterable[int]) -> list[int]:
        """One fixed-width column of the messages at these positions. Raises Gone if one of them is not there."""

    def trim(self, before: int) -> None:
        """Give back the space of events below the position, as far as that can be done in whole pieces."""

    def close(self) -> None:
        """Commit, and let go of everything. Closing twice is fine."""
