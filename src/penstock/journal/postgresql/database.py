"""What the journal asks of a database: one method for each statement, and what can become of one.

``connection`` does it with PostgreSQL; the simulator has one of its own. So everything above (fencing, leases, taking
over, outcomes that are not known) is the same code in both, and has no other way to the world.

A statement is done as a whole or not at all. It raises

    ConnectionLost    it may not have been done, and may be tried again; the next statement connects anew
    DatabaseFull      it was not done, for want of room, and may be tried again
    DatabaseRefused   it was not done, and the text says why

Those that change something name the epoch of the owner that asks, and return False, or None, where another epoch has
begun: then nothing was changed. All time is the database's. Positions are as in ``contract``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

#: The named values with the ranges that operators have accepted as lost, ends excluded, and with the loss that waits
#: for an operator.
ACCEPTED, HELD = "accepted_losses", "held"
#: And with the incarnation in which the journal was made: as decimal digits.
MADE_IN = "made_in"


class DatabaseError(Exception):
    """Whatever a database says instead of doing what was asked."""


class ConnectionLost(DatabaseError):
    """The statement was done, or it was not: the connection broke or can't be made, or the server does not do it now.

    ``denied``: a server answers, and turns us away until somebody changes a right, a password or a setting.
    """

    def __init__(self, text: str, *, denied: bool = False) -> None:
        super().__init__(text)
        self.denied = denied


class DatabaseFull(DatabaseError):
    """There is no room for it. Nothing was done."""


class DatabaseRefused(DatabaseError):
    """It can not be done. Nothing was. ``state`` is the SQLSTATE, if the database gave one."""

    def __init__(self, text: str, state: str = "") -> None:
        super().__init__(text)
        self.state = state


class ShardRow(NamedTuple):
    """The one row that says how far the journal goes, and whose it is."""

    identity: int
    #: When it was made, in microseconds since 1970.
    created: int
    epoch: int
    #: The position of the next block, but where numbering resumes higher.
    head: int
    #: The log begins here: what lies below was given back, or is kept for single messages.
    low: int
    #: See ``contract.Log.floor``.
    floor: int
    #: First position of the extent that grows; 0: there is none yet.
    extent: int
    #: Checksum of the last block; 0: there is none yet.
    chain: int
    #: The owner, for people; empty after it has released its lease.
    owner: str
    #: Seconds for which the lease still runs by the database's clock; not above 0: anybody may be the owner.
    lease: float


class NewBlock(NamedTuple):
    """A block to be appended. ``data`` is the block as a segment has it."""

    first: int
    end: int
    epoch: int
    #: The CRC of its header, which the next block is chained to.
    checksum: int
    #: Its base time, in microseconds since 1970.
    at: int
    data: bytes


class BlockRow(NamedTuple):
    """A block that is there."""

    extent: int
    first: int
    end: int
    epoch: int
    checksum: int
    data: bytes


class BlockMark(NamedTuple):
    """A block that is there, without its bytes."""

    first: int
    end: int
    epoch: int
    checksum: int


class ExtentRow(NamedTuple):
    """An extent that is there, with sums over its blocks."""

    first: int
    header: bytes
    #: See ``NewExtent``.
    incarnation: int
    end: int
    #: Bytes of its blocks.
    size: int
    blocks: int
    #: The latest base time of its blocks, in microseconds since 1970.
    last_at: int
    #: Checksum of its last block.
    chain: int
    #: What its footer in a file would have; a repair of files sets more than ``segment.CLEAN``.
    flags: int
    #: Another extent was begun after it.
    finished: bool
    #: It was trimmed, and is there for single messages alone.
    kept: bool


class NewExtent(NamedTuple):
    """An extent that begins with the block that is appended. ``header`` is the 64 bytes of a segment's header."""

    header: bytes
    #: Of the database when it was begun: see ``ServerFacts.incarnation``.
    incarnation: int
    #: The extent before it, which is finished by that; None: it is the first one.
    finishes: ExtentRow | None


class ServerFacts(NamedTuple):
    """What a server says of itself, as far as the journal's promises hang on it. Settings are as ``SHOW`` has them."""

    #: As in ``server_version_num``: 160004 is 16.4.
    version: int
    fsync: str
    full_page_writes: str
    #: That of our connection.
    synchronous_commit: str
    synchronous_standby_names: str
    #: Standbys that are connected and synchronous now; -1: we may not look.
    synchronous_standbys: int
    #: The server is a standby itself, or was told to accept no changes.
    read_only: bool
    #: It grows when a standby is promoted; 0: the server does not tell.
    timeline: int
    #: Which run of which server this is, and which table it has the journal's row in: another one after a restart, a
    #: promotion and a restore of whatever kind, as a restore can't carry it over. 0: the server does not tell.
    incarnation: int


