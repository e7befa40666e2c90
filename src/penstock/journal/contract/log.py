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
#: Numbering resumes this much higher where events may be lost that somebody has seen: more than any broker could have
#: written between two syncs.
GAP = 2**32
#: Positions for each second since ``PACE_BEGAN``: more than any broker writes in one, so numbering stays below what the
#: clock stands for. A journal that was put back to an earlier state, and resumes there, repeats no position of the
#: history that it has lost, however long that was.
PACE = 2**20
#: 2025-01-01, in microseconds since 1970.
PACE_BEGAN = 1_735_689_600_000_000
#: A clock that is further ahead, in microseconds, is not believed.
_LATEST = 2**52
#: What ``Space.free`` is where nothing bounds it.
UNBOUNDED = 2**62

Columns = dict[str, npt.NDArray[Any]]


def resume_after(end: int, now: int) -> int:
    """Where numbering goes on if the events behind ``end`` may be lost, whoever has seen how many of them.

    ``now`` is in microseconds since 1970.
    """
    by_clock = since_began(now) * PACE // 1_000_000
    return by_clock if by_clock > end else end + GAP


def since_began(now: int) -> int:
    """What a time counts for in positions and epochs: microseconds since ``PACE_BEGAN``."""
    return min(max(now - PACE_BEGAN, 0), _LATEST)


class Durability(Enum):
    """When an event counts as committed. The values are stored."""

    COMMIT = 1  # each append is synced before it returns
    INTERVAL = 2  # at the next `sync`
    OS = 3  # when the operating system has it; a power failure may lose it


@dataclass(frozen=True)
class OwnerOptions:
    """How the owner's journal behaves. Sizes are in bytes, ages in microseconds."""

    durability: Durability = Durability.COMMIT
    #: An extent is full at this size or this age. Smaller ones give space back sooner, and are more.
    extent_bytes: int = 128 * 1024 * 1024
    extent_age: int = 3_600_000_000
    #: Space is reserved ahead in such steps, smaller ones when there is little: a sync takes about two thirds of the
    #: time when the size stays the same.
    reserve: int = 4 * 1024 * 1024
    #: The folder in which a broker on a ``shared`` journal keeps what it knows of it across restarts; empty: nowhere.
    notes: str = ""


class Extent(Protocol):
    """A stretch of the log that is given back as a whole. It begins with a catalogue of the queues."""

    @property
    def name(self) -> str:
        """For people: what to look for, and where."""

    @property
    def first(self) -> int:
        """Its first position, which is its name for ``trim``."""

    @property
    def end(self) -> int:
        """The position after its last event."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""

    @property
    def last_at(self) -> int:
        """About when its last event was, in microseconds since 1970."""

    @property
    def finished(self) -> bool:
        """Whether it grows no more."""

    @property
    def verified(self) -> bool:
        """Whether this process has seen every checksum of it to be right."""


class BadRange(NamedTuple):
    """Events that can't be read: their positions, end excluded, where they lie, for people, and why."""

    first: int
    end: int
    place: str
    reason: str


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
        """The head: the position that the next append must have."""

    @property
    def committed(self) -> int:
        """Every event below this position is durable, as durable as the log was asked to be."""

    @property
    def synced(self) -> int:
        """Every event below this position survives whatever the storage survives, whatever the durability asks for."""

    @property
    def sync_seconds(self) -> float:
        """How long all syncs have taken so far."""

    @property
    def epoch(self) -> int:
        """The epoch that appends must have: that of the last ``seal``, or of ``own``, where that has raised it."""

    @property
    def wants_roll(self) -> bool:
        """Whether the next append should begin an extent, with ``roll=True`` and a catalogue as its first row."""

    @property
    def block_bytes(self) -> int:
        """How many bytes of messages an append should have at most for now: the way to the storage may be slow."""

    @property
    def floor(self) -> int:
        """Where the history that readers are shown begins. Positions below serve deliveries only."""

    def set_floor(self, position: int) -> None:
        """Move the history floor. It is shown to other processes with the next append or sync."""

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """Add one block. On return it is committed, except that INTERVAL commits with the next ``sync``.

        Raises Fenced when the position or the epoch is not the log's, LogFailed when the storage fails (and then on
        every later call), LogFull when there is no room (the same append may be tried again), ValueError when the
        batch can not be a block.
        """

    def sync(self) -> None:
        """Commit all that was appended."""

    def seal(self, epoch: int) -> None:
        """Take over: from now on only appends with this epoch are accepted. Raises Fenced if it is not a newer one."""

    def read(self, start: int) -> Iterator[Block]:
        """The committed blocks with events at ``start`` or later, in order. Raises JournalDamaged at a bad one."""

    def messages(self, positions: Iterable[int]) -> list[MessageRow]:
        """The messages at these positions, in the order asked for. Raises Gone if one of them is not there."""

    def locate(self, position: int) -> Block:
        """The block that has this position, committed or not. Raises Gone, or JournalDamaged."""

    def resident(self, position: int) -> Block | None:
        """The same block if it is in memory, else None: for an event loop, which must not wait for storage."""

    def at_once(self, position: int) -> Block | None:
        """The same block if it can be had without waiting, though with some work: a few milliseconds at most."""

    def numbers(self, name: str, positions: Iterable[int]) -> list[int]:
        """One fixed-width column of the messages at these positions. Raises Gone if one of them is not there."""

    def extents(self) -> Sequence[Extent]:
        """What the log consists of, oldest first. The last one grows."""

    def trim(self, before: int, keep: Container[int] = ()) -> None:
        """Give back the extents that end at or below the position; never the last, which tells where the log ends.

        Those whose first positions are to be kept are no part of the log any more either, but single messages can still
        be read from them.
        """

    def kept(self) -> Sequence[Extent]:
        """Extents that were trimmed, but for single messages in them."""

    def release(self, extent: Extent) -> None:
        """Nobody needs a kept extent any more. Any thread may call it."""

    def check(self, extent: Extent) -> Iterator[tuple[int, BadRange | None]]:
        """Read a finished extent: how many bytes, and what is bad, a step at a time. Any thread may.

        Raises LookupError or OSError if it is not there any more.
        """

    def forget_damage(self) -> None:
        """Look at damaged places anew when they are asked for: what was lost may have been put back."""

    def forget_unused(self) -> bool:
        """Of blocks that were read and kept, forget all if none was asked for since the last call.

        Returns whether there were any. Any thread may call it, a few times a second at most.
        """

    def close(self) -> None:
        """Commit, and let go of everything. Closing twice is fine."""
