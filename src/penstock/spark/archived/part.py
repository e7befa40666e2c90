"""The rows of a part on executors, first from the archive, then from the broker.

The driver lists the files. If these were replaced meanwhile, or if the journal has dropped what it had when the part
was planned, the archive is listed again, and reading resumes after the last row handed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from msgspec.structs import replace

from penstock.flight.calls import Pick, Read
from penstock.journal.views.arrow import MESSAGES
from penstock.spark.archived.contents import has
from penstock.spark.archived.history import ATTEMPTS, check
from penstock.spark.archived.listing import list_archive, store_of
from penstock.spark.archived.row_groups import ArchiveRows
from penstock.spark.endpoint import log
from penstock.spark.errors import DataLoss, Replaced, StoreFailed
from penstock.spark.lake.tables import TableFile
from penstock.spark.options import SourceSettings

#: Seconds between attempts at a store that fails.
PAUSE = 1.0

#: Reads a range from the broker.
FromBroker = Callable[[Read], Iterator[pa.RecordBatch]]


class ArchivedPart:
    """The rows of one part. ``files`` have those before ``until``."""

    def __init__(self, settings: SourceSettings, read: Read, files: tuple[TableFile, ...], until: int) -> None:
        self._settings = settings
        self._read = read
        self._pick = Pick(queue=read.queue, pattern=read.pattern)
        self._files = files
        self._until = until
        self._accept_loss = False
        self._failures = 0
        self._since = time.monotonic()

    def batches(self, from_broker: FromBroker) -> Iterator[pa.RecordBatch]:
        """The rows, each once, in the order of their positions. All batches have the column ``position``."""
        problem: Exception | None = None
        while self._read.start < self._read.stop:
            try:
                if problem is not None:
                    self._look_again(problem)
                    problem = None
                archived = self._read.start < self._until
                yield from self._archived() if archived else self._rest(from_broker)
            except Replaced:
                raise
            except DataLoss as error:
                if problem is not None:
                    raise
                problem = error
            except (OSError, StoreFailed) as error:
                self._wait(error)
                problem = problem or error

    def _archived(self) -> Iterator[pa.RecordBatch]:
        span = (self._read.start, min(self._until, self._read.stop))
        rows = ArchiveRows(store_of(self._settings))
        names = list(self._read.columns or MESSAGES.names)
        schema = pa.schema([MESSAGES.field(name) for name in dict.fromkeys([*names, "position"])])
        groups = rows.groups((file for file in self._files if has(file, *span)), *span)
        for table in rows.read(groups, span, self._pick, schema):
            for batch in table.to_batches():
                self._passed(batch.column("position")[-1].as_py() + 1)
                yield batch
        self._passed(span[1])

    def _rest(self, from_broker: FromBroker) -> Iterator[pa.RecordBatch]:
        for batch in from_broker(replace(self._read, accept_loss=self._accept_loss)):
            self._passed(batch.column("position")[-1].as_py() + 1)
            yield batch
        self._passed(self._read.stop)

    def _passed(self, position: int) -> None:
        self._read = replace(self._read, start=position)
        self._failures, self._since = 0, time.monotonic()

    def _look_again(self, error: Exception) -> None:
        """List the archive again. Raises ``error`` if that does not help."""
        read = self._read
        archive = check(list_archive(self._settings), read.identity, self._pick)
        if archive.start <= read.start < archive.stop:
            self._files = archive.between(read.start, read.stop, self._pick)
            self._until = min(archive.stop, read.stop)
        elif isinstance(error, DataLoss) and not self._settings.fail_on_data_loss:
            log.warning("%s. The archive %s does not have them either", error, archive.place)
            self._accept_loss = True
        else:
            raise error

    def _wait(self, error: Exception) -> None:
        """Wait before the next attempt. A missing file was probably replaced; other failures of the store may pass."""
        self._failures += 1
        if isinstance(error, FileNotFoundError):
            if self._failures > ATTEMPTS:
                raise DataLoss(f"a file of the archive {self._settings.archive} is missing: {error}") from None
            return
        if isinstance(error, PermissionError) or time.monotonic() - self._since > self._settings.patience / 1e6:
            raise error
        log.warning("the archive %s can't be read: %s. Trying again", self._settings.archive, error)
        time.sleep(PAUSE)
