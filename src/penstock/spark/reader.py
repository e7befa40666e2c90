"""Base of both streaming readers: the connection, reports, and reading on executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.flight.calls import View
from penstock.spark import schemas
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.executor import ReadPart, fetch
from penstock.spark.options import SourceSettings
from penstock.spark.progress import ProgressReporter


class StreamReaderBase(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Sent to executors, so it connects and reports only when needed."""

    #: The view that its reports name.
    reported: View

    def __init__(self, settings: SourceSettings, columns: list[str], schema: StructType) -> None:
        self._settings = settings
        self._columns = columns
        self._schema = schema
        self._connection: FlightEndpoint | None = None
        self._reports: ProgressReporter | None = None

    def commit(self, end: dict[str, Any]) -> None:
        """Unused, since it comes too late: the start of the next ``latestOffset`` says what has been processed."""

    def stop(self) -> None:
        """Disconnect, if Spark calls this at all."""
        if self._reports is not None:
            self._reports.stop()
        if self._connection is not None:
            self._connection.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Runs on an executor."""
        assert isinstance(partition, ReadPart)
        return fetch(self._settings, partition, schemas.arrow_schema(self._schema))

    @property
    def _endpoint(self) -> FlightEndpoint:
        if self._connection is None:
            self._connection = FlightEndpoint(self._settings)
        return self._connection

    @property
    def _reporter(self) -> ProgressReporter:
        if self._reports is None:
            self._reports = ProgressReporter(self._settings, self.reported)
        return self._reports
