"""Register a data source for each query.

Spark finds ``format("penstock")`` by itself, once in a session, and all queries share that data source. With it they
share a table of environment variables that a streaming query fills as it starts (seen in Spark 4.3): if the tasks of
another query are serialised at that moment, it fails with "Illegal size … of collection, expected …". A registered data
source has a table of its own, and a query keeps the one that it was loaded with.
"""

from __future__ import annotations

import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from penstock.spark.source import PenstockSource

#: Spark looks up the data source in ``load()``: no other query may register in between.
_loading = threading.Lock()


def load(spark: SparkSession, reader: DataFrameReader | DataStreamReader) -> DataFrame:
    """``reader.load()`` with a data source that no other query uses."""
    with _loading:
        spark.dataSource.register(PenstockSource)
        return reader.load()
