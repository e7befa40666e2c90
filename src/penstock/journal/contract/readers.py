"""What readers of a journal may expect, in any process, while its owner writes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from penstock.journal.contract.log import Durability
from penstock.journal.contract.owner import Checkpoint
from penstock.journal.errors import DataLoss, JournalDamaged
from penstock.journal.format.block import Block, BlockError
from penstock.journal.format.catalogue import QueueName, SegmentCatalogue


class Tail(Protocol):
    """How far a journal goes, at one moment."""

    @property
    def identity(self) -> int:
        """``Log.identity``."""

    @property
    def durability(self) -> Durability:
        """The owner's setting."""

    @property
    def start(self) -> int:
        """``Log.start``."""

    @property
    def floor(self) -> int:
        """``Log.floor``: where the history for readers begins."""

    @property
    def committed(self) -> int:
        """``Log.committed``."""

    @property
    def epoch(self) -> int:
        """``Log.epoch``."""


class Span(Protocol):
    """An extent as readers see it."""

    @property
    def key(self) -> Hashable:
        """What tells it from every other one, also from one that was put in its place."""

    @property
    def first(self) -> int:
        """Its first position."""

    @property
    def end(self) -> int:
        """The position after its last committed event."""

    @property
    def created(self) -> int:
        """When its first event was."""

    @property
    def finished(self) -> bool:
        """Whether it grows no more."""


class HeldExtent(Protocol):
    """An extent that stays readable for as long as somebody has this, whatever becomes of it.

    ``limit`` in the methods is the committed position: nothing behind it is looked at.
    """

    #: For people.
    name: str

    def blocks(self, start: int, stop: int, *, verify: bool = True) -> Iterator[Block]:
        """The blocks that have events from ``start`` up to ``stop``, which must not lie behind the committed position.

        Raises BlockError at an unsound one. Without ``verify`` the bodies' checksums are not looked at.
        """

    def mentions(self, message: int, start: int, stop: int) -> Iterator[Block]:
        """Of the blocks of a range those with events about a message, and maybe more; not the message itself.

        Raises BlockError at an unsound one, unless it was passed over.
        """

    def marks(self, limit: int) -> tuple[list[int], list[int]]:
        """Positions, one for every 64 KiB or so, and how many bytes lie before each; at last, the end."""

    def name_of(self, number: int, limit: int) -> QueueName | None:
        """The name of a queue that a row of this extent mentions; None if the journal does not tell it."""

    def catalogue(self, limit: int) -> SegmentCatalogue:
        """The queues at its end. Look, don't touch."""


class LocatedBlock(NamedTuple):
    """A block, and the extent that knows the names of its queues."""

    block: Block
    extent: HeldExtent


class BlockReader(Protocol):
    """Whoever gives the blocks of a range."""

    identity: int
    #: The journal, for people.
    where: str

    @property
    def latest(self) -> int:
        """The position after the last committed event."""

    def read(
        self, start: int, stop: int | None = None, *, verify: bool = True, accept_loss: bool = False
    ) -> Iterator[LocatedBlock]:
        """As ``Follower.read``."""


class SharedExtent(msgspec.Struct, frozen=True, kw_only=True):
    """Where another process on this machine finds the bytes of an extent, and what it may read of them.

    ``shared_extents.SharedExtentReader`` is for such a process. The rest is only to be handed on.
    """

    path: str
    name: str
    #: Of its header: what tells it from every other one.
    checksum: int
    #: Positions, and where in the file the first block of these is.
    start: int
    stop: int
    offset: int
    #: The queues that are meant.
    names: dict[int, QueueName]


class Follower(Protocol):
    """A view of a journal that somebody else writes. It takes no lock and changes nothing; threads may share one.

    Everything it gives is the same at every re-read; where it can't be any more, a ``DataLoss`` says which positions
    are gone: ``Trimmed`` by retention, taken back by a crash, given up by a repair, or ``Replaced`` as a whole.
    """

    identity: int
    #: The journal, for people.
    where: str

    def tail(self) -> Tail:
        """How far the journal goes now, and since when. Raises DataLoss, or JournalRefused."""

    @property
    def earliest(self) -> int:
        """The first position that can be read: where the history begins."""

    @property
    def latest(self) -> int:
        """The position after the last committed event."""

    def read(
        self, start: int, stop: int | None = None, *, verify: bool = True, accept_loss: bool = False
    ) -> Iterator[LocatedBlock]:
        """The blocks that have events from ``start`` up to ``stop`` (all that is committed now, if None).

        The first and the last block may have events outside of the range. The range is checked at once, before the
        first block is asked for. With ``accept_loss`` what is lost is passed over. Raises DataLoss, JournalDamaged,
        or ValueError for a range that can not be.
        """

    def mentions(self, message: int, start: int, stop: int) -> Iterator[LocatedBlock]:
        """The blocks that have events about a message, and maybe more; not the message itself.

        What is lost is passed over. Raises JournalDamaged.
        """

    def losses(self, start: int, stop: int) -> list[DataLoss]:
        """What a reader of the range has to know before it reads it."""

    def position_at(self, time: int) -> int:
        """The position of the first event at or after a time, in microseconds since 1970; ``latest`` if there is none.

        Clocks are set now and then, so there may be a few earlier events after it.
        """

    def counts(self, start: int, stop: int | None = None, *, accept_loss: bool = False) -> dict[int, int]:
        """How many messages were published in the range, by queue number."""

    def spans(self) -> Sequence[Span]:
        """The extents that are there now, oldest first; some may lie below the beginning of the history."""

    def hold(self, span: Span) -> HeldExtent | None:
        """An extent, to be kept. None if it is gone already."""

    def marks(self, span: Span, limit: int) -> tuple[list[int], list[int]] | None:
        """As ``HeldExtent.marks``, or only about so where its bytes are far away. None if it is gone already."""

    def shared(self, start: int, stop: int, wanted: Callable[[QueueName], bool] | None) -> list[SharedExtent]:
        """The extents that have events of a range, for another process; ``wanted`` says which queues are meant.

        Raises FileNotFoundError for one that is gone. Empty where another process can't map what this one does.
        """

    def catalogue(self) -> SegmentCatalogue:
        """The queues that exist now."""

    def checkpoint(self, stop: int) -> Checkpoint | None:
        """The newest readable checkpoint that does not lie behind a position."""

    def damaged(self, extent: HeldExtent, error: BlockError, position: int, stop: int) -> JournalDamaged:
        """What to raise for a bad block: lost is what lies before the next sound one, up to ``stop``."""

    def close(self) -> None:
        """Let go of everything. What was read stays valid."""
