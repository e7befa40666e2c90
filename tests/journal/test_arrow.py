"""The views of messages and events: they show every published message, in types that Spark reads directly."""

from __future__ import annotations

from array import array
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.journal.errors import JournalDamaged
from penstock.journal.files.follower import JournalReader
from penstock.journal.files.log import FileLog
from penstock.journal.views import arrow
from penstock.schema import FOREVER, Kind, Reason
from support.batches import NOW, Rowset, acknowledged, published
from support.folders import SMALL, Life, QuickDisk
from support.retaining import retain

#: The Arrow equivalents of the Spark types that we use.
SPARK_TYPES = {
    pa.int32(),
    pa.int64(),
    pa.string(),
    pa.binary(),
    pa.timestamp("us", tz="UTC"),
    pa.decimal128(20, 0),
}
SECOND = 1_000_000


def rows(reader: JournalReader, view: str, start: int = 1, stop: int | None = None, **options: Any) -> list[Any]:
    return [row for batch in arrow.read(reader, view, start, stop, **options) for row in batch.to_pylist()]


def expected(position: int, fields: dict[str, Any], identity: int) -> dict[str, Any]:
    """Return the row of a message, derived from the batch that the engine staged."""
    retries = fields.get("retries", FOREVER)
    return {
        "position": position,
        "id": fields.get("asked_id") or identity.to_bytes(8, "big") + position.to_bytes(8, "big"),
        "namespace": "default",
        "queue": fields["name"],
        "payload": fields.get("payload", b""),
        "published_at": fields["at"],
        "expires_at": fields.get("expires_at") or None,
        "priority": Decimal(fields.get("priority", 0)),
        "retries": None if retries == FOREVER else retries,
        "protocol": fields["source"].split()[0].decode(),
        "correlation_id": fields.get("correlation_id") or None,
        "request_id": fields.get("request_id") or None,
        "source_info": fields["source_info"].decode() if fields.get("source_info") else None,
    }


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its times in microseconds, as in the journal."""
    return {k: round(v.timestamp() * 1_000_000) if hasattr(v, "timestamp") else v for k, v in row.items()}


@pytest.mark.parametrize("seed", range(6))
def test_messages_match_the_published_ones(seed: int, tmp_path: Path) -> None:
    """Through random clients, rolls, restarts, retention and compaction."""
    life = Life(tmp_path, seed, age=60 * SECOND).run(300)
    retain(life.opened.upkeep, life.workload.now)
    life.run(200)
    life.kill()
    life.restart()
    life.run(200)
    reader = JournalReader(tmp_path)
    wanted = {at: fields for at, fields in life.published.items() if at >= reader.earliest}
    assert reader.earliest > 1
    assert len(wanted) > 100
    found = {row["position"]: plain(row) for row in rows(reader, "messages", reader.earliest)}
    assert found == {at: expected(at, fields, reader.identity) for at, fields in wanted.items()}


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path, 7).run(400)


@pytest.fixture
def reader(life: Life) -> JournalReader:
    return JournalReader(life.folder)


class TestSchema:
    @pytest.mark.parametrize("view", ["messages", "events"])
    def test_every_type_is_a_spark_type(self, view: str) -> None:
        assert {field.type for field in arrow.schema(view)} <= SPARK_TYPES
        assert all(field.nullable for field in arrow.schema(view))

    @pytest.mark.parametrize("view", ["messages", "events"])
    def test_batches_have_the_schema_exactly(self, reader: JournalReader, view: str) -> None:
        for batch in arrow.read(reader, view, 1):
            batch.validate(full=True)
            assert batch.schema.equals(arrow.schema(view), check_metadata=True)

    def test_columns_come_in_the_requested_order(self, reader: JournalReader) -> None:
        batch = next(arrow.read(reader, "messages", 1, columns=["queue", "position"]))
        assert batch.schema.names == ["queue", "position"]

    def test_unknown_columns_and_views_are_refused_with_the_known_ones(self, reader: JournalReader) -> None:
        with pytest.raises(ValueError, match="messages has no column size; it has position, id"):
            arrow.read(reader, "messages", 1, columns=["size"])
        with pytest.raises(ValueError, match="no view 'live': choose one of messages, events"):
            arrow.read(reader, "live", 1)


class TestRangesAndQueues:
    @pytest.mark.parametrize("view", ["messages", "events"])
    def test_adjacent_ranges_add_up_to_the_whole(self, reader: JournalReader, view: str) -> None:
        latest = reader.latest
        cuts = [1, 2, 3, 50, 51, latest // 2, latest - 1, latest, latest]
        parts = [rows(reader, view, a, b) for a, b in pairwise(cuts)]
        assert [row for part in parts for row in part] == rows(reader, view)

    def test_an_empty_range_has_no_batches(self, reader: JournalReader) -> None:
        assert list(arrow.read(reader, "events", reader.latest)) == []

    @pytest.mark.parametrize("view", ["messages", "events"])
    def test_queues_by_number_and_by_name(self, reader: JournalReader, view: str) -> None:
        whole = rows(reader, view)
        by_number = rows(reader, view, queues={1, 3})
        by_name = rows(reader, view, queues=lambda name: name.queue in ("q0", "q2"))
        assert by_name == [row for row in whole if row["queue"] in ("q0", "q2")]
        known = {row["position"] for row in by_number}
        assert known <= {row["position"] for row in by_name}  # recreated queues have new numbers
        assert rows(reader, view, queues=()) == []

    def test_a_queue_that_was_created_in_the_middle_of_a_segment_has_its_name(self, tmp_path: Path) -> None:
        life = Life(tmp_path / "x", 1)
        engine, now = life.opened.engine, life.workload.now
        life.commit()
        late = engine.broker.create_queue("default", "late", now)
        life.commit()
        engine.broker.publish(engine.broker.connect(99, b"sspq here"), late, [b"x"], now)
        life.commit()
        position = next(iter(life.published))
        assert rows(JournalReader(tmp_path / "x"), "messages", position)[0]["queue"] == "late"


class TestEvents:
    def test_kinds_and_order(self, life: Life, reader: JournalReader) -> None:
        found = rows(reader, "events")
        assert [row["position"] for row in found] == sorted(row["position"] for row in found)
        kinds = {row["kind"] for row in found}
        assert {"published", "started", "queue_created", "namespace_created"} <= kinds
        assert kinds <= {kind.name.lower() for kind in Kind} - {"carried", "catalogue", "held"}

    def test_carried_messages_are_not_shown(self, tmp_path: Path) -> None:
        life = Life(tmp_path / "x", 3, age=30 * SECOND).run(300)
        retain(life.opened.upkeep, life.workload.now)
        carried = any(Kind.CARRIED in block.kinds for block in life.opened.engine.log.read(1))
        assert carried
        reader = JournalReader(tmp_path / "x")
        found = rows(reader, "events", reader.earliest)
        assert "carried" not in {row["kind"] for row in found}
        shown = {row["position"] for row in rows(reader, "messages", reader.earliest)}
        assert shown == {at for at in life.published if at >= reader.earliest}

    def test_events_can_be_joined_to_their_message(self, life: Life, reader: JournalReader) -> None:
        messages = {row["position"]: row for row in rows(reader, "messages")}
        for row in rows(reader, "events"):
            if row["message"] is not None:
                own = reader.identity.to_bytes(8, "big") + row["message"].to_bytes(8, "big")
                assert row["message_id"] == own
                assert row["message"] in messages
            else:
                assert row["message_id"] is None
            if row["kind"] == "published":
                assert row["payload_size"] == len(messages[row["position"]]["payload"])
                assert row["deliveries"] is None
            else:
                assert row["payload_size"] is None
            counted = ("purged", "dead_purged", "leased", "lease_ended", "written")
            assert (row["count"] is not None) == (row["kind"] in counted)

    def test_reasons_and_peers(self, reader: JournalReader) -> None:
        found = rows(reader, "events")
        assert {row["reason"] for row in found if row["kind"] == "dead"} <= {reason.name.lower() for reason in Reason}
        by_peer = {row["peer"] for row in found if row["protocol"] == "phpmq"}
        assert by_peer
        assert all(peer.startswith("127.0.0.1:") for peer in by_peer)
        assert {row["peer"] for row in found if row["protocol"] == "penstock"} == {None}


def span(batch: Rowset) -> range:
    return range(batch.first, batch.end)


def alike(reader: JournalReader, batch: Rowset, number: int, position: int) -> dict[str, Any]:
    """Return the row of a message of a batch with constant columns and an unknown queue."""
    given = dict.fromkeys(["expires_at", "priority", "retries"], number + 1) if number % 2 else {}
    fields = {
        "name": None,
        "at": NOW + number,
        "payload": b"%d" % number,
        "source": batch.sources[0] or b"? ?",
        **given,
    }
    row = expected(position, fields, reader.identity) | {"namespace": None}
    return row if batch.sources[0] else row | {"protocol": None}


class TestBatches:
    def fill(self, folder: Path, batches: list[Any]) -> JournalReader:
        log = FileLog(QuickDisk(folder), SMALL)
        log.seal(1)
        for batch in batches:
            log.append(batch, log.end, 1)
        log.close()
        return JournalReader(folder)

    def test_tiny_blocks_are_combined(self, tmp_path: Path) -> None:
        reader = self.fill(tmp_path, [published(at, [b"x%d" % at]) for at in range(1, 9001)])
        sizes = [batch.num_rows for batch in arrow.read(reader, "messages", 1)]
        assert sizes == [8192, 808]
        payloads = [row["payload"] for row in rows(reader, "messages", columns=["payload"])]
        assert payloads == [b"x%d" % at for at in range(1, 9001)]

    def test_large_blocks_are_split(self, tmp_path: Path) -> None:
        reader = self.fill(tmp_path, [published(1, [b""] * 150_000)])
        sizes = [batch.num_rows for batch in arrow.read(reader, "messages", 1)]
        assert sizes == [65_536, 65_536, 18_928]

    def test_payloads_of_a_large_block_are_not_copied(self, tmp_path: Path) -> None:
        reader = self.fill(tmp_path, [published(1, [bytes(10_000)] * 1000)])
        before = pa.total_allocated_bytes()
        batch = next(arrow.read(reader, "messages", 1))
        assert batch.num_rows == 1000
        assert pa.total_allocated_bytes() - before < 1_000_000

    def test_large_payloads_stay_below_the_limit(self, tmp_path: Path) -> None:
        reader = self.fill(tmp_path, [published(1 + 8 * n, [bytes(2_000_000)] * 8) for n in range(9)])
        sizes = [sum(map(len, batch.column("payload").to_pylist())) for batch in arrow.read(reader, "messages", 1)]
        assert sizes == [64_000_000, 64_000_000, 16_000_000]

    def test_constant_columns_may_differ_from_batch_to_batch(self, tmp_path: Path) -> None:
        """Whole blocks with one value for all rows, single and combined; and split ones."""
        batches, end = [], 1
        for number, size in enumerate([8200, 8200, 8300, 100, 4100, 4100]):
            batch = published(end, [b"%d" % number] * size, at=NOW + number)
            batch.sources = [(b"sspq 1", b"kokaq 2", b"")[number % 3]]
            if number % 2:
                fields = {"expires_at": "q", "priority": "Q", "retries": "B"}
                batch.columns |= {name: array(sort, [number + 1] * size) for name, sort in fields.items()}
            batches.append(batch)
            end = batch.end
        reader = self.fill(tmp_path, batches)
        found = [plain(row) for row in rows(reader, "messages", 500, end - 50)]
        wanted = [alike(reader, batch, number, at) for number, batch in enumerate(batches) for at in span(batch)]
        assert found == wanted[499:-50]

    def test_payload_bytes_are_not_read_unless_requested(self, tmp_path: Path) -> None:
        self.fill(tmp_path, [published(1, [b"secret" * 100] * 10), acknowledged(11, [1, 2])])
        segment = next(tmp_path.glob("*.seg"))
        raw = segment.read_bytes()
        segment.write_bytes(raw.replace(b"secret", b"SECRET", 1))
        reader = JournalReader(tmp_path)
        assert len(rows(reader, "events")) == 12
        without = [name for name in arrow.MESSAGES.names if name != "payload"]
        assert len(rows(reader, "messages", columns=without)) == 10
        with pytest.raises(JournalDamaged, match="byte 64: the body's checksum is wrong"):
            rows(reader, "messages")

    def test_wrong_offsets_are_detected_without_the_checksum(self, tmp_path: Path) -> None:
        self.fill(tmp_path, [published(1, [b"12345678"] * 4)])
        segment = next(tmp_path.glob("*.seg"))
        offsets = b"".join(at.to_bytes(4, "little") for at in (0, 8, 16, 24, 32))
        bent = b"".join(at.to_bytes(4, "little") for at in (0, 8, 2**30, 24, 32))
        raw = segment.read_bytes()
        assert offsets in raw
        segment.write_bytes(raw.replace(offsets, bent))
        with pytest.raises(JournalDamaged, match="offsets of column payload are out of order"):
            rows(JournalReader(tmp_path), "events")
