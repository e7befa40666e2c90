"""How ``archive`` commits a batch in every format: stopped at each step, repeated, grown, compacted, read elsewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.lake import iceberg
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import Store
from penstock.spark.lake.table_formats import FORMATS
from penstock.spark.lake.tables import data_files
from penstock.spark.pipelines.archive import options as archive_options
from support.archives import STEPS, ArchiveRun, messages
from support.tables import by_pandas, frame_by_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_stopped_at_any_step_is_committed_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    run = ArchiveRun(spark, tmp_path, kind=kind)
    run.batch(0)
    for number, step in enumerate(STEPS, 1):
        run.killed(number, step)
        run.start()
        run.batch(number)
        run.batch(number)
    assert run.positions() == list(range(60))
    last = run.lake.last()
    assert last is not None
    assert (last.state["rows"], last.state["quarantined"], last.done) == (60, 15, True)


@pytest.mark.parametrize("kind", FORMATS)
def test_schemas_grow_small_files_are_compacted_and_leftovers_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    run = ArchiveRun(spark, tmp_path, kind=kind)
    run.batch(0)
    run.batch(1)
    run.start(schema="id long, more string", kind=None)  # it is that of the table
    run.batch(2)
    before = data_files(Store(tmp_path), "orders")
    if kind != "parquet":
        assert [(file.first, file.last, file.rows) for file in before] == [(0, 9, 8), (10, 18, 7), (20, 29, 8)]
    run.now += 24 * 3600
    monkeypatch.setattr(iceberg, "KEEP_HOURS", 0)
    run.batch(3)
    after = {file.path for file in data_files(Store(tmp_path), "orders")}
    assert run.positions() == list(range(40))
    assert all(file.path in after for file in before) == (kind == "parquet")
    rows = frame_by_spark(spark, tmp_path, "orders").orderBy("position").select("value.id", "value.more", "queue")
    found = {row[0]: (row[1], row[2]) for row in rows.collect()}
    assert found[0] == (None, "q0")
    assert found[20] == ("x", "q0")
    assert sorted({str(reason) for reason in by_pandas(tmp_path, "orders_quarantine", "reason")}) == [
        "not JSON: Input data was truncated"
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_two_pipelines_on_one_table_from_two_places(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    one = ArchiveRun(spark, tmp_path, kind=kind, state=str(tmp_path / "one"), catalogue=_shared(tmp_path))
    one.batch(0)
    other = ArchiveRun(
        spark, tmp_path, "query-two", kind=kind, state=str(tmp_path / "other"), catalogue=_shared(tmp_path)
    )
    assert other.lake.resume_at() == 10
    one.batch(1)
    with pytest.raises(LakeError, match="has messages of this journal from another pipeline"):
        other.archive.batch(messages(spark, 10, 10), 0)
    found = data_files(Store(tmp_path), "orders", archive_options.catalogue_of(one.lake, one.options))
    assert sum(file.rows for file in found) == 15


def _shared(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/shared.db", "warehouse": f"file://{folder}"}


def test_no_row_is_collected_on_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of collected results does not depend on the number of rows."""
    collected: list[int] = []
    kind = type(messages(spark, 0, 1))
    real = kind.collect

    def collect(frame: DataFrame) -> Any:
        found = real(frame)
        collected.append(sum(len(str(value)) for row in found for value in row))
        return found

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("rows come to the driver")

    run = ArchiveRun(spark, tmp_path, format="raw", schema="")
    for name in ("toArrow", "toPandas", "toLocalIterator", "take", "first"):
        monkeypatch.setattr(kind, name, refused)
    monkeypatch.setattr(kind, "collect", collect)
    run.batch(0, rows=10)
    run.batch(1, rows=5000)
    monkeypatch.undo()
    assert len(run.positions()) == 5010
    assert max(collected) < 2000


def test_half_a_batch_whose_checkpoint_is_lost_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run = ArchiveRun(spark, tmp_path)
    run.killed(0, "between the commits of quarantine and table")
    shutil.rmtree(run.lake.checkpoint)
    with pytest.raises(LakeError, match="is in orders_quarantine but not in orders, and the checkpoint"):
        run.start()


def test_the_rest_of_a_batch_is_decoded_like_its_beginning(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that were valid when the quarantine was written no longer are, and must still be in one of the tables."""
    run = ArchiveRun(spark, tmp_path)
    run.killed(0, "between the commits of quarantine and table")
    run.start(schema="id long, more long")
    run.batch(0)
    assert run.positions() == list(range(10))


PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
LINES = dict(zip(("delta", "iceberg", "parquet"), re.findall(r"^```py\n(.*?)^```$", PAGE, re.M | re.S), strict=True))


@pytest.mark.parametrize("kind", FORMATS)
def test_the_page_has_the_lines_that_read_a_table(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    run = ArchiveRun(spark, tmp_path / "penstock-lake", kind=kind, table="messages", format="raw", schema="")
    run.batch(0)
    run.batch(1)
    names: dict[str, Any] = {"spark": spark}
    exec(LINES[kind].replace("penstock-lake", f"{tmp_path}/penstock-lake"), names)
    assert names["spark_frame"].count() == len(names["pandas_frame"]) == len(names["polars_frame"]) == 20
    columns = set(names["pandas_frame"].columns)
    assert columns == set(names["polars_frame"].columns) == set(names["spark_frame"].columns)
    assert "q0" in capsys.readouterr().out
    if "catalogue" in names:
        names["catalogue"].close()
