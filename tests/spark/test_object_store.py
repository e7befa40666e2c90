"""Tables of the archive in an object store whose requests fail, hang for a while, or lose their responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.spark.errors import StoreFailed
from penstock.spark.lake import files
from penstock.spark.lake import store as store_module
from penstock.spark.lake.batches import BatchMark
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import S3Options, Store, s3_options
from penstock.spark.lake.table_formats import FORMATS
from penstock.spark.lake.tables import Table, catalogue_options, data_files, open_table
from penstock.spark.pipelines.archive import options as archive_options
from penstock.spark.pipelines.archive.options import ArchiveOptions
from penstock.spark.pipelines.replay import Replay, ReplayChoice
from penstock.spark.pipelines.run import BrokerSource, RunControl
from spark.test_archive_option import KEEPING, archive, drop_before, fill, history, rows_in_journal
from support.archives import ArchiveRun
from support.failing_proxy import failing_proxy
from support.objectstore import (
    BUCKET,
    KEY,
    READ_KEY,
    READ_SECRET,
    SECRET,
    ObjectStore,
    object_store,
)
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as found:
        yield found


def options_of(url: str, key: str = KEY, secret: str = SECRET) -> dict[str, str]:
    return {"endpoint": url, "key": key, "secret": secret}


def rows_of(kind: str, table: str, store: ObjectStore, state: Path, lake: str) -> list[pa.Table]:
    """The rows read by two independent readers each."""
    url = f"s3://{BUCKET}/{lake}/{table}"
    known = Store(url, S3Options(store.url, "", KEY, SECRET))
    if kind == "delta":
        options = {name: value for name, value in known.delta_options().items() if name.startswith("AWS_")}
        return [
            DeltaTable(url, storage_options=options).to_pyarrow_table(columns=["position"]),
            pl.read_delta(url, storage_options=options).select("position").to_arrow(),
        ]
    if kind == "iceberg":
        where = f"sqlite:///{state}/iceberg.db"
        catalogue = load_catalog("penstock", type="sql", uri=where, **known.iceberg_options())
        scan = catalogue.load_table(f"lake.{table}").scan().select("position")
        found = [scan.to_arrow(), scan.to_polars().to_arrow()]
        catalogue.close()
        return found
    files = ds.dataset(f"{BUCKET}/{lake}/{table}", filesystem=store.filesystem(), partitioning="hive")
    rows = duckdb.connect().execute("select position from files").fetchall()
    return [files.to_table(["position"]), pa.table({"position": [row[0] for row in rows]})]


def positions_of(kind: str, store: ObjectStore, state: Path, lake: str) -> list[list[int]]:
    """The positions in both tables, for either reader."""
    tables = [rows_of(kind, name, store, state, lake) for name in ("orders", "orders_quarantine")]
    return [
        sorted(row for table in found for row in table.column("position").to_pylist())
        for found in zip(*tables, strict=True)
    ]


#: What goes wrong, once each: data files, moves and removals, and the commits themselves. An answer that is lost is to
#: a request that the store has done.
PLAN = [
    ("lose", r"P\w+ .*/batch-.*\.parquet"),
    ("refuse", r"P\w+ .*/batch-.*\.parquet"),
    ("delay", r"P\w+ .*/batch-.*\.parquet"),
]
COMMITS = {
    "delta": [("lose", "PUT .*/_delta_log/0+0.json"), ("refuse", "PUT .*/_delta_log/0+1.json")],
    "iceberg": [("lose", r"P\w+ .*metadata.json"), ("refuse", r"P\w+ .*\.avro")],
    "parquet": [
        ("refuse", "PUT /lake/parquet/orders/"),
        ("lose", "PUT /lake/parquet/orders/"),
        ("lose", "DELETE .*/staging/"),
    ],
}


@pytest.mark.parametrize("kind", FORMATS)
def test_batches_in_a_store_that_fails_now_and_then(
    spark: SparkSession,
    tmp_path: Path,
    store: ObjectStore,
    capfd: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    with failing_proxy(store.port, PLAN + COMMITS[kind]) as front:
        lake = f"s3://{BUCKET}/{kind}"
        run = ArchiveRun(spark, lake, kind=kind, store=options_of(front.url), state=str(tmp_path))
        run.batch(0)
        run.start()
        run.batch(0)
        run.now += 24 * 3600
        run.batch(1)
    assert front.left == []
    assert positions_of(kind, store, tmp_path, kind) == [list(range(20))] * 2
    there = Store(lake, S3Options(store.url, "", KEY, SECRET))
    listed = data_files(there, "orders", archive_options.catalogue_of(run.lake, run.options))
    assert sum(file.rows for file in listed) == 15
    assert SECRET not in "".join(capfd.readouterr())
    assert SECRET not in plans(spark)


def plans(spark: SparkSession) -> str:
    """Everything that Spark's web pages would show of queries, and its settings."""
    jvm: Any = spark
    executions = jvm._jsparkSession.sharedState().statusStore().executionsList()
    shown = [executions.apply(at).physicalPlanDescription() for at in range(executions.size())]
    assert any("MapInArrow" in plan for plan in shown)
    return "\n".join([*shown, str(spark.sparkContext.getConf().getAll())])


