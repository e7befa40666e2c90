"""Archive and journal as one history: positions before the journal's beginning come from the archive.

Positions are the same in both, so they can meet anywhere. A range that begins before the journal is taken from the
archive as far as that goes, since the journal's beginning may move on while the range is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.flight.calls import Advanced, Lag, Pick, Range
from penstock.spark.archived import measures
from penstock.spark.archived.contents import ArchiveContents
from penstock.spark.archived.listing import list_archive, store_of
from penstock.spark.archived.row_groups import ArchiveRows
from penstock.spark.endpoint import log
from penstock.spark.errors import ADVICE, BadOption, DataLoss, Replaced
from penstock.spark.lake.tables import TableFile
from penstock.spark.options import SourceSettings

T = TypeVar("T")

#: Seconds to wait for a batch that the archive is about to get. The journal may have dropped it already.
GAP_SECONDS = 15.0
GAP_PAUSE = 0.5
#: How often to list the files again if some are gone: compaction replaces them now and then.
ATTEMPTS = 10


class ArchivedHistory:
    """The archive of the options, in front of the broker's journal."""

    def __init__(self, settings: SourceSettings, pick: Pick) -> None:
        self._settings = settings
        self._pick = pick
        self._archive: ArchiveContents | None = None
        self._rows: ArchiveRows | None = None
        #: Selected rows of each row group.
        self._counted: dict[tuple[str, int], int] = {}

    def earliest(self, status: Range) -> int:
        """The first position in either."""
        return min(self._known(status).start, status.earliest)

    def locate(self, status: Range, at: int) -> int:
        """The position of the first message at or after a time, but at most the journal's beginning."""

        def find(archive: ArchiveContents, rows: ArchiveRows) -> int | None:
            files = archive.between(archive.start, status.earliest, self._pick)
            return measures.locate(rows, files, min(status.earliest, archive.stop), self._pick, at)

        position = self._with_files(status, find)
        return status.earliest if position is None else position

    def reach(self, status: Range, start: int, stop: int) -> int:
        """The end of the part of a range that comes from the archive: ``start`` if none of it does.

        Raises DataLoss for positions that are in neither, unless the options accept that.
        """
        archive = self._meeting(status, start, stop)
        return max(start, min(stop, archive.stop))

    def advance(self, status: Range, start: int, stop: int, max_rows: int, max_bytes: int) -> Advanced:
        """How far a reader may go in the archive."""

        def count(archive: ArchiveContents, rows: ArchiveRows) -> Advanced:
            groups = rows.groups(archive.between(start, stop, self._pick), start, stop)
            return measures.advance(rows, groups, (start, stop), self._pick, max_rows, max_bytes)

        return self._with_files(status, count)

    def cuts(self, status: Range, start: int, stop: int, size: int) -> list[int]:
        """Where to cut a range of the archive into parts."""

        def cut(archive: ArchiveContents, rows: ArchiveRows) -> list[int]:
            groups = rows.groups(archive.between(start, stop, self._pick), start, stop)
            return measures.cuts(groups, start, stop, self._settings.min_partitions, size)

        return self._with_files(status, cut)

    def behind(self, status: Range, start: int) -> Lag:
        """The lag at or after a position within the archive, up to the journal's beginning."""

        def count(archive: ArchiveContents, rows: ArchiveRows) -> Lag:
            span = (start, min(status.earliest, archive.stop))
            groups = rows.groups(archive.between(*span, self._pick), *span)
            count = measures.behind(rows, groups, span, self._pick, self._counted)
            at = measures.oldest(rows, groups, span, self._pick) if count else None
            return Lag(rows=count, seconds=0.0 if at is None else max(time.time() - at / 1e6, 0.0))

        return self._with_files(status, count)

    def files(self, status: Range, start: int, stop: int) -> tuple[TableFile, ...]:
        """The files that have rows of a range."""
        return self._known(status).between(start, stop, self._pick)

    # Implementation

    def _known(self, status: Range) -> ArchiveContents:
        """The archive as of its last listing."""
        if self._archive is None:
            self._archive = check(list_archive(self._settings), status.identity, self._pick)
        return self._archive

    def _again(self, status: Range) -> ArchiveContents:
        self._archive = None
        if self._rows is not None:
            self._rows.forget()
        self._counted.clear()
        return self._known(status)

    def _with_files(self, status: Range, ask: Callable[[ArchiveContents, ArchiveRows], T]) -> T:
        """Call ``ask`` with the files, and again with a new listing if some of them were replaced meanwhile."""
        if self._rows is None:
            self._rows = ArchiveRows(store_of(self._settings))
        for _ in range(ATTEMPTS):
            try:
                return ask(self._known(status), self._rows)
            except FileNotFoundError as error:
                problem = error
                self._again(status)
        raise DataLoss(f"a file of the archive {self._known(status).place} is missing: {problem}")

    def _meeting(self, status: Range, start: int, stop: int) -> ArchiveContents:
        """The archive, once it has everything between ``start`` and the journal's beginning, or ``stop``."""
        deadline = time.monotonic() + min(GAP_SECONDS, self._settings.patience / 1e6)
        archive = self._known(status)
        while missing(archive, status, start, stop):
            archive = self._again(status)
            if time.monotonic() >= deadline or not missing(archive, status, start, stop):
                break
            time.sleep(GAP_PAUSE)
        for low, high in missing(archive, status, start, stop):
            text = gap(archive, status, low, high)
            if self._settings.fail_on_data_loss:
                raise DataLoss(f"{text} (penstock at {self._settings.endpoint}). {ADVICE}")
            log.warning("%s", text)
        return archive


def check(archive: ArchiveContents, identity: str, pick: Pick) -> ArchiveContents:
    """The archive itself, if it is of this journal and has these queues."""
    if not archive.identity:
        raise Replaced(
            f"option archive: {archive.place} contains messages of several journals, whose positions overlap"
        )
    if archive.identity != identity:
        raise Replaced(
            f"option archive: {archive.place} is of journal {archive.identity}, and the broker's is {identity}: "
            "their positions are unrelated"
        )
    if not archive.covers(pick):
        have, want = (each.queue or each.pattern or "*/*" for each in (archive.of, pick))
        raise BadOption(f"option archive: {archive.place} has the queues {have}, and this query reads {want}")
    return archive


def missing(archive: ArchiveContents, status: Range, start: int, stop: int) -> list[tuple[int, int]]:
    """Positions of a range that neither has."""
    floor = min(status.earliest, stop)
    holes = [(start, min(archive.start, floor)), (max(start, archive.stop), floor)]
    return [(low, high) for low, high in holes if low < high] if archive.start < archive.stop else [(start, floor)]


def gap(archive: ArchiveContents, status: Range, low: int, high: int) -> str:
    """The error text for such positions."""
    has = f"has positions {archive.start} to {archive.stop - 1}" if archive.stop > archive.start else "has none yet"
    return (
        f"positions {low} to {high - 1} are lost: the archive {archive.place} {has}, "
        f"and the journal begins at position {status.earliest} now"
    )
