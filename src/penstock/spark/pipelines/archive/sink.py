"""Where the archive puts its rows: the contract of a sink, and the batches that it is given.

The driver calls a sink for one batch at a time::

    open ──> for each batch: begun ─> stage ─> commit ─> recorded, and sometimes maintain ──> close

A sink promises, and ``tests/spark/test_sink.py`` tries it:

*Once.* A batch is identified by its query and its number, and may come again, from this process or a later one. A batch
that is already committed adds nothing.

*Resume.* The commit stores the batch's mark in the same transaction as its rows, and ``open`` returns the newest mark.
So a pipeline whose ledger or checkpoint is lost continues at the mark's position.

*Stop.* The process may end inside or between any two calls, without ``close``. No reader sees staged rows, and ``open``
or the next batch removes those that were never committed.

*One owner.* A commit fails with ``LakeError`` if another pipeline has added rows of the same journal since ``open``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.lake.batches import BatchMark
from penstock.spark.pipelines.archive.payloads import Decoding


class Batch(Struct, frozen=True):
    """A batch of messages that is to be written."""

    query: str
    number: int
    #: Unique to this attempt: tasks of an earlier attempt at the same batch may still be writing.
    attempt: str
    decoding: Decoding
    #: Of the pipeline's clock (UTC), as in ``2026-01-31/23``.
    hour: str


class Staged(Struct, frozen=True):
    """Rows that executors have written, and that no reader sees before the commit."""

    #: Rows whose payload fits the schema, and rows for the quarantine.
    good: int
    bad: int
    #: The position after the last row; 0 without rows.
    position: int


StagedT = TypeVar("StagedT", bound=Staged)


class Sink(ABC, Generic[StagedT]):
    """One archive's rows: those whose payload fits the schema, and, apart from them, those with a reason.

    A class is registered in ``sinks.py`` and created as ``Class(lake, options)``.
    """

    #: What its calls raise, apart from ``LakeError``; the pipeline reports them in one line.
    failures: tuple[type[Exception], ...] = (OSError,)

    @abstractmethod
    def open(self, ledger: BatchMark | None, query: str, identity: str) -> BatchMark | None:
        """Check the content against the pipeline's ledger, and claim rows of the journal ``identity`` from now on.

        Returns the newest complete batch: the ledger's, or a later one of its own. ``query`` is that of the checkpoint,
        or empty. Raises LakeError for content that the pipeline must not add to.
        """

    def begun(self, query: str, number: int) -> BatchMark | None:
        """The mark of a batch that was committed in part: the rest is read with the same decoding and hour."""
        return None

    @abstractmethod
    def stage(self, messages: DataFrame, batch: Batch) -> StagedT:
        """Have executors write a batch: rows of the view ``messages``, which ``rows.transform`` decodes."""

    @abstractmethod
    def commit(self, staged: StagedT, mark: BatchMark) -> Sequence[tuple[str, str]]:
        """Commit a batch once, with its mark. Returns files of the store for the ledger to move, and their places."""

    def recorded(self, last: BatchMark) -> None:
        """Called when the ledger has recorded a batch, and after ``open``. Repeatable."""

    def maintain(self, spark: SparkSession, *, new_day: bool) -> None:
        """Maintenance after the first batch of each hour."""

    def close(self) -> None:
        """Release connections."""
