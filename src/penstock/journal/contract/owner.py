"""The owner's journal: its log, checkpoints, small values, space and lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.journal.contract.log import Columns, Log


@dataclass(frozen=True)
class Checkpoint:
    """The state before ``position``. A column with one value for all rows may be an array with a stride of 0."""

    position: int
    meta: bytes
    columns: Columns
    clean: bool


class CheckpointStore(Protocol):
    """Checkpoints: the state before a position, so that a start only reads the events after it.

    Only the engine knows what the state is. Two checkpoints are kept. The older one is used if the newer is unreadable,
    so the log must not be trimmed above it.
    """

    #: The checkpoints that ``newest_good`` skipped, and why: for the operator.
    report: list[str]

    def positions(self) -> list[int]:
        """The positions with a checkpoint, oldest first."""

    def size(self, position: int) -> int:
        """The bytes of the checkpoint at a position."""

    def write(self, position: int, meta: bytes, columns: Columns, *, clean: bool = False) -> None:
        """Write one atomically, then remove all but the two newest. Raises OSError, or LogFull without room.

        The log must be synced up to the position first, or a crash might lose events that the checkpoint contains.
        """

    def newest_good(self) -> Checkpoint | None:
        """The newest readable checkpoint. Raises OSError, or LogAway if the storage does not answer for now."""


class ValueStore(Protocol):
    """A few small named values stored with the journal. Calls may take as long as a sync: not for an event loop."""

    def get(self, name: str) -> bytes | None:
        """The value, None if there is none. Raises OSError, or LogAway if the storage does not answer for now."""

    def put(self, name: str, value: bytes) -> None:
        """Store a value; it survives a power failure on return. Raises OSError, and then the old one stays."""

    def delete(self, name: str) -> None:
        """Remove a value. Raises OSError."""

    def set_aside(self, name: str) -> None:
        """Move an unusable value to where an operator can look at it. Raises OSError."""


class Space(Protocol):
    """Free space. Any thread may use it."""

    @property
    def free(self) -> int:
        """Free bytes at the last look; ``UNBOUNDED`` where nothing bounds it."""

    def look(self) -> int:
        """Free bytes now. Raises LogError."""

    def has_room(self, size: int) -> bool:
        """Whether compaction may write ``size`` bytes in order to free space. True for 0."""

    def fill_reserve(self, min_free: int, state: int) -> None:
        """Reserve space for acknowledgements and a checkpoint of ``state`` bytes, in case other programs fill the disk.

        ``min_free`` is how much the broker is configured to leave free.
        """


class Lease(Protocol):
    """The time for which no other broker can become the owner. Appends renew it too. Any thread may use it."""

    @property
    def seconds(self) -> float:
        """How long it lasts after a renewal."""

    @property
    def deadline(self) -> float:
        """The moment of ``time.monotonic`` until which this owner may deliver messages; other brokers wait longer.

        It counts from before the renewal was sent, less a margin for clocks that run at different speeds.
        """

    def renew(self) -> None:
        """Renew it for ``seconds`` from now. Takes as long as a commit: not for an event loop.

        Raises Fenced if there is another owner, and LogError if the storage does not answer.
        """

    def keep(self) -> bool:
        """Renew it while a commit is in flight, in any thread. False if that failed; ``renew`` raises the reason.

        A released or lost lease is not renewed.
        """

    def release(self) -> None:
        """End it: another broker may become the owner at once, and this one may do nothing more. Raises LogError."""


class OwnedJournal(Protocol):
    """The journal of the broker that writes it.

    ``begin`` makes the first change, apart from the fence of a journal with a lease: until then the journal can be read
    and closed again.
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
        """Bytes of events in memory; 0 for a journal on disk or in a database."""

    @property
    def expects_checkpoint(self) -> bool:
        """Whether there should be a checkpoint by now: if not, the operator is warned."""

    def check_reach(self, position: int) -> bool:
        """Whether all events from a checkpoint's position on are readable; False if the checkpoint is too old.

        Raises JournalDamaged if they should be readable and are not.
        """

    def begin(self) -> None:
        """Repair what a crash has left, and get ready to write. Raises LogFull without room for that."""

    def close(self) -> None:
        """Close the log and release all resources."""
