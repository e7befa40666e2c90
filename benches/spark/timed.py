"""The data source, which writes down when it was asked for what: the workers of Spark are other processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock.spark import options, schemas
from penstock.spark.executor import ReadPart
from penstock.spark.options import Use
from penstock.spark.source import PenstockSource
from penstock.spark.stream import StreamReader


class Call(NamedTuple):
    """A call of the reader: from when to when, by the clock that all processes share, for positions before which."""

    what: str
    began: float
    ended: float
    stop: int


def calls(file: Path) -> list[Call]:
    """What was written down."""
    return [Call(*json.loads(line)) for line in file.read_text().splitlines()]


class TimedSource(PenstockSource):
    """``format("penstock-timed")``, for streams; option ``times`` is the file that calls are written to."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._times = options["times"]
        super().__init__({name: value for name, value in options.items() if name.lower() != "times"})

    @classmethod
    def name(cls) -> str:
        return "penstock-timed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        settings = options.parse(self.options, Use.STREAMS)
        return TimedReader(self._times, settings, schemas.check(settings.view, settings.columns, schema), schema)


class TimedReader(StreamReader):
    """Calls that lead to no batch are left out."""

    def __init__(self, times: str, *given: Any) -> None:
        super().__init__(*given)
        self._times = times

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        began = time.monotonic()
        found = super().latestOffset(start, limit)
        if found != start:
            self._note("latestOffset", began, found["position"])
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        began = time.monotonic()
        found = super().partitions(start, end)
        self._note("partitions", began, end["position"])
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadPart)
        began = time.monotonic()
        yield from super().read(partition)
        self._note("read", began, partition.read.stop)

    def _note(self, what: str, began: float, stop: int) -> None:
        line = json.dumps(Call(what, began, time.monotonic(), stop)) + "\n"
        file = os.open(self._times, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, line.encode())
        os.close(file)
