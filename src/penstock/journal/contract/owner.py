"""What the owner of a journal has beside its log: checkpoints, small values, space and a lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.journal.contract.log import Columns, Log


@dataclass(frozen=True)
class Checkpoint:
    """The state before ``position``. A column with one value for all rows may be that value, with a stride of 0."""

    position: int
    meta: bytes
    columns: Columns
    clean: bool


class CheckpointStore(Protocol):
    """Checkpoints: the state before a position, so that a start reads the events after it and not all there ever were.

    What the state is, only the engine knows. Two are kept: the older is for the day on which the newer can't be read,
    so the log must not be trimmed above it.
    """

    #: The checkpoints that ``newest_good`` skipped, and why: for the operator.
    report: list[str]

    def positions(self) -> list[int]:
        """The positions that have one, oldest first."""

    def size(self, position: int) -> int:
        """How many bytes the one at a position has."""

    def write(self, position: int, meta: bytes, columns: Columns, *, clean: bool = False) -> None:
        """Write one, whole or not at all, then remove all but the two newest. Raises OSError, or LogFull without room.

        The log must be synced up to the position first, or the checkpoint might know events that a crash takes away.
        """

    def newest_good(self) -> Checkpoint | None:
        """The newest that can be read. Raises OSError; LogAway where the storage can't be asked for now."""


class ValueStore(Protocol):
    """A few small values by name, kept with the journal. Calls may take as long as a sync: not in an event loop."""

    def get(self, name: str) -> bytes | None:
        """The value, None if there is none. Raises OSError; LogAway where it can't be known for now."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a value. On return a power failure does not take it back. Raises OSError, and then the old one stays."""

    def delete(self, name: str) -> None:
        """There is no such value any more. Raises OSError."""

    def set_aside(self, name: str) -> None:
        """A value is of no use: keep it where an operator can look at it. Raises OSError."""


class Space(Protocol):
    """Room for more. Any thread may ask."""

    @property
    def free(self) -> int:
        """How many bytes there was room for when that was last looked at; ``UNBOUNDED`` where nothing bounds it."""

    def look(self) -> int:
        """The same now. Raises LogError."""

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may be written to give space back. Nothing needs no room."""

    def fill_reserve(self, min_free: int, state: int) -> None:
        """See that acknowledgements and a checkpoint of ``state`` bytes have room also when somebody else fills it.

        ``min_free`` is what the broker wants to stay free.
        """


class Lease(Protocol):
    """For how long nobody else may become the owner. Every append renews it as well. Any thread may use it."""

    @property
    def seconds(self) -> float:
        """How long it lasts from when it is renewed."""

    @property
    def deadline(self) -> float:
        """The moment of ``time.monotonic`` up to which this owner may hand out messages; others wait longer.

        It is counted from before the lease was asked for, less a margin for clocks that do not run alike.
        """

    def renew(self) -> None:
        """Have it for ``seconds`` from now on. It takes as long as a commit: not in an event loop.

        Raises Fenced when there is another owner, and LogError when that can't be found out.
        """

    def keep(self) -> bool:
        """Renew it beside a commit that is under way, in any thread. False: it could not be; ``renew`` finds out why.

        A lease that was given back, or lost, is not renewed.
        """

    def release(self) -> None:
        """Give it back: others may be the owner at once, and this one may do nothing more. Raises LogError."""


class OwnedJournal(Protocol):
    """The journal in the hands of the broker that writes it.

    Nothing that was there is changed before ``begin``, but for the fence of a journal with a lease: until then it can
    be read, and let go.
    """

    #: None where a lock keeps other owners away until this process ends.
    lease: Lease | None
    log: Log
    checkpoints: CheckpointStore
    values: ValueStore
    space: Space
    #: A URL by which other processes of this user follow the journal while it is open.
    address: str
    #: What the start repaired, for the operator.
    report: Sequence[str]
    #: Weaknesses of the place where the journal is kept, for the operator: a single copy, for instance.
    warnings: Sequence[str]
    #: Ranges of positions, ends excluded, that an operator has given up by a repair.
    given_up: tuple[tuple[int, int], ...]

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that it takes for what it keeps; 0 for one that keeps it elsewhere."""

    @property
    def expects_checkpoint(self) -> bool:
        """Whether there should be a checkpoint by now: the operator is told if there is none."""

    def check_reach(self, position: int) -> bool:
        """Whether all events from a checkpoint's position on are there to be read; False: it is too old.

        Raises JournalDamaged if they should be and are not.
        """

    def begin(self) -> None:
        """Put right what a crash has left, and be ready to write. Raises LogFull without room for that."""

    def close(self) -> None:
        """Close the log, and let go of everything."""
