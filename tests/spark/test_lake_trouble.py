"""Lakes in trouble: foreign tables, lost catalogues, clocks, half-written files. Reported clearly, or repaired."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from penstock.spark.archived.contents import ArchiveContents
from penstock.spark.archived.listing import list_archive
from penstock.spark.errors import BadOption
from penstock.spark.lake.batches import BatchMark, Lake
from penstock.spark.lake.coverage import covered
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.table_formats import FORMATS
from penstock.spark.options import Use, parse
from penstock.spark.pipelines.archive import options as archive_options
from penstock.spark.pipelines.archive.main import Archive
from penstock.spark.pipelines.archive.options import ArchiveOptions
from penstock.spark.pipelines.replay import Replay, ReplayChoice
from penstock.spark.pipelines.run import BrokerSource
from support.archives import NOON, ArchiveRun, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS = pa.table({"a": [1]})


def listed(lake: Path) -> ArchiveContents:
    return list_archive(parse({"archive": str(lake), "archiveTable": "orders"}, Use.BATCH))


def refused(lake: Path, **options: object) -> str:
    """Run the pipeline, which must fail and change nothing. Returns its error."""
    before = files_in(lake)
    given = ArchiveOptions(table="orders", **options)  # type: ignore[arg-type]
    found = archive_options.lake_of(str(lake), given)
    with pytest.raises(LakeError) as raised:
        Archive(found, given, "journal")
    assert files_in(lake) == before
    return str(raised.value)


def files_in(folder: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def iceberg_of_others(lake: Path, database: str) -> None:
    catalogue = SqlCatalog("penstock", uri=f"sqlite:///{database}", warehouse=f"file://{lake}")
    catalogue.create_namespace("lake")
    catalogue.create_table("lake.orders", schema=OTHERS.schema, location=f"file://{lake}/orders").append(OTHERS)
    catalogue.close()


@pytest.mark.parametrize("kind", [*FORMATS, "iceberg elsewhere"])
def test_foreign_tables_are_rejected(tmp_path: Path, kind: str) -> None:
    lake = tmp_path / "lake"
    (lake / "orders").mkdir(parents=True)
    if kind == "delta":
        write_deltalake(lake / "orders", OTHERS)
    elif kind == "parquet":
        pq.write_table(OTHERS, lake / "orders" / "part-0.parquet")
    else:
        iceberg_of_others(lake, str((lake if kind == "iceberg" else tmp_path) / "iceberg.db"))
    found = kind.partition(" ")[0]
    for chosen in (None, found):
        assert "table orders exists, but the record of its batches is missing" in refused(lake, kind=chosen)
    other = next(each for each in FORMATS if each != found)
    assert f"has been written with kind {found}, not {other}" in refused(lake, kind=other)


def test_a_folder_with_foreign_files_is_rejected(tmp_path: Path) -> None:
    """Maintenance would remove foreign files."""
    (tmp_path / "orders_quarantine").mkdir()
    (tmp_path / "orders_quarantine" / "sheet.csv").write_text("a,b")
    for kind in FORMATS:
        text = "table orders_quarantine would share its folder with orders_quarantine/sheet.csv, a foreign file"
        assert text in refused(tmp_path, kind=kind)
    for name in ("insight", "orders_quarantine"):
        with pytest.raises(ValueError, match="pipelines use it for their own tables"):
            archive_options.lake_of(str(tmp_path), ArchiveOptions(table=name))


@pytest.mark.parametrize("name", ["orders", "orders_quarantine"])
def test_a_table_that_was_removed_is_reported(spark: SparkSession, tmp_path: Path, name: str) -> None:
    run = ArchiveRun(spark, tmp_path)
    run.planned(0, 10)
    run.batch(0)
    shutil.rmtree(tmp_path / name)
    with pytest.raises(LakeError, match=rf"table {name} is gone, but .* says that it had . rows"):
        run.start()
    with pytest.raises(BadOption, match=rf"table {name} is gone, with its . rows: restore it"):
        listed(tmp_path)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_alone_shows_where_to_continue(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """The pipelines' folder is lost, for Iceberg also the catalogue; the newest metadata is half written."""
    run = ArchiveRun(spark, tmp_path, kind=kind)
    run.batch(0)
    shutil.rmtree(tmp_path / "_penstock")
    (tmp_path / "iceberg.db").unlink(missing_ok=True)
    for whole in list((tmp_path / "orders").glob("metadata/*.metadata.json")):
        whole.with_name("00099-1.metadata.json").write_bytes(whole.read_bytes()[:100])
    run.start()
    assert run.lake.resume_at() == 10
    run.checkpoint("query-two")
    run.archive.batch(messages(spark, 10, 10), 0)
    assert run.positions() == list(range(20))


