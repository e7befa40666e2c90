"""The tools of operators for a journal in a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import TypeVar

from typing_extensions import override

from penstock.journal.backup import Manifest
from penstock.journal.contract import (
    AcceptedLoss,
    ExtentInfo,
    JournalInfo,
    JournalTools,
    Progress,
    Repair,
    Verdict,
    resume_after,
)
from penstock.journal.errors import JournalOwned, JournalRefused
from penstock.journal.format.segment import HEADER_SIZE, SegmentHeader, segment_name
from penstock.journal.postgresql.address import Address
from penstock.journal.postgresql.backup import back_up
from penstock.journal.postgresql.database import ExtentRow, ReadableDatabase, ShardRow
from penstock.journal.postgresql.folder_view import FolderView
from penstock.journal.postgresql.known_commits import OPERATOR
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from penstock.journal.postgresql.retries import retry_once
from penstock.journal.repair.survey import survey, verdict_of

T = TypeVar("T")


class PostgresTools(JournalTools):
    """Each call has a connection of its own."""

    @override
    def __init__(self, address: Address) -> None:
        self._address = address

    @override
    def create(self) -> bool:
        return self._with(_create)

    @override
    def accept_loss(self) -> AcceptedLoss:
        return self._with(_accept_loss)

    @override
    def check(self) -> None:
        self._with(lambda database: database.shard())

    @override
    def size(self) -> int:
        return self._with(lambda database: sum(row.size for row in database.extents()))

    @override
    def verify(self, progress: Progress) -> Verdict:
        return self._with(lambda database: verdict_of(survey(FolderView(database), progress)))

    @override
    def info(self) -> JournalInfo:
        return self._with(_info)

    @override
    def back_up(self, target: str, progress: Callable[[int], bool]) -> Manifest:
        return self._with(lambda database: back_up(database, target, progress))

    @override
    def repair(self, progress: Progress) -> AbstractContextManager[Repair]:
        raise JournalRefused(
            "a journal in a database is not repaired here: restore the damaged rows from a standby or a backup of the"
            " database"
        )

    def _with(self, statement: Callable[[PostgresDatabase], T]) -> T:
        with closing(PostgresDatabase(self._address)) as database:
            return retry_once(statement, database)


def _create(database: PostgresDatabase) -> bool:
    is_new = database.is_empty()
    database.make()
    return is_new


def _accept_loss(database: PostgresDatabase) -> AcceptedLoss:
    database.shard()  # raises unless there is a journal of this version
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
