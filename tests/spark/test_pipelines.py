"""The pipelines from end to end: a real broker, a real Spark, and independent readers."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.client import connect
from penstock.journal.files.follower import JournalReader
from penstock.journal.views import arrow
from penstock.spark.lake.batches import Lake
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import Store
from penstock.spark.lake.tables import data_files
from penstock.spark.pipelines import windows
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive import options as archive_options
from penstock.spark.pipelines.archive.payloads import Decoding, pack
from penstock.spark.pipelines.decode import main as decode
from penstock.spark.pipelines.insight import main as insight_main
from penstock.spark.pipelines.insight import sums
from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE
from penstock.spark.pipelines.replay import Replay, ReplayChoice
from penstock.spark.pipelines.run import BrokerSource, PipelineFailed, PipelineProgress, RunControl, take_lag
from penstock.wire import kokaq, phpmq, sspq
from support.history import Plain
from support.packets import ACK, SYN, Listener, Talk, ethernet, packet, pcap
from support.sparks import SparkBroker
from support.tables import by_pandas, frame_by_spark, positions, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = 1_767_268_800.0


def source(broker: SparkBroker) -> BrokerSource:
    return BrokerSource({"endpoint": broker.endpoint})


def until(
    run: Callable[[RunControl], PipelineProgress], enough: Callable[[PipelineProgress], bool]
) -> PipelineProgress:
    """Run continuously, and stop when enough is done."""
    stop = threading.Event()

    def report(progress: PipelineProgress) -> None:
        if enough(progress):
            stop.set()

    return run(RunControl(seconds=0, stop=stop, report=report))


# ------------------------------------------------------------------------------------------------------------ archive


def test_archive_once_then_continuously_restarted_and_compacted(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker, lake, now = new_broker(), tmp_path / "lake", [NOON]
    options = archive_options.ArchiveOptions(clock=lambda: now[0])

    def run(how: RunControl) -> PipelineProgress:
        return archive_main.run(spark, source(broker), str(lake), options, how)

    broker.publish("jobs", *[b"one"] * 500)
    broker.publish("7", b"looks like a number")
    assert run(RunControl(once=True)).rows == 501
    assert run(RunControl(once=True)).rows == 0
    broker.publish("jobs", *[b"two"] * 100)
    assert until(run, lambda progress: progress.rows >= 100).rows == 100
    now[0] += 3600
    broker.publish("jobs", b"three")
    assert run(RunControl(once=True)).rows == 1
    found = positions(spark, lake, "messages")
    assert len(found) == len(set(found)) == 602
    assert len(data_files(Store(lake), "messages")) == 1
    assert {row["queue"] for row in read_table(spark, lake, "messages").select("queue").distinct().collect()} == {
        "jobs",
        "7",
    }
    # The clock is set back: files are placed in the hour of the clock.
    # The checkpoint is lost as well: the run continues after the lake's last row.
    now[0] -= 7200
    shutil.rmtree(lake / "_penstock" / "archive-messages" / "checkpoint")
    broker.publish("jobs", b"four")
    assert run(RunControl(once=True)).rows == 1
    assert set(by_pandas(lake, "messages", "hour")) == {"11", "12", "13"}
    assert len(set(by_pandas(lake, "messages"))) == 603
    shutil.rmtree(lake / "_penstock" / "archive-messages" / "checkpoint")
    with pytest.raises(LakeError, match="has messages of another journal than the broker's"):
        archive_main.run(spark, source(new_broker("other")), str(lake), options, RunControl(once=True))
    # All state about the table is lost, except the table itself.
    shutil.rmtree(lake / "_penstock")
    assert run(RunControl(once=True)).rows == 0
    assert len(by_pandas(lake, "messages")) == 603


def test_archive_decodes_grows_and_quarantines(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker, lake = new_broker(), tmp_path / "lake"
    inferring = archive_options.ArchiveOptions(table="orders", format="json", schema="infer")

    def run(options: archive_options.ArchiveOptions) -> int:
        return archive_main.run(spark, source(broker), str(lake), options, RunControl(once=True)).rows

    broker.publish("orders", b"no json", b"{}", b"[]")  # not a schema
    assert run(inferring) == 3
    broker.publish("orders", b'{"id": 1}', b'{"id": "two"}', b'{"id": 3}')
    assert run(inferring) == 3
    broker.publish("orders", b'{"id": 4, "name": "x"}', b'{"id": 5.5}')
    assert run(inferring) == 2
    table = frame_by_spark(spark, lake, "orders").orderBy("position")
    assert [tuple(row) for row in table.select("value.id", "value.name").collect()] == [
        (None, None),
        (1, None),
        (3, None),
        (4, "x"),
    ]
    bad = DeltaTable(lake / "orders_quarantine").to_pandas().sort_values("position")
    assert [bytes(payload) for payload in bad["payload"]] == [b"no json", b"[]", b'{"id": "two"}', b'{"id": 5.5}']
    assert [reason.partition(":")[0] for reason in bad["reason"]] == [
        "not JSON",
        "value is an array, not an object",
        "value.id is 'two', not a whole number",
        "value.id is 5.5, not a whole number",
    ]
    with pytest.raises(LakeError, match="has been written with format json, not raw"):
        run(archive_options.ArchiveOptions(table="orders"))
    with pytest.raises(LakeError, match=r"column value\.id of the table is int64"):
        run(archive_options.ArchiveOptions(table="orders", format="json", schema="id string, name string"))
    broker.publish("orders", b'{"id": 6, "name": "y", "more": true}')
    assert (
        run(archive_options.ArchiveOptions(table="orders", format="json", schema="id long, name string, more boolean"))
        == 1
    )
    for wrong in ("json", "csv"):
        with pytest.raises(ValueError, match="needs a schema"):
            run(archive_options.ArchiveOptions(table="other", format=wrong))
    with pytest.raises(ValueError, match="can't be understood"):
        run(archive_options.ArchiveOptions(table="other", format="json", schema="id lnog"))


ODD_NAMES = [
    "a=b",
    "50%",
    "100%25",
    "x/y",
    "späße ☃",
    "with space",
    "..",
    ".hidden",
    "_under",
    "q'\"#*:?\\{}[]^",
    "1e5",
]


def test_archive_of_queues_with_odd_names(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker, lake = new_broker(), tmp_path / "lake"
    long = ["x" * 255, "=" * 100, "☃" * 84, "x" * 249]
    for name in [*ODD_NAMES, *long]:
        broker.publish(quote(name, safe=""), b"\0" + name.encode())
    for kind, name in (("parquet", "messages"), ("delta", "whole")):
        options = archive_options.ArchiveOptions(kind=kind, table=name)
        archive_main.run(spark, source(broker), str(lake), options, RunControl(once=True))
    assert set(by_pandas(lake, "whole", "queue")) == {*ODD_NAMES, *long}
    table = read_table(spark, lake, "messages")
    names = {bytes(row["payload"])[1:].decode(): row["queue"] for row in table.select("payload", "queue").collect()}
    assert {name: names[name] for name in [*ODD_NAMES, long[3]]} == {name: name for name in [*ODD_NAMES, long[3]]}
    for name in long[:3]:
        assert names[name][:41] == f"{name[:40]}~"
    text = "hive_partitioning=true, hive_types_autocast=false"
    query = f"select distinct queue from read_parquet('{lake}/messages/**/*.parquet', {text})"
    assert {row[0] for row in duckdb.connect().execute(query).fetchall()} == set(names.values())
    assert set(map(str, pd.read_parquet(lake / "messages")["queue"])) == set(names.values())
    with pytest.raises(PipelineFailed, match=r"has only a part of the name default/xxxx.*: name the target with --to"):
        Replay(spark, source(broker), str(lake), "own").run(ReplayChoice(), None, RunControl())
    broker.publish("all")
    done = Replay(spark, source(broker), str(lake), "elsewhere").run(ReplayChoice(to="default/all"), None, RunControl())
    assert done.rows == len([*ODD_NAMES, *long])


# ------------------------------------------------------------------------------------------------------------ insight


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [
        row for file in sorted(folder.rglob("*.parquet")) for row in pq.read_table(file, partitioning=None).to_pylist()
    ]


def _position(lake: Path) -> int:
    last = Lake(lake, "insight").last()
    return 0 if last is None else last.position


def test_insight_matches_the_journal(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker, lake = new_broker(), tmp_path / "lake"

    def run(how: RunControl) -> PipelineProgress:
        return insight_main.run(spark, source(broker), str(lake), insight_main.InsightOptions(report_seconds=0), how)

    broker.publish("jobs", *[b"x" * 10] * 300)
    broker.take("jobs")
    assert run(RunControl(once=True)).rows > 600
    broker.publish("jobs", *[b"y"] * 20)
    before = len(broker.take("jobs"))
    with connect(broker.url("phpmq", "/jobs")) as client:
        client.publish(b"soon over", ttl=1)
        client.publish(b"rejected")
        time.sleep(1.2)
        for message in client.consume(idle=0.5):
            message.reject()
    assert before == 20
    end = broker.status().latest
    until(run, lambda _: _position(lake) >= end)
    reader = JournalReader(str(broker.folder / "data"))
    plain = Plain(pa.Table.from_batches(list(arrow.read(reader, "events", reader.earliest))))
    queues = {
        (row["namespace"], row["queue"], round(row["minute"].timestamp() * 1e6) // MINUTE): row
        for row in _rows(lake / "insight" / "queues")
    }
    assert len(queues) == len(_rows(lake / "insight" / "queues"))
    for key, counts, (depth, dead, _) in plain.rows():
        assert {name: queues[key][name] for name in COUNTS} == {name: counts[name] for name in COUNTS}
        assert (queues[key]["depth"], queues[key]["dead_depth"]) == (depth, dead)
    reasons = sum(row["messages"] for row in _rows(lake / "insight" / "dead_letters"))
    assert reasons == sum(plain.reasons.values()) == 2
    page = (lake / "insight" / "report.html").read_text()
    assert "default/jobs" in page
    assert not re.findall(
        r"""\b(?:src\s*=\s*["']|href\s*=\s*["'](?!#))|@import|\burl\(""", page
    )  # no external resources


def test_insight_stopped_in_its_first_batch_reports_it_and_writes_no_empty_report(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, lake = new_broker(), tmp_path / "lake"
    broker.publish("jobs", *[b"x"] * 100)
    options = insight_main.InsightOptions(report_seconds=0)
    shown: list[str] = []

    def endless(summed: DataFrame) -> sums.Parts:
        summed.sparkSession.range(10**17).selectExpr("max(id)").collect()
        raise AssertionError("it was not stopped")

    def in_the_batch(progress: PipelineProgress) -> bool:
        shown.append(progress.doing)
        return progress.doing.startswith("batch 0: ") and progress.tasks > 0

    monkeypatch.setattr(sums, "collect", endless)
    stopped = until(lambda how: insight_main.run(spark, source(broker), str(lake), options, how), in_the_batch)
    monkeypatch.undo()
    assert (stopped.rows, stopped.batches, stopped.done) == (0, 0, False)
    assert shown[-2].startswith("batch 0: ")
    report = lake / "insight" / "report.html"
    assert not report.exists()
    assert insight_main.run(spark, source(broker), str(lake), options, RunControl(once=True)).done
    assert "default/jobs" in report.read_text()


# ------------------------------------------------------------------------------------------------------------- replay


def test_replay_from_archive_and_journal_exactly_once_despite_interruptions(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1000)  # so that several exist
    broker, lake = new_broker(), tmp_path / "lake"
    broker.publish("jobs", *[b"%d" % number for number in range(100)])
    archive_main.run(spark, source(broker), str(lake), archive_options.ArchiveOptions(), RunControl(once=True))
    choice = ReplayChoice(where="cast(payload as string) != '7'", to="default/again", create=True, chunk_rows=10)

    def replay(name: str, chosen: ReplayChoice, how: RunControl, rate: float | None = None) -> PipelineProgress:
        return Replay(spark, source(broker), str(lake), name).run(chosen, rate, how)

    first = until(lambda how: replay("one", choice, how), lambda progress: progress.rows >= 30)
    assert (first.rows, first.total_rows, first.done) == (30, 99, False)
    # As if it had been killed before it could record the third chunk.
    state = lake / "_penstock" / "replay-one" / "state.json"
    known = json.loads(state.read_text())
    earlier = sorted(int(payload) for payload in range(100) if payload != 7)[19]
    positions = read_table(spark, lake, "messages").where(f"cast(payload as string) = '{earlier}'").select("position")
    state.write_text(json.dumps({**known, "chunk": 2, "rows": 20, "position": positions.collect()[0][0]}))
    assert replay("one", choice, RunControl()).done
    assert [int(payload) for payload in broker.take("again")] == [number for number in range(100) if number != 7]
    again = replay("one", choice, RunControl())
    assert (again.rows, again.before_rows, again.total_rows, again.done) == (0, 99, 99, True)
    with pytest.raises(LakeError, match="was started with other messages"):
        replay("one", ReplayChoice(to="default/again"), RunControl())
    start = positions.collect()[0][0]
    journal = ReplayChoice(
        table="", queue="default/jobs", from_position=start, to_position=start + 5, to="default/again"
    )
    began = time.monotonic()
    assert replay("two", journal, RunControl(), rate=20).rows == 5
    assert time.monotonic() - began >= 0.2
    assert [int(payload) for payload in broker.take("again")] == list(range(earlier, earlier + 5))
    with pytest.raises(ValueError, match=r"the filter can't be understood: .*nosuch"):
        replay("three", ReplayChoice(where="nosuch = 1", to="default/again"), RunControl())
    with pytest.raises(LakeError, match="there is no table other"):
        replay("four", ReplayChoice(table="other", to="default/again"), RunControl())


# ------------------------------------------------------------------------------------------------------------- decode


def test_decode_of_real_traffic_equals_the_codecs(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker = new_broker()
    captures = tmp_path / "captures"
    captures.mkdir()
    expected = 0
    packets: list[bytes] = []
    decoders: dict[str, tuple[Any, Any, Any]] = {
        "phpmq": (phpmq.ServerDecoder, phpmq.ClientDecoder, phpmq.singles),
        "sspq": (sspq.Decoder, sspq.Decoder, sspq.singles),
        "kokaq": (kokaq.ServerDecoder, kokaq.ClientDecoder, kokaq.singles),
    }
    for port, (protocol, (server, client, singles)) in enumerate(decoders.items(), 9000):
        with Listener(broker.addresses[protocol]) as listener:
            path = {"phpmq": "/talk", "sspq": "", "kokaq": "/default/talk"}[protocol]
            with connect(f"{protocol}://{listener.address}{path}") as talker:
                talker.publish_many([b"hello %d" % number for number in range(20)])
                for message in talker.consume(idle=0.3):
                    message.ack()
        sides = {True: listener.side(True), False: listener.side(False)}
        for is_client, decoder in ((True, server()), (False, client())):
            expected += len(list(singles(decoder.feed(sides[is_client]))))
            assert decoder.error is None
            (captures / f"{protocol}-{'asked' if is_client else 'said'}.bin").write_bytes(sides[is_client])
        done = {True: 0, False: 0}
        talks = [Talk(True, 0, b"", SYN), Talk(False, 0, b"", SYN | ACK)]
        for number, is_client, data in listener.said:
            assert number == 0
            talks += [Talk(is_client, done[is_client] + at, data[at : at + 1400]) for at in range(0, len(data), 1400)]
            done[is_client] += len(data)
        packets += [ethernet(packet(talk, ports=(40000, port))) for talk in talks]
    (captures / "all.pcap").write_bytes(pcap(packets))
    (captures / "garbled.bin").write_bytes(b"\x55\x99\x5e\x03\0\0\0\x01x" + b"garbage!")
    output = tmp_path / "frames"
    found = decode.run(spark, decode.find_files([str(captures)]), decode.DecodeOptions(payloads=True), str(output))
    assert (found.frames, found.errors, found.whole) == (2 * expected + 1, 1, True)
    table = spark.read.parquet(str(output))
    by_kind = {tuple(row)[:2]: row["count"] for row in table.groupBy("protocol", "type").count().collect()}
    assert by_kind["phpmq", "PUBLISH"] == by_kind["phpmq", "ACKNOWLEDGE"] == 40
    assert table.where("code = 'bad-magic' and offset = 9 and length = 8").count() == 1
    stop = threading.Event()
    stop.set()
    before = sorted(output.iterdir())
    assert not decode.run(spark, [str(captures)], decode.DecodeOptions(), str(output), RunControl(stop=stop)).whole
    assert sorted(output.iterdir()) == before
    again = decode.run(spark, [str(captures / "garbled.bin")], decode.DecodeOptions(), str(output))
    assert (again.frames, again.errors) == (1, 1)
    with pytest.raises(LakeError, match="contains something other"):
        decode.run(spark, [str(captures / "garbled.bin")], decode.DecodeOptions(), str(captures))


@pytest.mark.parametrize("reported", [None, "null", "{}", "nonsense", '{"lagMessages": 7, "lagSeconds": 1.5}'])
def test_lag_is_reported_by_the_source(reported: str | None) -> None:
    progress = PipelineProgress()
    take_lag({"sources": [{"latestOffset": reported}]}, progress)
    take_lag(None, progress)
    assert progress.lag_rows == (7 if reported and "lag" in reported else None)


def test_payload_options_are_checked_before_anything_runs() -> None:
    Decoding("json", pack(pa.struct([("id", pa.int64())]))).reader()
    with pytest.raises(ValueError, match="is not a valid table name"):
        archive_options.lake_of("lake", archive_options.ArchiveOptions(table="../up"))
