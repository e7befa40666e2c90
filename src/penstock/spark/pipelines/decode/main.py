"""``decode``: captures of any of the three protocols become a table of frames. See docs/pipelines.md.

One file is one task, and is read in pieces, so that neither its size nor the number of files matters.
"""

from __future__ import annotations

import glob
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from penstock.spark.lake.disk import LakeError, remove
from penstock.spark.pipelines.decode.captures import PIECE, read_stream
from penstock.spark.pipelines.decode.frames import FRAMES, FrameSource
from penstock.spark.pipelines.decode.pcap import is_capture
from penstock.spark.pipelines.decode.reassembly import read_capture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.pipelines.run import RunControl

#: The most tasks: with more files than this, a task reads several.
MAX_TASKS = 10_000


class DecodeOptions(Struct, frozen=True):
    """How to read files; None: detect it from the first bytes. ``ports`` limits packet captures to these ports."""

    protocol: str | None = None
    direction: str | None = None
    ports: frozenset[int] = frozenset()
    payloads: bool = False


def find_files(patterns: Sequence[str]) -> list[str]:
    """The files that paths, folders (all files below) and patterns name. Raises ``ValueError`` if one names nothing."""
    found: dict[str, None] = {}
    for pattern in patterns:
        places = sorted(glob.glob(pattern, recursive=True)) if not os.path.exists(pattern) else [pattern]
        files = [file for place in places for file in _below(place)]
        if not files:
            raise ValueError(f"there is no file {pattern!r}")
        found |= dict.fromkeys(map(os.path.abspath, files))
    return list(found)


def _below(place: str) -> Iterator[str]:
    if not os.path.isdir(place):
        yield place
        return
    for folder, folders, names in os.walk(place):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(names) if not name.startswith("."))


def decode_file(path: str, options: DecodeOptions) -> Iterator[pa.RecordBatch]:
    """The frames of one file. An unreadable file becomes a row, since it may be one of many."""
    try:
        with open(path, "rb") as file:
            head = file.read(24)
            file.seek(0)
            if is_capture(head):
                yield from read_capture(
                    file, path, protocol=options.protocol, ports=options.ports, payloads=options.payloads
                )
            else:
                source = FrameSource(path, None, options.protocol, options.direction)
                yield from read_stream(_pieces(file), source, payloads=options.payloads)
    except OSError as error:
        yield _unreadable(path, error)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _unreadable(path: str, error: OSError) -> pa.RecordBatch:
    row = dict.fromkeys(FRAMES.names) | {"file": path, "offset": 0, "length": 0, "code": "unreadable"}
    row["error"] = f"the file can't be read: {error.strerror or error}"
    return pa.RecordBatch.from_pylist([row], schema=FRAMES)


def transform(files: DataFrame, options: DecodeOptions | None = None) -> DataFrame:
    """Frames of the files that the column ``file`` names."""
    chosen = options or DecodeOptions()

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from decode_file(path, chosen)

    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only with Spark

    return files.select("file").mapInArrow(decode, from_arrow_schema(FRAMES))


def read(spark: SparkSession, files: Sequence[str], options: DecodeOptions | None = None) -> DataFrame:
    """Frames of these files, a task for each."""
    listed = spark.createDataFrame([(file,) for file in files], "file string")
    return transform(listed.repartition(min(len(files), MAX_TASKS)), options)


class DecodeResult(Struct, frozen=True):
    """Row counts of the table, and the time; ``whole`` is false if it was stopped, and the table is unchanged."""

    frames: int = 0
    errors: int = 0
    seconds: float = 0.0
    whole: bool = True


def _replace(new: Path, old: Path) -> None:
    """Replace a folder by another one. It is missing for a moment."""
    aside = new.with_name(f"{new.name}.old")
    if old.exists():
        os.rename(old, aside)
    os.rename(new, old)
    remove(aside)


def run(
    spark: SparkSession, files: Sequence[str], options: DecodeOptions, output: str, how: RunControl | None = None
) -> DecodeResult:
    """Write the table of frames, and replace the previous one."""
    from penstock.spark.pipelines import run as running  # noqa: PLC0415 - only with Spark

    how = running.RunControl() if how is None else how
    target = Path(output).absolute()
    if target.exists() and not (target / "_SUCCESS").exists() and any(target.iterdir()):
        raise LakeError(f"{output} contains something other than a table of frames: choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    progress = running.PipelineProgress()
    how.doing = f"decoding {len(files):,} files"
    try:
        with running.watched(spark, how, progress):
            read(spark, files, options).write.option("compression", "zstd").parquet(str(staged))
            how.doing = "counting errors"
            rows = sum(pq.read_metadata(file).num_rows for file in staged.glob("*.parquet"))
            errors = spark.read.parquet(str(staged)).where("code is not null").count()
        if not how.stop.is_set():
            _replace(staged, target)
            return DecodeResult(rows - errors, errors, progress.seconds)
    except running.SPARK_ERRORS as error:
        if not how.stop.is_set():
            raise running.explained(error) from None
    finally:
        remove(staged)
    return DecodeResult(seconds=progress.seconds, whole=False)
