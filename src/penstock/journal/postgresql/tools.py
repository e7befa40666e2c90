"""For operators of a journal in a database: see ``contract.JournalTools``."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import TypeVar

from penstock.journal.backup import Manifest
from penstock.journal.contract import (
    AcceptedLoss,
    ExtentInfo,
    JournalInfo,
    Progress,
    Repair,
    Verdict,
    resume_after,
)
from penstock.journal.errors import JournalOwned, JournalRefused
from penstock.journal.format.segment import HEADER_SIZE, SegmentHeader, segment_name
from penstock.journal.postgresql.address import Address
from penstock.journal.postgresql.backup import back_up
from penstock.journal.postgresql.connection import PostgresDatabase
from penstock.journal.postgresql.database import ExtentRow, ReadableDatabase, ShardRow
from penstock.journal.postgresql.folder_view import FolderView
from penstock.journal.postgresql.questions import asked
from penstock.journal.postgresql.seen import OPERATOR
from penstock.journal.repair.survey import survey, verdict_of

T = TypeVar("T")


class PostgresTools:
    """Each call has a connection of its own."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def create(self) -> bool:
        """See JournalTools."""
        return self._with(_create)

    def accept_loss(self) -> AcceptedLoss:
        """See JournalTools."""
        return self._with(_accept_loss)

    def check(self) -> None:
        """See JournalTools."""
        self._with(lambda database: database.shard())

    def size(self) -> int:
        """See JournalTools."""
        return self._with(lambda database: sum(row.size for row in database.extents()))

    def verify(self, progress: Progress) -> Verdict:
        """See JournalTools."""
        return self._with(lambda database: verdict_of(survey(FolderView(database), progress)))

    def info(self) -> JournalInfo:
        """See JournalTools."""
        return self._with(_info)

    def back_up(self, target: str, progress: Callable[[int], bool]) -> Manifest:
        """See JournalTools."""
        return self._with(lambda database: back_up(database, target, progress))

    def repair(self, progress: Progress) -> AbstractContextManager[Repair]:
        """See JournalTools."""
        raise JournalRefused(
            "a journal in a database is not repaired here: bring back what is damaged from a standby or a backup of the"
            " database"
        )

    def _with(self, question: Callable[[PostgresDatabase], T]) -> T:
        with closing(PostgresDatabase(self._address)) as database:
            return asked(lambda: question(database))


def _create(database: PostgresDatabase) -> bool:
    is_new = database.version() is None
    database.make()
    return is_new


def _accept_loss(database: PostgresDatabase) -> AcceptedLoss:
    database.shard()  # whether there is a journal, of this version
    now = time.time_ns() // 1000
    shard = database.accept_loss(OPERATOR, now)
    if shard is None:
        found = database.shard()
        raise JournalOwned(database.where, found.owner, found.lease)
    return AcceptedLoss(shard.head, resume_after(shard.head, now))


def _info(database: ReadableDatabase) -> JournalInfo:
    shard = database.shard()
    extents = [_extent(row, shard) for row in database.extents() if not row.kept]
    return JournalInfo(shard.created, extents, database.checkpoints())


def _extent(row: ExtentRow, shard: ShardRow) -> ExtentInfo:
    end = row.end if row.finished else shard.head
    header = SegmentHeader.decode(row.header)
    created = header.created if header is not None else 0
    return ExtentInfo(
        segment_name(row.first), row.first, end - row.first, created, HEADER_SIZE + row.size, row.finished
    )
