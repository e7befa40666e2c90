"""The contract of a journal: what the rest of Penstock may expect of whatever keeps its events.

``open_journal(url)`` gives a ``Journal``, which touches nothing until one of its roles is taken:

    journal.own()       the broker that writes it: an ``OwnedJournal`` with the log, checkpoints, values and space
    journal.follow()    a reader, in any process, while a broker writes, compacts, stops and starts: a ``Follower``
    journal.stand_by()  a broker that waits to be the owner, where a journal is ``shared``: a ``Standby``
    journal.tools()     who checks, shows and repairs it: ``JournalTools``

Everything is said in positions of events. A log is cut into *extents*, stretches that are given back as a whole; what
an extent is made of (a file, memory, a partition of a table) only the journal knows. One suite,
tests/journal/test_log_contract.py, runs against every implementation.

Taking over: each owner ``seal``s the log with a higher *epoch* before its first append, and an append names the epoch
and the position that it expects the log's *head* to have. So an owner that was replaced can add nothing, whatever it
believes. What else keeps two owners apart (a lock, a lease) only decides who tries: ``own`` raises JournalRefused where
another owner is there. Where that is a lease, ``own`` has raised the epoch already: nothing of the owner before can
come after what is recovered. Handing out a message is no event, so an owner with a lease hands out nothing after the
lease's ``deadline``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy.typing as npt

from penstock.journal.errors import DataLoss, JournalDamaged
from penstock.journal.format.block import Batch, Block, BlockError
from penstock.journal.format.catalogue import QueueName, SegmentCatalogue
from penstock.journal.format.rows import MessageRow

if TYPE_CHECKING:
    from penstock.journal.backup import Manifest
    from penstock.journal.transfer import TransferSource, TransferTarget

#: Position of the first event of a new log. 0 stands for "none" in the columns.
FIRST_POSITION = 1
#: Numbering resumes this much higher where events may be lost that somebody has seen: more than any broker could have
#: written between two syncs.
GAP = 2**32
#: What ``Space.free`` is where nothing bounds it.
UNBOUNDED = 2**62

Columns = dict[str, npt.NDArray[Any]]


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


# ------------------------------------------------------------------------------------------------------------- the log


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
    def epoch(self) -> int:
        """The epoch that appends must have: that of the last ``seal``, or of ``own``, where that has raised it."""

    @property
    def wants_roll(self) -> bool:
        """Whether the next append should begin an extent, with ``roll=True`` and a catalogue as its first row."""

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

    def close(self) -> None:
        """Commit, and let go of everything. Closing twice is fine."""


# ------------------------------------------------------------------------------------------------------ beside the log


@dataclass(frozen=True)
class Checkpoint:
    """The state before ``position``. The columns are read-only."""

    position: int
    meta: bytes
    columns: Columns
    clean: bool


class CheckpointStore(Protocol):
    """Checkpoints: the state before a position, so that a start reads the events after it and not all there ever were.

    What the state is, only the engine knows. Two are kept: the older is for the day on which the newer can't be read,
    so the log must not be trimmed above it.
    """

    @property
    def report(self) -> list[str]:
        """What ``newest_good`` passed over, and why: for the operator."""

    def positions(self) -> list[int]:
        """The positions that have one, oldest first."""

    def size(self, position: int) -> int:
        """How many bytes the one at a position has."""

    def write(self, position: int, meta: bytes, columns: Columns, *, clean: bool = False) -> None:
        """Write one, whole or not at all, then remove all but the two newest. Raises OSError, or LogFull without room.

        The log must be synced up to the position first, or the checkpoint might know events that a crash takes away.
        """

    def newest_good(self) -> Checkpoint | None:
        """The newest that can be read. Raises OSError if the storage can't be asked."""


class ValueStore(Protocol):
    """A few small values by name, kept with the journal. Calls may take as long as a sync: not in an event loop."""

    def get(self, name: str) -> bytes | None:
        """The value, None if there is none. Raises OSError."""

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

    def release(self) -> None:
        """Give it back: others may be the owner at once, and this one may do nothing more. Raises LogError."""


class OwnedJournal(Protocol):
    """The journal in the hands of the broker that writes it.

    Nothing that was there is changed before ``begin``, but for the fence of a journal with a lease: until then it can
    be read, and let go.
    """

    @property
    def lease(self) -> Lease | None:
        """None where a lock keeps others away until this process ends."""

    @property
    def log(self) -> Log:
        """Its events."""

    @property
    def checkpoints(self) -> CheckpointStore:
        """States before positions."""

    @property
    def values(self) -> ValueStore:
        """Small values."""

    @property
    def space(self) -> Space:
        """Room for more."""

    @property
    def address(self) -> str:
        """A URL by which other processes of this user follow it, while it is open."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that it takes for what it keeps; 0 for one that keeps it elsewhere."""

    @property
    def report(self) -> Sequence[object]:
        """What was put right at the start, for the operator."""

    @property
    def warnings(self) -> Sequence[str]:
        """What the operator should know about where it is kept: that there is one copy, for instance."""

    @property
    def given_up(self) -> tuple[tuple[int, int], ...]:
        """Ranges of positions, ends excluded, that an operator has given up by a repair."""

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


# ------------------------------------------------------------------------------------------------------------- readers


