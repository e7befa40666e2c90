"""The data source itself. Spark creates one for each use, on the driver, and requests a reader or a writer from it.

``schema`` runs once, at ``load()``; ``reader`` and ``streamReader`` whenever Spark plans, so they make no calls. What
they return plans on the driver (``partitions``, ``latestOffset`` …) and is sent to the executors (``read``).
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.spark import options, schemas
from penstock.spark.errors import BadOption
from penstock.spark.options import SourceSettings, Use


class PenstockSource(DataSource):
    """``format("penstock")``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "penstock"

    def schema(self) -> StructType:
        """The columns of ``load()`` without an explicit schema."""
        settings = options.parse(self.options, Use.READING)
        return schemas.spark_schema(_view(settings), settings.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from penstock.spark.batch import BatchReader, FilteringReader  # noqa: PLC0415 - only what is needed

        settings = options.parse(self.options, Use.BATCH)
        columns = schemas.check(settings.view, settings.columns, schema)
        kind = FilteringReader if settings.push_filters else BatchReader
        return kind(settings, columns, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For ``spark.readStream``."""
        from penstock.spark.consume import ConsumingReader  # noqa: PLC0415
        from penstock.spark.stream import StreamReader  # noqa: PLC0415

        settings = options.parse(self.options, Use.STREAMS)
        columns = schemas.check(_view(settings), settings.columns, schema)
        if settings.view == "live":
            raise BadOption("view live shows the current content of queues: read it with spark.read, not as a stream")
        kind = ConsumingReader if settings.mode == "consume" else StreamReader
        return kind(settings, columns, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from penstock.spark.writers import BatchWriter  # noqa: PLC0415

        return BatchWriter(options.parse(self.options, Use.WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For ``df.writeStream``."""
        from penstock.spark.writers import StreamWriter  # noqa: PLC0415

        return StreamWriter(options.parse(self.options, Use.STREAM_WRITE), schema, overwrite)


def _view(settings: SourceSettings) -> str:
    return "leased" if settings.mode == "consume" else settings.view
