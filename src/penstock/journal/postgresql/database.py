"""What the journal asks of a database: one method for each statement, and its possible outcomes.

``postgres_database`` implements it with PostgreSQL; the simulator has its own. Everything above (fencing, leases,
take-overs, unknown outcomes) is the same code with both, and has no other access to the world.

A statement takes effect as a whole or not at all. It raises

    ConnectionLost    it may or may not have taken effect, and may be retried; the next statement reconnects
    DatabaseFull      it had no effect because there was no room, and may be retried
    DatabaseRefused   it had no effect, and the text says why

Statements that change something name the epoch of the owner that sends them. If another epoch has begun they change
nothing, and return False or None. All times are the database's. Positions are as in ``contract``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

#: Names of values: the ranges that operators accepted as lost, ends excluded; the loss that waits for an operator …
ACCEPTED, HELD = "accepted_losses", "held"
#: … and the incarnation in which the journal was made, in decimal digits.
MADE_IN = "made_in"


class DatabaseError(Exception):
    """A statement failed."""


class ConnectionLost(DatabaseError):
    """The outcome is unknown: the connection broke, could not be opened, or the server cannot run it at the moment.

    ``denied``: a server answers, but turns us away until an administrator changes a right, a password or a setting.
    """

    def __init__(self, text: str, *, denied: bool = False) -> None:
        super().__init__(text)
        self.denied = denied


class DatabaseFull(DatabaseError):
    """The server has no room. The statement had no effect."""


class DatabaseRefused(DatabaseError):
    """The statement is impossible, and had no effect. ``state`` is the SQLSTATE, if the database gave one."""

    def __init__(self, text: str, state: str = "") -> None:
        super().__init__(text)
        self.state = state


class ShardRow(NamedTuple):
    """The one row that says how far the journal goes, and who owns it."""

    identity: int
    #: In microseconds since 1970.
    created: int
    epoch: int
    #: The position of the next block, unless numbering resumes higher.
    head: int
    #: The log begins here: lower positions were trimmed, or are kept for single messages.
    low: int
    #: See ``contract.Log.floor``.
    floor: int
    #: First position of the growing extent; 0: there is none yet.
    extent: int
    #: Checksum of the last block; 0: there is none yet.
    chain: int
    #: The owner, for display; empty after it released its lease.
    owner: str
    #: Seconds left of the lease by the database's clock. At 0 or below, any broker may become the owner.
    lease: float


class NewBlock(NamedTuple):
    """A block to append. ``data`` is the block as in a segment."""

    first: int
    end: int
    epoch: int
    #: The CRC of its header, which the next block is chained to.
    checksum: int
    #: Its base time, in microseconds since 1970.
    at: int
    data: bytes


class BlockRow(NamedTuple):
    """A stored block."""

    extent: int
    first: int
    end: int
    epoch: int
    checksum: int
    data: bytes


class BlockMark(NamedTuple):
    """A stored block without its bytes."""

    first: int
    end: int
    epoch: int
    checksum: int


class ExtentRow(NamedTuple):
    """A stored extent, with sums over its blocks."""

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
    #: The flags that its footer would have in a file. Only repaired files set more than ``segment.CLEAN``.
    flags: int
    #: Another extent was begun after it.
    finished: bool
    #: It was trimmed, and remains for single messages only.
    kept: bool


class NewExtent(NamedTuple):
    """An extent that begins with the appended block. ``header`` is the 64 bytes of a segment's header."""

    header: bytes
    #: The database's when the extent was begun: see ``ServerFacts.incarnation``.
    incarnation: int
    #: The extent before it, which this finishes; None: there is none.
    finishes: ExtentRow | None


class ServerFacts(NamedTuple):
    """The properties of a server that the journal's promises depend on. Settings are as in ``SHOW``."""

    #: As in ``server_version_num``: 160004 is 16.4.
    version: int
    fsync: str
    full_page_writes: str
    #: The setting of our connection.
    synchronous_commit: str
    synchronous_standby_names: str
    #: Connected synchronous standbys; -1: we may not look.
    synchronous_standbys: int
    #: The server is a standby itself, or configured to accept no changes.
    read_only: bool
    #: Increases when a standby is promoted; 0: the server does not show it.
    timeline: int
    #: Identifies this run of this server, and the file of the shard's table. It changes with a restart, a promotion and
    #: any kind of restore, since a backup cannot contain it. 0: the server does not show it.
    incarnation: int


