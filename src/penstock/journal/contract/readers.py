"""Reading a journal, in any process, while its owner writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from penstock.journal.contract.log import Durability
from penstock.journal.contract.owner import Checkpoint
from penstock.journal.errors import DataLoss, JournalDamaged
from penstock.journal.format.block import Block, BlockError
from penstock.journal.format.catalogue import QueueName, SegmentCatalogue


class Tail(NamedTuple):
    """How far a journal goes at one moment; ``committed``, ``floor``, ``start`` and ``epoch`` as in ``Log``."""

    #: The owner's setting.
    durability: Durability
    identity: int
    committed: int
    floor: int
    #: Grows with every change.
    generation: int
    start: int
    epoch: int


class Span(NamedTuple):
    """An extent as readers see it."""

    #: Its name, and a number that no other extent of that name has.
    key: tuple[str, int]
    first: int
    #: The position after its last committed event.
    end: int
    #: The end of the log before it.
    after: int
    #: The time of its first event.
    created: int
    #: Whether it no longer grows.
    finished: bool
    #: Whether a repair has put its first block over lost events.
    bridged: bool


class HeldExtent(Protocol):
    """An extent that stays readable while this object exists, even if it is removed.

    ``limit`` in the methods is the committed position: nothing after it is read.
    """

    #: For people.
    name: str

    def blocks(self, start: int, stop: int, *, verify: bool = True) -> Iterator[Block]:
        """The blocks with events from ``start`` up to ``stop``, which must be committed.

        Raises BlockError at an invalid one. Without ``verify`` the checksums of bodies are not verified.
        """

    def mentions(self, message: int, start: int, stop: int) -> Iterator[Block]:
        """At least the blocks of a range with events about a message, apart from the message itself.

        Raises BlockError at an invalid block among them.
        """

    def marks(self, limit: int) -> tuple[list[int], list[int]]:
        """A position for about every 64 KiB, and the bytes before each; the last is the end."""

    def name_of(self, number: int, limit: int) -> QueueName | None:
        """The name of a queue that a row of this extent mentions; None if the journal does not contain it."""

    def catalogue(self, limit: int) -> SegmentCatalogue:
        """The queues at its end. Callers must not change it."""


class LocatedBlock(NamedTuple):
    """A block, and its extent, which knows the names of its queues."""

    block: Block
    extent: HeldExtent


class BlockReader(Protocol):
    """A source of the blocks of a range."""

    identity: int
    #: The journal, for display.
    where: str

    @property
    def latest(self) -> int:
        """The position after the last committed event."""

    def read(
        self, start: int, stop: int | None = None, *, verify: bool = True, accept_loss: bool = False
    ) -> Iterator[LocatedBlock]:
        """As ``Follower.read``."""


class SharedExtent(msgspec.Struct, frozen=True, kw_only=True):
    """Where another process on this machine finds the bytes of an extent, and which of them it may read.

    That process uses ``shared_extents.SharedExtentReader``; all others only pass it on.
    """

    path: str
    name: str
    #: Checksum of its header, which distinguishes it from every other extent.
    checksum: int
    #: Positions, and where in the file their first block begins.
    start: int
    stop: int
    offset: int
    #: The selected queues.
    names: dict[int, QueueName]


class Follower(Protocol):
    """A view of a journal that another process writes. It takes no lock and changes nothing; threads may share one.

    Reading a range again returns the same events. Where that is no longer possible, a ``DataLoss`` has the lost
    positions: ``Trimmed`` by retention, lost in a crash, given up by a repair, or ``Replaced`` as a whole.
    """

    identity: int
    #: The journal, for display.
    where: str

    def tail(self) -> Tail:
        """How far the journal goes now, and where it begins. Raises DataLoss or JournalRefused."""

    @property
    def earliest(self) -> int:
        """The first readable position: where the history begins."""

    @property
    def latest(self) -> int:
        """The position after the last committed event."""

    def read(
        self, start: int, stop: int | None = None, *, verify: bool = True, accept_loss: bool = False
    ) -> Iterator[LocatedBlock]:
        """The blocks with events from ``start`` up to ``stop`` (None: all that is committed now).

        The first and the last block may contain events outside of the range. The range is checked in this call, before
        the first block is read. With ``accept_loss`` lost events are skipped. Raises DataLoss, JournalDamaged, or
        ValueError for an impossible range.
        """

    def mentions(self, message: int, start: int, stop: int) -> Iterator[LocatedBlock]:
        """At least the blocks with events about a message, apart from the message itself.

        Lost events are skipped. Raises JournalDamaged.
        """

    def losses(self, start: int, stop: int) -> list[DataLoss]:
        """The losses that affect a range, which ``read`` would raise."""

    def position_at(self, time: int) -> int:
        """The position of the first event at or after a time, in microseconds since 1970; ``latest`` if there is none.

        A few earlier events may follow it where the clock was set back.
        """

    def counts(self, start: int, stop: int | None = None, *, accept_loss: bool = False) -> dict[int, int]:
        """The number of messages published in the range, by queue number."""

    def spans(self) -> Sequence[Span]:
        """The current extents, oldest first; some may lie before the beginning of the history."""

    def hold(self, span: Span) -> HeldExtent | None:
        """Keep an extent readable. None if it is gone already."""

    def marks(self, span: Span, limit: int) -> tuple[list[int], list[int]] | None:
        """As ``HeldExtent.marks``, or an estimate if its bytes are remote. None if it is gone already."""

    def shared(self, start: int, stop: int, wanted: Callable[[QueueName], bool] | None) -> list[SharedExtent]:
        """The extents with events of a range, for another process; ``wanted`` selects queues.

        Raises FileNotFoundError if one is gone. Empty if another process can't map this journal's extents.
        """

    def catalogue(self) -> SegmentCatalogue:
        """The queues that exist now."""

    def checkpoint(self, stop: int) -> Checkpoint | None:
        """The newest readable checkpoint at or before a position."""

    def damaged(self, extent: HeldExtent, error: BlockError, position: int, stop: int) -> JournalDamaged:
        """The error to raise for a bad block: lost is everything before the next valid one, up to ``stop``."""

    def close(self) -> None:
        """Release all resources. Blocks that were read stay valid."""
