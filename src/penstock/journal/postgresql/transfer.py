"""A database as the source or target of a copy: see ``transfer``.

While a journal is copied into a database, the copy owns its row, with a lease that does not run out. So no broker takes
it over, and brokers that stand by continue once the copy is complete.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Concatenate, ParamSpec

from typing_extensions import override

from penstock.journal.errors import JournalOwned, JournalRefused
from penstock.journal.files.disk import RealFile
from penstock.journal.files.segment_assembly import SegmentSums
from penstock.journal.files.transfer import in_pieces
from penstock.journal.postgresql.copies import ExtentCopy
from penstock.journal.postgresql.database import MADE_IN, ExtentRow, ReadableDatabase
from penstock.journal.postgresql.folder_view import FolderView
from penstock.journal.postgresql.incarnations import is_another
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from penstock.journal.postgresql.retries import retry_once
from penstock.journal.postgresql.schema import partition
from penstock.journal.postgresql.values import GIVEN_UP
from penstock.journal.repair.survey import survey
from penstock.journal.transfer import (
    Progress,
    TransferBlock,
    TransferExtent,
    TransferFacts,
    TransferSource,
    TransferTarget,
    checked_blocks,
)

P = ParamSpec("P")

#: Bytes per transaction.
_PIECE = 8 * 2**20
#: Bytes per part of a checkpoint.
_PART = 4 * 2**20


class DatabaseSource(TransferSource):
    """A journal in a database that is copied elsewhere."""

    def __init__(self, database: ReadableDatabase) -> None:
        """Raises JournalOwned while a broker has the lease."""
        self._database = database
        row = self._row = retry_once(database.shard)
        if row.lease > 0:
            raise JournalOwned(database.where, row.owner, row.lease)
        rows = retry_once(database.extents)
        kept = [row for row in rows if row.kept]
        if kept:
            raise JournalRefused(f"{database.where} has damaged messages in the extent from {kept[0].first} on")
        given_up = json.loads(retry_once(database.value, GIVEN_UP) or b"[]")
        made_in = retry_once(database.value, MADE_IN)
        self.facts = TransferFacts(
            row.identity,
            row.created,
            row.epoch,
            row.head,
            row.low,
            row.floor,
            tuple(map(tuple, given_up)),
            put_back=is_another(made_in, rows, retry_once(database.facts).incarnation),
        )
        self._rows = {row.first: row for row in rows}
        self.extents = [_extent(row) for row in rows]

    @override
    def blocks(self, extent: TransferExtent) -> Iterator[TransferBlock]:
        row = self._rows[extent.sums.first]
        copy = ExtentCopy(row)
        retry_once(copy.extend, self._database, row, row.end)
        with closing(RealFile(copy.descriptor())) as file:
            yield from checked_blocks(self._database.where, file, extent)

    @override
    def checkpoints(self) -> Iterator[tuple[int, bytes]]:
        for position, _ in retry_once(self._database.checkpoints):
            data = retry_once(self._database.checkpoint, position)
            if data is not None:
                yield position, data

    @override
    def value(self, name: str) -> bytes | None:
        return retry_once(self._database.value, name)

    @override
    def confirm(self) -> None:
        row = retry_once(self._database.shard)
        if row._replace(lease=0.0) != self._row._replace(lease=0.0):
            raise JournalRefused(
                f"{self._database.where} was changed while it was copied: stop the brokers on it, and copy again"
            )


def _extent(row: ExtentRow) -> TransferExtent:
    sums = SegmentSums(row.flags, row.first, row.end, row.last_at, row.chain, row.blocks)
    return TransferExtent(row.header, sums, row.size)


class DatabaseTarget(TransferTarget):
    """A database that a journal is copied into."""

    def __init__(self, database: ArrivalDatabase) -> None:
        self._database = database
        self._facts: TransferFacts | None = None
        self._extents: list[TransferExtent] = []
        self._epoch = 0

    @override
    def begin(self, facts: TransferFacts, extents: list[TransferExtent]) -> None:
        database = self._database
        self._facts, self._extents = facts, extents
        retry_once(database.make)
        owner = f"an unfinished copy of journal {facts.identity:016x} (penstock journal copy)"
        epoch = retry_once(database.take, owner, facts)
        if epoch is None:
            shard = retry_once(database.shard)
            if shard.lease > 0:
                raise JournalOwned(database.where, shard.owner, shard.lease)
            raise JournalRefused(
                f"{database.where} is not empty: a journal is copied into an empty schema, as in ?schema=NAME"
            )
        self._epoch = epoch
        wanted = {extent.sums.first for extent in extents}
        for row in retry_once(database.extents):
            if row.first not in wanted:
                retry_once(database.forget, epoch, row.first)

    @override
    def reached(self, extent: TransferExtent) -> int:
        return retry_once(self._database.reached, extent.sums.first) or extent.sums.first

    @override
    def add(self, extent: TransferExtent, blocks: Iterable[TransferBlock], progress: Progress) -> None:
        database, first = self._database, extent.sums.first
        retry_once(database.prepare, first)
        retry_once(database.put_extent, self._epoch, extent, finished=extent is not self._extents[-1])
        for some in in_pieces(blocks, _PIECE):
            self._ours(database.put_blocks, first, some)
            progress(sum(len(block.data) for block in some))

    @override
    def put_checkpoint(self, position: int, data: bytes) -> None:
        self._move_head()  # a checkpoint must not be above the head
        parts = [data[at : at + _PART] for at in range(0, len(data), _PART)]
        self._ours(self._database.put_checkpoint, position, parts, keep=2)

    @override
    def put_value(self, name: str, value: bytes) -> None:
        self._ours(self._database.put_value, name, value)

    @override
    def end(self, progress: Progress) -> None:
        assert self._facts is not None
        if self._facts.given_up:
            self.put_value(GIVEN_UP, json.dumps(self._facts.given_up).encode())
        self._move_head()
        found = survey(FolderView(self._database), progress)
        if found.problems:
            raise JournalRefused(f"the copy in {self._database.where} is not sound: {found.problems[0].text}")
        if self._facts.put_back:
            self._ours(self._database.put_back)
        self._ours(self._database.release)

    def _move_head(self) -> None:
        assert self._facts is not None
        facts, last = self._facts, self._extents[-1] if self._extents else None
        self._ours(self._database.move_head, facts, last)

    def _ours(self, statement: Callable[Concatenate[int, P], bool], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a statement that names our epoch. Raises JournalRefused if another copy has begun."""
        if not retry_once(statement, self._epoch, *args, **kwargs):
            raise JournalRefused(f"another copy into {self._database.where} has begun: this one has ended")


