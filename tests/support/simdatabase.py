"""An in-memory stand-in for PostgreSQL that executes the journal's statements, and can lose data like a real server.

``Tables`` holds a server's rows: each statement is an atomic method. ``SimServer`` is a primary with a standby that
follows it. A *synchronous* standby has all that is visible on the primary, except a commit whose wait for the standby
was cut short: it is visible, but reaches the standby only with the next commit at the latest. ``SimDatabase`` is a
connection to the current primary; its ``carry`` decides the fate of statements and answers on their way.

tests/journal/test_simulated_database.py compares it with a real PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from penstock.journal.format.segment import CLEAN
from penstock.journal.postgresql.database import (
    ACCEPTED,
    HELD,
    MADE_IN,
    BlockMark,
    BlockRow,
    ConnectionLost,
    DatabaseFull,
    DatabaseRefused,
    ExtentRow,
    NewBlock,
    NewExtent,
    ServerFacts,
    ShardRow,
)
from penstock.journal.postgresql.incarnations import ENDED, accepting

T = TypeVar("T")

#: The end of a lease that has no owner.
NEVER = float("-inf")


class StoredBlock(NamedTuple):
    """A row of ``blocks``."""

    row: BlockRow
    at: int


@dataclass
class Tables:
    """All tables of one journal. ``now`` is the server's clock, in seconds. A refused statement changes nothing."""

    shard: ShardRow | None = None
    lease_until: float = NEVER
    #: Checksums of finished extents.
    extents: dict[int, ExtentRow] = field(default_factory=dict)
    #: By extent, in order, including forgotten extents until ``drop``.
    blocks: dict[int, list[StoredBlock]] = field(default_factory=dict)
    checkpoints: dict[int, bytes] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> Tables:
        """A copy. Values are shared, because they are replaced, never changed."""
        blocks = {first: list(rows) for first, rows in self.blocks.items()}
        others = (dict(self.extents), blocks, dict(self.checkpoints), dict(self.values))
        return Tables(self.shard, self.lease_until, *others)

    # Readers' statements

    def row(self, now: float) -> ShardRow:
        """The current row of the shard."""
        if self.shard is None:
            raise DatabaseRefused("there is no journal")
        return self.shard._replace(lease=max(self.lease_until - now, -1e9))

    def all_extents(self) -> list[ExtentRow]:
        return [self._extent(first) for first in sorted(self.extents)]

    def _extent(self, first: int) -> ExtentRow:
        row, stored = self.extents[first], self.blocks[first]
        if row.finished:
            return row
        last, size = stored[-1].row, sum(len(each.row.data) for each in stored)
        last_at = max(each.at for each in stored)
        return row._replace(end=last.end, size=size, blocks=len(stored), last_at=last_at, chain=last.checksum)

    def some_blocks(self, extent: int, position: int, size: int) -> list[BlockRow]:
        rows: list[BlockRow] = []
        if extent not in self.extents:
            return rows
        for each in self.blocks[extent]:
            if each.row.end > position:
                if rows and sum(len(row.data) for row in (*rows, each.row)) > size:
                    break
                rows.append(each.row)
        return rows

    # Owners' statements

    def make(self, identity: int, created: int, incarnation: int) -> None:
        if self.shard is None:
            self.values[MADE_IN] = b"%d" % incarnation
            self.shard = ShardRow(identity, created, 0, 1, 1, 0, 0, 0, "", 0.0)

    def claim(self, owner: str, lease: float, least: int, now: float) -> ShardRow | None:
        shard = self.row(now)
        if self.lease_until > now and shard.owner != owner:  # by a real clock time has passed since
            return None
        self.shard = shard._replace(epoch=max((shard.epoch // 2 + 1) * 2, least), owner=owner)
        self.lease_until = now + lease
        return self.row(now)

    def of(self, epoch: int) -> ShardRow | None:
        """The row, if this is its epoch."""
        return self.shard if self.shard is not None and self.shard.epoch == epoch else None

    def seal(self, epoch: int, newer: int) -> bool:
        shard = self.of(epoch)
        if shard is not None:
            self.shard = shard._replace(epoch=newer)
        return shard is not None

    def renew(self, epoch: int, lease: float, floor: int, now: float) -> ShardRow | None:
        shard = self.of(epoch)
        if shard is None or not shard.owner:
            return None
        self.shard = shard._replace(floor=max(floor, shard.floor))
        self.lease_until = now + lease
        return self.row(now)

    def release(self, epoch: int) -> bool:
        shard = self.of(epoch)
        if shard is not None:
            self.shard, self.lease_until = shard._replace(owner=""), NEVER
        return shard is not None

    def hold(self, owner: str, value: bytes) -> bool:
        if self.shard is None:
            raise DatabaseRefused("there is no journal")
        if self.shard.owner == owner:
            return False
        self.shard = self.shard._replace(epoch=(self.shard.epoch // 2 + 1) * 2, owner=owner)
        self.lease_until = float("inf")
        self.values[HELD] = value
        return True

    def accept_loss(self, owner: str, now_us: int, now: float) -> ShardRow | None:
        shard = self.row(now)
        if shard.owner != owner and self.lease_until >= now:
            return None
        before = self.values.get(ACCEPTED), self.values.pop(HELD, None)
        self.values[ACCEPTED] = accepting(*before, shard, sorted(self.extents), now_us)
        self.values[MADE_IN] = b"%d" % ENDED
        if shard.extent in self.extents:
            self.extents[shard.extent] = self.extents[shard.extent]._replace(incarnation=ENDED)
        self.shard, self.lease_until = shard._replace(owner=""), NEVER
        return shard

    def prepare(self, first: int) -> None:
        self.blocks.setdefault(first, [])

    def append(
        self, epoch: int, head: int, block: NewBlock, lease: float, floor: int, begins: NewExtent | None, now: float
    ) -> bool:
        shard = self.of(epoch)
        if shard is None or shard.head != head or block.first < shard.low:
            return False
        extent = block.first if begins is not None else shard.extent
        if extent not in self.blocks:
            raise DatabaseRefused(f"there is no place for the extent {extent}")
        if begins is not None:
            self._finish(begins.finishes)
            self.extents[extent] = ExtentRow(
                extent, begins.header, begins.incarnation, 0, 0, 0, 0, 0, CLEAN, finished=False, kept=False
            )
        row = BlockRow(extent, block.first, block.end, block.epoch, block.checksum, block.data)
        self.blocks[extent].append(StoredBlock(row, block.at))
        self.shard = shard._replace(head=block.end, extent=extent, chain=block.checksum, floor=floor)
        self.lease_until = now + lease
        return True

    def _finish(self, sums: ExtentRow | None) -> None:
        if sums is not None and sums.first in self.extents:
            row = self.extents[sums.first]
            self.extents[sums.first] = sums._replace(
                header=row.header, incarnation=row.incarnation, flags=row.flags, kept=row.kept
            )

    def mark(self, extent: int, first: int) -> BlockMark | None:
        for each in self.blocks.get(extent, []):
            if each.row.first == first:
                return BlockMark(first, each.row.end, each.row.epoch, each.row.checksum)
        return None

    def trim(self, epoch: int, low: int, keep: Collection[int]) -> bool:
        shard = self.of(epoch)
        if shard is None or shard.low > low:
            return False
        for first in [first for first in self.extents if first < low]:
            if first in keep:
                self.extents[first] = self.extents[first]._replace(kept=True)
            elif not self.extents[first].kept:
                del self.extents[first]
        self.shard = shard._replace(low=low)
        return True

    def unkeep(self, epoch: int, first: int) -> bool:
        if self.of(epoch) is None:
            return False
        if first in self.extents and self.extents[first].kept:
            del self.extents[first]
        return True

    def drop(self) -> None:
        low = self.shard.low if self.shard is not None else 0
        for first in [first for first in self.blocks if first not in self.extents and first < low]:
            del self.blocks[first]

    def put_checkpoint(self, epoch: int, position: int, data: bytes, keep: int) -> bool:
        shard = self.of(epoch)
        if shard is None or shard.head < position:
            return False
        others = sorted(self.checkpoints.keys() - {position})[1 - keep :] if keep > 1 else []
        self.checkpoints = {**{at: self.checkpoints[at] for at in others}, position: data}
        return True

    def put_value(self, epoch: int, name: str, value: bytes) -> bool:
        if self.of(epoch) is None:
            return False
        self.values[name] = value
        return True

    def move_value(self, epoch: int, name: str, to: str | None) -> bool:
        if self.of(epoch) is None:
            return False
        value = self.values.pop(name, None)
        if value is not None and to is not None:
            self.values[to] = value
        return True


class SimServer:
    """A primary, and the changes that its standby may not have applied."""

    def __init__(self, clock: Callable[[], float], *, identity: int = 4711, synchronous: bool = True) -> None:
        self.tables = Tables()
        self.identity = identity
        self.synchronous = synchronous
        self.timeline = 1
        #: See ``ServerFacts.incarnation``.
        self.incarnation = 1
        self.clock = clock
        #: Whether statements that need space fail.
        self.full = False
        self._standby = Tables()
        #: Changes that the standby may not have applied, each as a function of tables.
        self._changes: list[Callable[[Tables], object]] = []
        #: Whether the next commit's wait for the standby is cut short.
        self.cuts_short: Callable[[], bool] = lambda: False
        #: Called after every change.
        self.on_change: Callable[[], None] = lambda: None

    def change(self, statement: Callable[[Tables], T]) -> T:
        """Execute a statement. Raises ConnectionLost if it succeeded, but the wait for the standby was cut short."""
        result = statement(self.tables)
        self._changes.append(statement)
        cut_short = self.cuts_short()
        if self.synchronous and not cut_short:
            for change in self._changes:
                change(self._standby)
            self._changes.clear()
        self.on_change()
        if cut_short:
            raise ConnectionLost("the wait for the standby was cut short")
        return result

    def is_safe(self, row: BlockRow) -> bool:
        """Whether a block would survive the loss of the primary, as far as the server promises that."""
        if not self.synchronous:
            return True
        mark = self._standby.mark(row.extent, row.first)
        shard = self._standby.shard
        trimmed = shard is not None and row.end <= shard.low
        return trimmed or (mark is not None and mark.checksum == row.checksum)

    @property
    def run(self) -> tuple[int, int]:
        """Changes when the server is restarted; no connection survives that."""
        return self.timeline, self.incarnation

    @property
    def unseen(self) -> int:
        """Number of changes that the standby may not have."""
        return len(self._changes)

    def fail_over(self, kept: int, clock: Callable[[], float] | None = None) -> None:
        """Promote the standby, with the ``kept`` oldest of the uncertain changes."""
        for change in self._changes[:kept]:
            change(self._standby)
        self.tables, self._standby = self._standby, self._standby.copy()
        self._changes.clear()
        self.timeline += 1
        self.incarnation += 1
        self.clock = clock or self.clock
        self.on_change()

    def restore(self, backup: Tables) -> None:
        """Restore an older state by the server's own means: the same server, restarted."""
        self.tables, self._standby = backup.copy(), backup.copy()
        self._changes.clear()
        self.incarnation += 1
        self.on_change()


class Carry(Protocol):
    """Carries a statement to the server, and its answer back. ConnectionLost does not say whether it was executed."""

    def __call__(self, statement: Callable[[], T]) -> T: ...


def direct(statement: Callable[[], T]) -> T:
    """Carry without faults."""
    return statement()


class SimDatabase:
    """A connection of one broker: ``penstock.journal.postgresql.database.Database``."""

    where = "a simulated database"

    def __init__(self, server: SimServer, carry: Carry = direct) -> None:
        self._server = server
        self._carry = carry

    def _read(self, statement: Callable[[Tables], T]) -> T:
        return self._carry(lambda: statement(self._server.tables))

    def _change(self, statement: Callable[[Tables, float], T], *, grows: bool = False) -> T:
        """``now`` is read once, so that a standby makes the same change."""

        def done() -> T:
            if grows and self._server.full:
                raise DatabaseFull("no space left on device")
            now = self._server.clock()
            return self._server.change(lambda tables: statement(tables, now))

        return self._carry(done)

    # Readers' statements

    def shard(self) -> ShardRow:
        return self._read(lambda tables: tables.row(self._server.clock()))

    def facts(self) -> ServerFacts:
        names = "standby" if self._server.synchronous else ""
        standbys = int(self._server.synchronous)
        return self._read(
            lambda tables: ServerFacts(
                180000, "on", "on", "on", names, standbys, False, self._server.timeline, self._server.incarnation
            )
        )

    def extents(self) -> list[ExtentRow]:
        return self._read(Tables.all_extents)

    def blocks(self, extent: int, position: int, size: int) -> list[BlockRow]:
        return self._read(lambda tables: tables.some_blocks(extent, position, size))

    def checkpoints(self) -> list[tuple[int, int]]:
        return self._read(lambda tables: [(at, len(data)) for at, data in sorted(tables.checkpoints.items())])

    def checkpoint(self, position: int) -> bytes | None:
        return self._read(lambda tables: tables.checkpoints.get(position))

    def value(self, name: str) -> bytes | None:
        return self._read(lambda tables: tables.values.get(name))

    def close(self) -> None:
        """There is nothing to release."""

    # Owners' statements

    def is_empty(self) -> bool:
        return self._read(lambda tables: tables.shard is None)

    def hold(self, owner: str, value: bytes) -> bool:
        return self._change(lambda tables, now: tables.hold(owner, value))

    def accept_loss(self, owner: str, now: int) -> ShardRow | None:
        return self._change(lambda tables, moment: tables.accept_loss(owner, now, moment))

    def make(self) -> None:
        incarnation, identity = self._server.incarnation, self._server.identity + sum(self._server.run)
        self._change(lambda tables, now: tables.make(identity, int(now * 1e6), incarnation))

    def claim(self, owner: str, lease: float, least: int) -> ShardRow | None:
        return self._change(lambda tables, now: tables.claim(owner, lease, least, now))

    def seal(self, epoch: int, newer: int) -> bool:
        return self._change(lambda tables, now: tables.seal(epoch, newer))

    def renew(self, epoch: int, lease: float, floor: int) -> ShardRow | None:
        return self._change(lambda tables, now: tables.renew(epoch, lease, floor, now))

    def release(self, epoch: int) -> bool:
        return self._change(lambda tables, now: tables.release(epoch))

    def prepare(self, first: int) -> None:
        self._change(lambda tables, now: tables.prepare(first), grows=True)

    def append(
        self, epoch: int, head: int, block: NewBlock, lease: float, floor: int, begins: NewExtent | None = None
    ) -> bool:
        return self._change(
            lambda tables, now: tables.append(epoch, head, block, lease, floor, begins, now), grows=True
        )

    def mark(self, extent: int, first: int) -> BlockMark | None:
        return self._read(lambda tables: tables.mark(extent, first))

    def trim(self, epoch: int, low: int, keep: Collection[int]) -> bool:
        kept = frozenset(keep)
        return self._change(lambda tables, now: tables.trim(epoch, low, kept))

    def unkeep(self, epoch: int, first: int) -> bool:
        return self._change(lambda tables, now: tables.unkeep(epoch, first))

    def drop(self) -> bool:
        self._change(lambda tables, now: tables.drop())
        return True

    def put_checkpoint(self, epoch: int, position: int, parts: Iterable[bytes], keep: int) -> bool:
        data = b"".join(parts)
        return self._change(lambda tables, now: tables.put_checkpoint(epoch, position, data, keep), grows=True)

    def put_value(self, epoch: int, name: str, value: bytes) -> bool:
        return self._change(lambda tables, now: tables.put_value(epoch, name, value), grows=True)

    def move_value(self, epoch: int, name: str, to: str | None) -> bool:
        return self._change(lambda tables, now: tables.move_value(epoch, name, to))
