"""Reading the journal in a database, while one broker after the other writes it.

The shard's one row says how far the journal goes; the extents are listed again only when it shows a change. Blocks are
read from local copies (``copies``). ``span_reader`` documents the results, and how losses are reported.
"""

from __future__ import annotations

import os

from typing_extensions import override

from penstock.journal.contract import Checkpoint, Span, Tail
from penstock.journal.errors import JournalDamaged
from penstock.journal.files.checkpoints import CheckpointReader
from penstock.journal.files.disk import File
from penstock.journal.files.mapped_segment import MappedSegment
from penstock.journal.format.segment import BRIDGE, SegmentHeader
from penstock.journal.postgresql.copies import ExtentCopies, Key, key_of
from penstock.journal.postgresql.database import ExtentRow, ReadableDatabase, ShardRow
from penstock.journal.postgresql.folder_view import FolderView, stored_tail
from penstock.journal.postgresql.retries import retry_once
from penstock.journal.span_reader import SpanReader


class DatabaseFollower(SpanReader):
    """A view of the journal in a database: see ``contract.Follower``. Threads may share one."""

    def __init__(self, database: ReadableDatabase, *, identity: int | None = None) -> None:
        """Raises JournalRefused if there is no journal, Replaced if it is not the one with this identity."""
        super().__init__(database.where)
        self._database = database
        self._copies = ExtentCopies(database)
        #: The extents, and the parts of the shard's row that identify their list.
        self._listed: tuple[tuple[int, ...], dict[Key, ExtentRow]] = ((), {})
        self._shard: ShardRow = retry_once(database.shard)
        self.identity = self._shard.identity if identity is None else identity
        self.tail()

    @override
    def close(self) -> None:
        self._copies.clear()
        self._database.close()

    def __del__(self) -> None:
        self._database.close()  # an abandoned follower must not keep its connection

    @override
    def checkpoint(self, stop: int) -> Checkpoint | None:
        return CheckpointReader(FolderView(self._database), self.identity).newest_before(stop)

    @override
    def marks(self, span: Span, limit: int) -> tuple[list[int], list[int]] | None:
        # Without fetching the extent.
        row = self._extents().get(span.key)
        if row is None or not row.finished or self._copies.has(span.key):
            return super().marks(span, limit)
        return [row.first, row.end], [0, row.size]

    @override
    def _look(self) -> Tail:
        self._shard = retry_once(self._database.shard)
        return stored_tail(self._shard)

    @override
    def _spans(self, committed: int) -> list[Span]:
        rows = [(key, row) for key, row in self._extents().items() if row.first < committed]
        spans: list[Span] = []
        after = committed
        for key, row in reversed(rows):
            header = self._header(row)
            end = max(min(row.end if row.finished else after, committed), row.first)
            bridged = bool(row.flags & BRIDGE)
            spans.append(Span(key, row.first, end, header.after, header.created, row.finished, bridged))
            after = header.after
        return spans[::-1]

    def _extents(self) -> dict[Key, ExtentRow]:
        """The extents of the log, listed again only when the shard's row has changed."""
        shard = self._shard
        moment = (shard.identity, shard.low, shard.extent)
        listed_at, rows = self._listed
        if listed_at != moment:
            rows = {key_of(row): row for row in retry_once(self._database.extents) if not row.kept}
            self._listed = (moment, rows)
        return rows

    def _header(self, row: ExtentRow) -> SegmentHeader:
        header = SegmentHeader.decode(row.header)
        if header is None:
            name = key_of(row)[0]
            raise JournalDamaged(self.where, name, 0, (row.first, row.first + 1), "its header is unreadable")
        return header

    @override
    def _segment(self, span: Span) -> MappedSegment:
        row = self._extents().get(span.key)
        if row is None:
            raise FileNotFoundError(span.key[0])
        return retry_once(self._copies.mapped, row, span.end)

    @override
    def _path(self, segment: MappedSegment) -> str:
        """Copies have no name: other processes open them through this process's descriptors."""
        return f"/proc/{os.getpid()}/fd/{segment.descriptor}"

    @override
    def _file(self, name: str) -> File:
        return self._copies.file(name)