class ArrivalDatabase(PostgresDatabase):
    """A database with the additional statements of a copy."""

    def take(self, owner: str, facts: TransferFacts) -> int | None:
        """Own a journal that is empty, or was left by this owner's earlier try. Returns the epoch, or None."""
        values = {"owner": owner, "identity": _signed(facts.identity), "created": facts.created, "epoch": facts.epoch}
        found = self._connection.rows(_TAKE, values, changes=True)
        return int(found[0][0]) if found else None

    def reached(self, first: int) -> int | None:
        """The position after the stored blocks of an extent; None: there are none."""
        [(end,)] = self._connection.rows(_REACHED, (first,))
        return end if end is None else int(end)

    def put_extent(self, epoch: int, extent: TransferExtent, *, finished: bool) -> bool:
        """Add an extent, unless it exists."""
        values = {"epoch": epoch, "header": extent.header, "size": extent.size, "finished": finished}
        return self._connection.change_as_owner(_PUT_EXTENT, values | extent.sums._asdict())

    def put_blocks(self, epoch: int, extent: int, blocks: list[TransferBlock]) -> bool:
        """Add blocks, all or none."""
        with self._connection.transaction():
            if not self._is_ours(epoch):
                return False
            rows = (
                (extent, header.first, header.end, header.epoch, header.crc, header.base, len(data), data)
                for header, data in blocks
            )
            self._connection.copy_in(_PUT_BLOCKS, _BLOCK_TYPES, rows, partition=partition(extent))
        return True

    def forget(self, epoch: int, first: int) -> bool:
        """Remove an extent and its blocks."""
        with self._connection.transaction():
            if not self._is_ours(epoch):
                return False
            self._connection.change("delete from {schema}.extents where first = %s", (first,))
            self._connection.change("drop table if exists {schema}.{partition}", partition=partition(first))
        return True

    def put_back(self, epoch: int) -> bool:
        """Record that the journal had continued after the head."""
        with self._connection.transaction():
            if not self._is_ours(epoch):
                return False
            self.end_incarnation(self.shard(), time.time_ns() // 1000)
        return True

    def move_head(self, epoch: int, facts: TransferFacts, last: TransferExtent | None) -> bool:
        """Set the start and the head of the journal."""
        values = {"epoch": epoch, "head": facts.head, "low": facts.low, "floor": facts.floor}
        values |= dict.fromkeys(("extent", "chain", "size", "blocks", "last_at"), 0)
        if last is not None:
            sums = last.sums
            values |= {"extent": sums.first, "chain": sums.chain, "blocks": sums.blocks, "last_at": sums.last_at}
            values["size"] = last.size
        return self._connection.change(_MOVE_HEAD, values) == 1

    def _is_ours(self, epoch: int) -> bool:
        """Whether the epoch is the journal's. Locks the shard's row until the end of the transaction."""
        return bool(self._connection.rows(_OURS, {"epoch": epoch}))


_BLOCK_TYPES = ("int8", "int8", "int8", "int8", "int8", "int8", "int4", "bytea")
_OURS = "select 1 from {schema}.shard where epoch = %(epoch)s for share"
_TAKE = """update {schema}.shard set epoch = greatest(epoch, %(epoch)s) + 1, identity = %(identity)s,
        created = %(created)s, owner = %(owner)s, lease_until = clock_timestamp() + interval '100 years'
    where owner = %(owner)s or (head = 1 and extent = 0 and lease_until < clock_timestamp()
        and not exists (select from {schema}.extents)) returning epoch"""
_REACHED = 'select max("end") from {schema}.blocks where extent = %s'
_PUT_EXTENT = """with ours as (select 1 from {schema}.shard where epoch = %(epoch)s for share),
    put as (insert into {schema}.extents
            (first, header, timeline, "end", size, blocks, last_at, chain, flags, finished)
        select %(first)s, %(header)b, 0, %(end)s, %(size)s, %(blocks)s, %(last_at)s, %(chain)s, %(flags)s, %(finished)s
        from ours on conflict (first) do update set header = excluded.header, "end" = excluded."end",
            size = excluded.size, blocks = excluded.blocks, last_at = excluded.last_at, chain = excluded.chain,
            flags = excluded.flags, finished = excluded.finished)
    select count(*) from ours"""
_PUT_BLOCKS = """copy {schema}.{partition} (extent, first, "end", epoch, checksum, at, size, bytes)
    from stdin (format binary)"""
_MOVE_HEAD = """update {schema}.shard set head = %(head)s, low = %(low)s, floor = %(floor)s, extent = %(extent)s,
    chain = %(chain)s, size = %(size)s, blocks = %(blocks)s, last_at = %(last_at)s where epoch = %(epoch)s"""


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
