"""The log: an ordered, durable sequence of events with one writer."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from penstock.journal.format.block import Batch, Block
from penstock.journal.format.rows import MessageRow

#: Position of the first event of a new log. 0 stands for "none" in the columns.
FIRST_POSITION = 1
#: Where events that were shown may be lost, numbering resumes this much higher: more than any broker could have written
#: between two syncs.
GAP = 2**32
#: Positions for each second since ``PACE_BEGAN``: more than any broker writes in a second, so numbering stays below the
#: clock's position. A restored journal resumes at that position, and repeats none of the history that it has lost,
#: however long that was.
PACE = 2**20
#: 2025-01-01, in microseconds since 1970.
PACE_BEGAN = 1_735_689_600_000_000
#: Clocks are trusted up to here, in microseconds.
_LATEST = 2**52
#: ``Space.free`` where nothing bounds it.
UNBOUNDED = 2**62

Columns = dict[str, npt.NDArray[Any]]


def resume_after(end: int, now: int) -> int:
    """The position at which numbering resumes if any number of events after ``end`` may be lost.

    ``now`` is in microseconds since 1970.
    """
    by_clock = since_began(now) * PACE // 1_000_000
    return by_clock if by_clock > end else end + GAP


def since_began(now: int) -> int:
    """Microseconds since ``PACE_BEGAN``, which positions and epochs count by."""
    return min(max(now - PACE_BEGAN, 0), _LATEST)


class Durability(Enum):
    """When an event counts as committed. Journals store these numbers."""

    COMMIT = 1  # each append is synced before it returns
    INTERVAL = 2  # at the next `sync`
    OS = 3  # once the operating system has it; a power failure may lose it


@dataclass(frozen=True)
class OwnerOptions:
    """Settings of an owner's journal. Sizes are in bytes, ages in microseconds."""

    durability: Durability = Durability.COMMIT
    #: An extent is full at this size or age. Smaller extents free space sooner, but there are more of them.
    extent_bytes: int = 128 * 1024 * 1024
    extent_age: int = 3_600_000_000
    #: Files are extended in such steps, or smaller ones when space is short: a sync takes about two thirds of the time
    #: when the file's size stays the same.
    reserve: int = 4 * 1024 * 1024
    #: Where a broker on a ``shared`` journal remembers its last known commit across restarts: a folder, or empty.
    notes: str = ""


class Extent(Protocol):
    """A part of the log that retention removes as a whole. It begins with a catalogue of the queues."""

    @property
    def name(self) -> str:
        """For people: its file or table."""

    @property
    def first(self) -> int:
        """Its first position, by which ``trim`` identifies it."""

    @property
    def end(self) -> int:
        """The position after its last event."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def last_at(self) -> int:
        """The approximate time of its last event, in microseconds since 1970."""

    @property
    def finished(self) -> bool:
        """Whether it no longer grows."""

    @property
    def verified(self) -> bool:
        """Whether this process has verified all of its checksums."""


class BadRange(NamedTuple):
    """Unreadable events: their positions (end excluded), their place, for display, and the reason."""

    first: int
    end: int
    place: str
    reason: str


class Log(Protocol):
    """An ordered, durable sequence of events with one writer.

    One thread appends, syncs and trims; any thread may read. Positions grow by one per event, except that a log may
    resume at a higher position after an unclean stop: take the next position from ``end``, never compute it.
    """

    @property
    def identity(self) -> int:
        """64 random bits that distinguish this log from every other."""

    @property
    def start(self) -> int:
        """The lowest position that may still exist."""

    @property
    def end(self) -> int:
        """The head: the position that the next append must have."""

    @property
    def committed(self) -> int:
        """Every event below this position is as durable as the options ask for."""

    @property
    def synced(self) -> int:
        """Every event below this position is on stable storage, whatever the durability."""

    @property
    def sync_seconds(self) -> float:
        """The time of all syncs so far."""

    @property
    def epoch(self) -> int:
        """The epoch that appends must have: that of the last ``seal``, or of ``own`` if that has raised it."""

    @property
    def wants_roll(self) -> bool:
        """Whether the next append should begin an extent: with ``roll=True``, and a catalogue as its first row."""

    @property
    def block_bytes(self) -> int:
        """The bytes of messages that an append should contain at most for now: the storage may be slow."""

    @property
    def floor(self) -> int:
        """Where the history for readers begins. Positions below it serve deliveries only."""

    def set_floor(self, position: int) -> None:
        """Move the history floor. Other processes see it after the next append or sync."""

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """Append one block. On return it is committed, except that INTERVAL commits with the next ``sync``.

        Raises Fenced if the position or the epoch is not the log's, LogFailed if the storage fails (then and on every
        later call), LogFull without room (the same append may be tried again), ValueError if the batch is not valid.
        """

    def sync(self) -> None:
        """Commit everything that was appended."""

    def seal(self, epoch: int) -> None:
        """Accept only appends with this epoch from now on. Raises Fenced unless it is higher than the current one."""

    def read(self, start: int) -> Iterator[Block]:
        """The committed blocks with events at ``start`` or later, in order. Raises JournalDamaged at a bad one."""

    def messages(self, positions: Iterable[int]) -> list[MessageRow]:
        """The messages at these positions, in the given order. Raises Gone if one does not exist."""

    def locate(self, position: int) -> Block:
        """The block with this position, committed or not. Raises Gone or JournalDamaged."""

    def resident(self, position: int) -> Block | None:
        """The same block if it is in memory, else None: for the event loop, which must not wait for storage."""

    def at_once(self, position: int) -> Block | None:
        """The same block if it can be read without waiting, in a few milliseconds of work at most, else None."""

    def numbers(self, name: str, positions: Iterable[int]) -> list[int]:
        """One fixed-width column of the messages at these positions. Raises Gone if one does not exist."""

    def extents(self) -> Sequence[Extent]:
        """The extents of the log, oldest first. The last one grows."""

    def trim(self, before: int, keep: Container[int] = ()) -> None:
        """Remove the extents that end at or below the position, but never the last, which marks the log's end.

        Extents whose first positions are in ``keep`` leave the log too, but single messages remain readable from them.
        """

    def kept(self) -> Sequence[Extent]:
        """Extents that were trimmed but kept for single messages in them."""

    def release(self, extent: Extent) -> None:
        """Remove a kept extent. Any thread may call it."""

    def check(self, extent: Extent) -> Iterator[tuple[int, BadRange | None]]:
        """Verify a finished extent step by step: each step returns its bytes, and damage if there is any.

        Any thread may call it. Raises LookupError or OSError if the extent is gone.
        """

    def forget_damage(self) -> None:
        """Read damaged places again when they are needed: they may have been repaired."""

    def forget_unused(self) -> bool:
        """Drop the cached blocks if none was used since the last call. Returns whether there were any.

        Any thread may call it, a few times a second at most.
        """

    def close(self) -> None:
        """Commit, and release all resources. Closing twice is allowed."""