class ReadableDatabase(Protocol):
    """What readers ask for. Nothing is changed. Any thread may ask; one statement runs at a time."""

    @property
    def where(self) -> str:
        """The database and the schema, for people, without a password."""

    def shard(self) -> ShardRow:
        """The journal's row. Raises DatabaseRefused where there is no journal."""

    def facts(self) -> ServerFacts:
        """What the server says of itself."""

    def extents(self) -> list[ExtentRow]:
        """All extents by their first positions, those that are kept included."""

    def blocks(self, extent: int, position: int, size: int) -> list[BlockRow]:
        """Blocks of an extent in order, from the one that has the position, or follows it, on.

        So many that they have ``size`` bytes at most, and at least one, if there are any.
        """

    def checkpoints(self) -> list[tuple[int, int]]:
        """Position and bytes of each, oldest first."""

    def checkpoint(self, position: int) -> bytes | None:
        """The bytes of one; None if there is none."""

    def value(self, name: str) -> bytes | None:
        """A named value; None if there is none."""

    def close(self) -> None:
        """Let go of the connection."""


class Database(ReadableDatabase, Protocol):
    """What the owner asks for."""

    def is_empty(self) -> bool:
        """Whether there are no tables of a journal. Raises DatabaseRefused where there are others'."""

    def make(self) -> None:
        """Make the tables, if there are none. Raises DatabaseRefused where others' are, or a newer version's."""

    def claim(self, owner: str, lease: float, least: int) -> ShardRow | None:
        """Raise the epoch to the next even one, or to ``least``, and be the owner for so many seconds: the row after.

        None: the owner before has a lease that still runs.
        """

    def seal(self, epoch: int, newer: int) -> bool:
        """Go on with another epoch."""

    def renew(self, epoch: int, lease: float, floor: int) -> ShardRow | None:
        """Be the owner for so many seconds from now on, and show readers the floor: the row after that.

        It is a commit like any other: on return, all that was seen before it is as durable as the database makes it.
        """

    def release(self, epoch: int) -> bool:
        """End the lease now."""

    def hold(self, owner: str, value: bytes) -> bool:
        """Raise the epoch, so that no owner goes on, and let nobody else be it: ``owner`` has a lease without end.

        ``value`` is kept under the name ``HELD``. False: that was done already.
        """

    def accept_loss(self, owner: str, now: int) -> ShardRow | None:
        """Begin another incarnation at the head; what was behind it is accepted as lost, and a ``hold`` ends.

        ``now`` is in microseconds since 1970. None: a broker has the lease, and nothing was changed.
        """

    def prepare(self, first: int) -> None:
        """Make a place for the blocks of an extent that begins at a position. It may be there already."""

    def append(
        self, epoch: int, head: int, block: NewBlock, lease: float, floor: int, begins: NewExtent | None = None
    ) -> bool:
        """Add a block where the head is as expected, and renew the lease and the floor, in one statement.

        With ``begins`` the block begins an extent, for which ``prepare`` has made a place, and the extent before it is
        finished. Its first position may lie above the head. False: the epoch or the head is another one, or the
        position lies below ``low``.
        """

    def mark(self, extent: int, first: int) -> BlockMark | None:
        """The block at a position, without its bytes."""

    def trim(self, epoch: int, low: int, keep: Collection[int]) -> bool:
        """Raise ``low``, and forget the extents below it but those that are to be kept."""

    def unkeep(self, epoch: int, first: int) -> bool:
        """Forget a kept extent."""

    def drop(self) -> bool:
        """Give back the room of extents that were forgotten. False: somebody reads some, which stay for another time.

        They can never be part of the log again, so whoever is asked to may do it.
        """

    def put_checkpoint(self, epoch: int, position: int, parts: Iterable[bytes], keep: int) -> bool:
        """Keep one, whole or not at all, and remove all but the newest few. False as well if it lies above the head."""

    def put_value(self, epoch: int, name: str, value: bytes) -> bool:
        """Keep a value by its name."""

    def move_value(self, epoch: int, name: str, to: str | None) -> bool:
        """Give a value another name, or with None remove it. It may be missing."""