def test_an_archive_is_read_without_its_catalogue(spark: SparkSession, tmp_path: Path) -> None:
    """The catalogue is on the pipeline's machine. Later batches are found, too."""
    lake = tmp_path / "lake"
    run = ArchiveRun(spark, lake, kind="iceberg", state=str(tmp_path / "state"), format="raw", schema="")
    for number in range(2):
        run.planned(number, 10 * (number + 1))
        run.batch(number)
        found = listed(lake)
        assert (found.stop, sum(file.rows for file in found.files)) == (10 * (number + 1),) * 2
    assert not (lake / "iceberg.db").exists()


def test_a_wrong_clock_has_no_lasting_effect(spark: SparkSession, tmp_path: Path) -> None:
    run = ArchiveRun(spark, tmp_path)
    run.now = NOON + 50 * 365 * 86400
    run.batch(0)
    run.now = NOON
    run.batch(1)
    last = run.lake.last()
    assert last is not None
    assert last.state["hour"] == "2026-01-01/12"
    assert run.positions() == list(range(20))


def test_the_covered_range_is_of_the_current_rows(tmp_path: Path) -> None:
    """Another queue, after the checkpoint was lost; and another journal, whose loss was accepted."""
    (tmp_path / "offsets").mkdir()

    def after(before: dict[str, object] | None, identity: str, queue: str, end: int) -> dict[str, object]:
        offset = f'{{"identity": "{identity}", "position": {end}, "of": {{"queue": "{queue}"}}, "parts": [10]}}'
        (tmp_path / "offsets" / "0").write_text(offset)
        return covered(tmp_path, 0, before)

    first = after(None, "one", "d/a", 20)
    assert first["covers"] == {"identity": "one", "of": {"queue": "d/a"}, "start": 10, "stop": 20}
    assert after(first, "one", "d/a", 40)["covers"] == {**first["covers"], "stop": 40}
    other = {"identity": "one", "of": {"queue": "d/b"}, "start": 40, "stop": 50}
    assert after(first, "one", "d/b", 50)["covers"] == other
    assert after(after(first, "two", "d/a", 10), "two", "d/a", 30)["covers"]["identity"] == ""  # type: ignore[index]


@pytest.mark.parametrize(
    ("catalogue", "text"),
    [
        ({"type": "sql", "uri": "postgresql://me:hunter22@127.0.0.1:1/db"}, "the catalogue penstock of type sql"),
        ({"name": "mine", "type": "nonsense", "token": "hunter22"}, "the catalogue mine of type nonsense can't be"),
        ({"type": "sql", "uri": "@nowhere"}, "the catalogue's uri can't be read from nowhere: No such file"),
    ],
)
def test_an_unusable_catalogue(tmp_path: Path, catalogue: dict[str, str], text: str) -> None:
    raised = refused(tmp_path, kind="iceberg", catalogue=catalogue)
    assert text in raised
    assert "hunter22" not in raised


def test_a_replay_ends_before_files_that_are_being_moved_into_place(tmp_path: Path) -> None:
    """Rows that appear later between replayed positions would be skipped."""
    names = [f"batch-x-000000000001-000{number}-{10 * number}-{10 * number + 9}-10.parquet" for number in range(4)]
    moves = [(f"staged/{name}", f"messages/queue=a/{name}") for name in names[1:]]
    (tmp_path / "messages" / "queue=a").mkdir(parents=True)
    for name in (names[0], names[3]):
        (tmp_path / "messages" / "queue=a" / name).touch()
    replay = Replay(None, BrokerSource({}), str(tmp_path), "one")  # type: ignore[arg-type]
    assert replay._end(ReplayChoice()) == 39
    ledger = Lake(tmp_path, "archive-messages")
    ledger.hidden.mkdir(parents=True)
    ledger._write(BatchMark("x", 1, moves, 40, False, {}))
    assert replay._end(ReplayChoice()) == 9