class Tail(Protocol):
    """How far a journal goes, at one moment."""

    @property
    def identity(self) -> int:
        """See Log."""

    @property
    def durability(self) -> Durability:
        """The owner's."""

    @property
    def start(self) -> int:
        """See Log."""

    @property
    def floor(self) -> int:
        """See Log."""

    @property
    def committed(self) -> int:
        """See Log."""

    @property
    def epoch(self) -> int:
        """See Log."""


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

    @property
    def name(self) -> str:
        """For people."""

    def blocks(self, start: int, stop: int, *, verify: bool = True) -> Iterator[Block]:
        """The blocks that have events from ``start`` up to ``stop``, which must not lie behind the committed position.

        Raises BlockError at an unsound one. Without ``verify`` the bodies' checksums are not looked at.
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


class Follower(Protocol):
    """A view of a journal that somebody else writes. It takes no lock and changes nothing; threads may share one.

    Everything it gives is the same at every re-read; where it can't be any more, a ``DataLoss`` says which positions
    are gone: ``Trimmed`` by retention, taken back by a crash, given up by a repair, or ``Replaced`` as a whole.
    """

    @property
    def identity(self) -> int:
        """See Log."""

    @property
    def where(self) -> str:
        """The journal, for people."""

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

    def catalogue(self) -> SegmentCatalogue:
        """The queues that exist now."""

    def checkpoint(self, stop: int) -> Checkpoint | None:
        """The newest readable checkpoint that does not lie behind a position."""

    def damaged(self, extent: HeldExtent, error: BlockError, position: int, stop: int) -> JournalDamaged:
        """What to raise for a bad block: lost is what lies before the next sound one, up to ``stop``."""

    def close(self) -> None:
        """Let go of everything. What was read stays valid."""


# --------------------------------------------------------------------------------------------------------------- tools

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

    @property
    def found(self) -> Verdict:
        """What is wrong."""

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done."""

    @property
    def lost(self) -> Sequence[tuple[int, int]]:
        """Ranges of positions, ends excluded, that will be given up."""

    def plan(self) -> Sequence[str]:
        """What will be done, a line each, for people."""

    def carry_out(self, progress: Progress) -> list[str]:
        """Do it. Returns the names of what is kept aside. If it is interrupted, it can be done again."""

    def check(self) -> Verdict:
        """What is wrong after it."""


class JournalTools(Protocol):
    """For operators. All but ``create``, ``upgrade`` and ``repair`` work while a broker runs, and change nothing."""

    def create(self) -> bool:
        """Make a new, empty one. False: there is one. A broker that starts does it as well. Raises JournalRefused."""

    def upgrade(self) -> tuple[int, int]:
        """Make one that an older Penstock has left this one's; the versions before and after. Raises JournalRefused."""

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


# ------------------------------------------------------------------------------------------------------------- standby


class Standby(Protocol):
    """Follows a journal that another process owns, to be ready as its next owner. One thread at a time uses it.

    The state is kept by who stands by: from ``checkpoint``, and then from what ``catch_up`` gives, again and again.
    """

    @property
    def position(self) -> int:
        """Every event below it was given by ``catch_up``, or is in the checkpoint that was read last."""

    @property
    def owner(self) -> str:
        """Who owned the journal when it was last looked at, for people; empty if nobody does."""

    @property
    def seconds(self) -> float:
        """How long the owner's lease ran when that was last looked at: ``own`` is of no use before."""

    def checkpoint(self) -> Checkpoint | None:
        """The newest that can be read. ``catch_up`` goes on at its position. Raises LogError."""

    def catch_up(self) -> Iterator[Block]:
        """The blocks that were committed since, in order, each once. It ends where the log ended when it was called.

        Raises Trimmed where some of them are gone: begin again with the checkpoint. Raises CommitsLost if the journal
        ends before ``position``, and LogError when the storage can't be asked.
        """

    def own(self) -> OwnedJournal:
        """Be the owner. Raises JournalOwned, and CommitsLost if the journal ends before ``position``."""

    def close(self) -> None:
        """Let go of everything; what ``own`` gave stays open."""


# ---------------------------------------------------------------------------------------------------------- the journal


class Journal(Protocol):
    """A journal by its URL. Nothing is touched before a role is taken; JournalRefused says why one is not to be had."""

    @property
    def where(self) -> str:
        """For people."""

    @property
    def shared(self) -> bool:
        """Whether brokers on several machines may own it in turn: who finds it owned stands by."""

    def own(self) -> OwnedJournal:
        """Be the broker that writes it; it is made if it is new. Raises LogFailed, or LogFull, too.

        Raises JournalOwned where another process is the owner of a ``shared`` journal.
        """

    def stand_by(self) -> Standby:
        """Wait to be its owner. Raises JournalRefused for a journal that is not ``shared``."""

    def follow(self, *, identity: int | None = None) -> Follower:
        """Read it. Raises Replaced if it is not the one with this identity."""

    def tools(self) -> JournalTools:
        """Check, show and repair it."""

    def transfer_source(self) -> AbstractContextManager[TransferSource]:
        """Have it copied elsewhere. Raises JournalRefused where somebody owns it."""

    def transfer_target(self) -> AbstractContextManager[TransferTarget]:
        """Have another one copied into it. Raises JournalRefused where there is something, or somebody owns it."""