class ReadableDatabase(Protocol):
    """What readers need. Nothing is changed. Any thread may call; one statement runs at a time."""

    @property
    def where(self) -> str:
        """The database and the schema, for display, without a password."""

    def shard(self) -> ShardRow:
        """The journal's row. Raises DatabaseRefused if there is no journal."""

    def facts(self) -> ServerFacts:
        """The server's properties."""

    def extents(self) -> list[ExtentRow]:
        """All extents by first position, including kept ones."""

    def blocks(self, extent: int, position: int, size: int) -> list[BlockRow]:
        """Blocks of an extent in order, starting with the one that contains the position, or the next one.

        At most ``size`` bytes, but at least one block if there is any.
        """

    def checkpoints(self) -> list[tuple[int, int]]:
        """Position and bytes of each, oldest first."""

    def checkpoint(self, position: int) -> bytes | None:
        """The bytes of one; None if there is none."""

    def value(self, name: str) -> bytes | None:
        """A named value; None if there is none."""

    def close(self) -> None:
        """Close the connection."""


class Database(ReadableDatabase, Protocol):
    """What an owner needs."""

    def is_empty(self) -> bool:
        """Whether there are no tables of a journal. Raises DatabaseRefused for tables of another program."""

    def make(self) -> None:
        """Make the tables if there are none. Raises DatabaseRefused for other tables, or another version."""

    def claim(self, owner: str, lease: float, least: int) -> ShardRow | None:
        """Become the owner for ``lease`` seconds, with the next even epoch, ``least`` or higher. Returns the new row.

        None: the lease of another owner still runs.
        """

    def seal(self, epoch: int, newer: int) -> bool:
        """Continue with another epoch."""

    def renew(self, epoch: int, lease: float, floor: int) -> ShardRow | None:
        """Extend the lease to ``lease`` seconds from now, and show readers the floor. Returns the new row.

        This is a commit: when it returns, everything that was visible before it is as durable as any commit.
        """

    def release(self, epoch: int) -> bool:
        """End the lease now."""

    def hold(self, owner: str, value: bytes) -> bool:
        """Fence off every broker until an operator decides: raise the epoch, and give ``owner`` a lease without end.

        ``value`` is stored under the name ``HELD``. False: it was done before.
        """

    def accept_loss(self, owner: str, now: int) -> ShardRow | None:
        """Begin another incarnation at the head, accept everything after it as lost, and end a ``hold`` by ``owner``.

        ``now`` is in microseconds since 1970. None: a broker has the lease, and nothing was changed.
        """

    def prepare(self, first: int) -> None:
        """Make a place for the blocks of the extent that begins at a position, unless it exists."""

    def append(
        self, epoch: int, head: int, block: NewBlock, lease: float, floor: int, begins: NewExtent | None = None
    ) -> bool:
        """Add a block if the head is as expected, and renew the lease and the floor, in one statement.

        With ``begins`` the block begins an extent, for which ``prepare`` has made a place, and the extent before it is
        finished. Its first position may be above the head. False: the epoch or the head differs, or the position is
        below ``low``.
        """

    def mark(self, extent: int, first: int) -> BlockMark | None:
        """The block at a position, without its bytes."""

    def trim(self, epoch: int, low: int, keep: Collection[int]) -> bool:
        """Raise ``low``, and forget the extents below it except those in ``keep``."""

    def unkeep(self, epoch: int, first: int) -> bool:
        """Forget a kept extent."""

    def drop(self) -> bool:
        """Free the space of forgotten extents. False: some are being read, and remain until the next call.

        It needs no epoch: forgotten extents never become part of the log again.
        """

    def put_checkpoint(self, epoch: int, position: int, parts: Iterable[bytes], keep: int) -> bool:
        """Store one, whole or not at all, and remove all but the ``keep`` newest. False also if it is above the head.

        It counts once its last part is stored.
        """

    def put_value(self, epoch: int, name: str, value: bytes) -> bool:
        """Store a value under a name."""

    def move_value(self, epoch: int, name: str, to: str | None) -> bool:
        """Rename a value, or with None remove it. It may be missing."""