def test_a_rest_catalogue(tmp_path: Path, store: ObjectStore) -> None:
    """A separate catalogue with its own rights keeps metadata elsewhere. Data files are in the lake."""
    catalogue = store.catalogue("tables")
    (tmp_path / "credential").write_text(catalogue["credential"])
    options = catalogue_options({**catalogue, "credential": f"@{tmp_path}/credential"}.items())
    lake = Store(f"s3://{BUCKET}/rest", S3Options(store.url, "", KEY, SECRET))
    columns = pa.schema({"position": pa.int64(), "date": pa.string()})
    for number in range(2):
        table = open_table("iceberg", lake, "orders", options)
        assert (table.exists(), table.has("query", number)) == (number > 0, False)
        table.begin("journal")
        mark = BatchMark("query", number, [], 10 * (number + 1), True, {"identity": "journal"})
        written = write_rows(lake, table, columns, range(10 * number, 10 * (number + 1)))
        table.commit(written, columns, mark)
        table.commit(written, columns, mark)
        columns = columns.append(pa.field("more", pa.string()))
    assert [(each.first, each.last) for each in data_files(lake, "orders", options)] == [(0, 9), (10, 19)]
    known = load_catalog("any", **catalogue, **lake.iceberg_options()).load_table("lake.orders")
    assert sorted(known.scan().to_arrow().column("position").to_pylist()) == list(range(20))
    assert known.location() == "s3://tables/lake/orders"
    wrong = catalogue_options({**catalogue, "credential": "penstock-key:hunter22"}.items())
    with pytest.raises(LakeError, match="the catalogue penstock of type rest can't be used") as raised:
        open_table("iceberg", lake, "orders", wrong).exists()
    assert "hunter22" not in str(raised.value)


def write_rows(lake: Store, table: Table, columns: pa.Schema, numbers: range) -> list[files.DataFile]:
    """Write rows as a task does."""
    values = {"position": pa.array(numbers, pa.int64()), "date": pa.array(["2026-01-01"] * len(numbers))}
    rows = [values.get(field.name, pa.nulls(len(numbers), field.type)) for field in columns]
    with files.TaskWriter(lake, {table.name: table.layout(columns, "batch", "")}) as writer:
        writer.add(table.name, pa.RecordBatch.from_arrays(rows, schema=columns))
        return [file for _, file in writer.close()]


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unreachable_store_is_reported_and_the_next_run_continues(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It disappears before files are written, and then before they are committed."""
    lake = f"s3://{BUCKET}/away-{kind}"
    monkeypatch.setattr(store_module, "ATTEMPTS", 2)

    def at(url: str) -> ArchiveRun:
        return ArchiveRun(spark, lake, kind=kind, store=options_of(url), state=str(tmp_path))

    with failing_proxy(store.port, []) as front:
        run = at(front.url)
        run.batch(0)
    if kind == "delta":
        with pytest.raises(LakeError, match=rf"the lake {lake} can't be used: [^\x1b]* Connection refused"):
            run.batch(1)
    if kind == "iceberg":
        columns = pa.schema({"position": pa.int64(), "date": pa.string()})
        with pytest.raises(StoreFailed, match=rf"the store {lake} can't be written to"):
            write_rows(run.tables.table.store, run.tables.table, columns, range(10, 20))
    with failing_proxy(store.port, []) as front, monkeypatch.context() as patch:
        run, real = at(front.url), files.write

        def written(*arguments: Any) -> Any:
            found = real(*arguments)
            front.stop()
            return found

        patch.setattr(files, "write", written)
        with pytest.raises(LakeError, match=rf"the lake {lake} can't be used|table orders\w* can't be written"):
            run.batch(1)
        with pytest.raises(LakeError, match=rf"the lake {lake} can't be written to"):
            Store(lake, run.tables.table.store.options).check()
    again = at(store.url)
    again.batch(1)
    again.batch(2)
    assert positions_of(kind, store, tmp_path, f"away-{kind}") == [list(range(30))] * 2


def test_the_history_before_the_journal(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], store: ObjectStore, tmp_path: Path
) -> None:
    """It is read and replayed with only the right to read."""
    broker, lake = new_broker(journal=KEEPING), f"s3://{BUCKET}/history"
    fill(broker)
    archive(spark, broker, lake, kind="iceberg", store=options_of(store.url), state=str(tmp_path))
    before = rows_in_journal(broker)
    drop_before(broker, before[10]["position"])
    reading = options_of(store.url, READ_KEY, READ_SECRET)
    pairs = ",".join(f"{name}={value}" for name, value in reading.items())
    options = {"archive": lake, "archiveStore": pairs}
    found = broker.read(spark, **options, queue="a", columns="position").collect()
    wanted = [row["position"] for row in history(broker, before) if row["queue"] == "a"]
    assert sorted(row.position for row in found) == wanted
    places = ArchiveOptions(store=reading, state=str(tmp_path))
    replay = Replay(spark, BrokerSource({"endpoint": broker.endpoint}), lake, "again", places)
    assert replay.run(ReplayChoice(queue="default/b", to="default/again", create=True), None, RunControl()).rows == 180


def test_a_missing_right_to_write_is_reported_at_once(tmp_path: Path, store: ObjectStore) -> None:
    options = ArchiveOptions(store=options_of(store.url, READ_KEY, READ_SECRET), state=str(tmp_path))
    lake = archive_options.lake_of(f"s3://{BUCKET}/none", options)
    with pytest.raises(LakeError, match=r"s3://lake/none can't be written to: .*Access ?Denied") as raised:
        lake.store.check()
    for text in (str(raised.value), repr(options), repr(lake.store), repr(lake.store.options)):
        assert READ_SECRET not in text
    assert not store.filesystem().get_file_info(f"{BUCKET}/none").is_file


def test_options_are_also_read_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden\n")
    known = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "r"}
    assert s3_options({}, known) == S3Options("", "r", "k", "s")
    assert s3_options({"secret": f"@{tmp_path}/secret", "key": "other"}, known) == S3Options("", "r", "other", "hidden")
