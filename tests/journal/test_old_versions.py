"""Journals of older format versions (tests/journals): read, checked, gone on with. And what the newer version keeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from journals.make import CORRELATION_ID, DEAD, LATER, NOW, WAITING
from penstock.core.broker import Broker
from penstock.core.policy import SECOND
from penstock.core.properties import Properties
from penstock.core.queue import Queue
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.follower import JournalReader
from penstock.journal.format.block import VERSION
from penstock.journal.format.segment import FOOTER_SIZE, Footer
from penstock.journal.views import arrow
from penstock.server.engine.engine import Engine
from penstock.server.engine.start import Opened
from penstock.server.maintenance.upkeep import Retention
from support.brokers import BrokerProcess
from support.commands import penstock
from support.journals import open_folder
from support.raw import GET, POP, SOURCE, SUCCESS_OK, Kokaq, acknowledge, consume, publish, read_dispatch

JOURNALS = Path(__file__).parents[1] / "journals"
OLD = sorted(JOURNALS.glob("version-*"))
SMALL = OwnerOptions(extent_bytes=4000, reserve=4096, durability=Durability.OS)
TODAY = NOW + 3600 * SECOND


@pytest.fixture(params=OLD, ids=lambda folder: folder.name)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a journal of an older version."""
    return Path(shutil.copytree(request.param, tmp_path / "data"))


def open_at(folder: Path, now: int = TODAY) -> Opened:
    return open_folder(RealDisk(str(folder)), now, SMALL, Retention(age=1), cache_bytes=0, min_free=0)


def queue_of(broker: Broker, name: str) -> Queue:
    queue = broker.queue("default", name)
    assert queue is not None
    return queue


def waiting(engine: Engine) -> list[tuple[str, bytes, int]]:
    """What a consumer would get: queue, payload, when it expires."""
    found = []
    for name in ("jobs", "mails"):
        queue = queue_of(engine.broker, name)
        items = [item for lane in reversed(queue.lanes.values()) for item in lane]
        payloads = engine.payloads([item.position for item in items])
        found += [(name, body, item.expires // SECOND) for body, item in zip(payloads, items, strict=True)]
    return found


def test_there_is_one_of_every_older_version() -> None:
    assert [folder.name for folder in OLD] == [f"version-{number}" for number in range(1, VERSION)]
    for number, folder in enumerate(OLD, 1):
        assert json.loads((folder / "penstock.json").read_text())["format"] == number


def test_it_is_read_without_being_touched(old: Path) -> None:
    before = {file.name: file.read_bytes() for file in old.iterdir()}
    reader = JournalReader(old)
    rows = [row for batch in arrow.read(reader, "messages", reader.earliest) for row in batch.to_pylist()]
    assert {row["payload"] for row in rows} == {body for _, body, _ in WAITING} | {DEAD[1], b"acknowledged"}
    assert {row["source_info"] for row in rows} == {None}
    assert [row["correlation_id"] for row in rows if row["payload"] == b"urgent"] == [CORRELATION_ID]
    assert penstock("journal", "verify", old).code == 0
    assert {file.name: file.read_bytes() for file in old.iterdir() if file.name != "lock"} == before


def test_it_is_gone_on_with(old: Path) -> None:
    segments = {file.name: file.read_bytes() for file in old.glob("*.seg")}
    opened = open_at(old)
    engine = opened.engine
    assert opened.report == []
    assert json.loads((old / "penstock.json").read_text())["format"] == VERSION
    assert waiting(engine) == WAITING
    jobs = queue_of(engine.broker, "jobs")
    positions = [item.position for lane in jobs.lanes.values() for item in lane]
    assert engine.numbers("with_ttl", positions) == [0] * len(positions)
    assert engine.payloads([item.position for item in jobs.dead]) == [DEAD[1]]
    peer = engine.broker.connect(1, b"phpmq 127.0.0.1:1")
    first = engine.broker.publish(
        peer, jobs, [b"new"], TODAY, Properties(ttl=0, with_ttl=True, source_info=b"me")
    ).first
    engine.commit(TODAY)
    engine.log.close()
    assert {name: (old / name).read_bytes() for name in segments} == segments
    engine = open_at(old, TODAY + SECOND).engine
    told = engine.messages([first])[0]
    assert (told.with_ttl, told.source_info, engine.numbers("with_ttl", [positions[0], first])) == (1, b"me", [0, 1])
    assert waiting(engine) == [*WAITING[:5], ("jobs", b"new", 0), *WAITING[5:]]
    engine.log.close()


def test_it_was_killed(old: Path) -> None:
    """The last segment has no footer, and its reserved space is still there: it is finished as it is."""
    last = max(old.glob("*.seg"))
    raw = last.read_bytes()
    footer = Footer.decode(raw[-FOOTER_SIZE:])
    assert footer is not None
    last.write_bytes(raw[: footer.blocks_end] + bytes(4096))
    for checkpoint in old.glob("*.ckpt"):
        checkpoint.unlink()
    assert penstock("journal", "verify", old).code == 0
    opened = open_at(old)
    assert opened.report == ["there is no checkpoint of use: the state was worked out from the journal alone"]
    assert waiting(opened.engine) == WAITING
    opened.engine.log.close()
    assert penstock("journal", "verify", old).code == 0


def test_it_is_repaired(old: Path) -> None:
    """A bit is flipped in a payload of the first segment: that block is given up, and all the others are kept."""
    first = min(old.glob("*.seg"))
    raw = bytearray(first.read_bytes())
    raw[raw.index(b"xxxx")] ^= 1
    first.write_bytes(raw)
    assert penstock("journal", "verify", old).code == 1
    assert penstock("journal", "repair", "--yes", old).code == 0
    assert penstock("journal", "verify", old).code == 0
    opened = open_at(old)
    assert ("mails", b"after the checkpoint", 0) in waiting(opened.engine)
    opened.engine.log.close()


def test_its_messages_are_carried_forward(old: Path) -> None:
    opened = open_at(old)
    engine, upkeep = opened.engine, opened.upkeep
    peer = engine.broker.connect(1, b"phpmq 127.0.0.1:1")
    for at in range(40):
        engine.broker.publish(peer, queue_of(engine.broker, "mails"), [bytes(2000)], TODAY + at, Properties(priority=9))
        engine.commit(TODAY + at)
        engine.broker.pop(peer, queue_of(engine.broker, "mails"), TODAY + at)
        engine.commit(TODAY + at)
    upkeep.checkpoint(TODAY + SECOND)
    upkeep.checkpoint(TODAY + 2 * SECOND)
    before = engine.log.start
    upkeep.retain(TODAY + 3 * SECOND)
    engine.commit(TODAY + 3 * SECOND)
    upkeep.retain(TODAY + 4 * SECOND)
    assert engine.log.start > before
    assert waiting(engine) == WAITING
    engine.log.close()


def test_a_broker_serves_it(old: Path, tmp_path: Path) -> None:
    """An old journal can't tell a TTL of 0 from none: those come in three packets."""
    tables = 'sspq = []\nphpmq = ["127.0.0.1:0"]\nkokaq = ["127.0.0.1:0"]\n[queues."default/jobs"]\n'
    with BrokerProcess(tmp_path, tables) as broker:
        assert broker.data == old
        peer = broker.dial("phpmq").send(consume("jobs", 100))
        found = [read_dispatch(peer) for _ in range(5)]
        assert [each.payload for each in found] == [body for name, body, _ in WAITING if name == "jobs"]
        assert [each.ttl is None for each in found] == [True, True, True, False, True]
        peer.send(*[acknowledge("jobs", each.id) for each in found])
        broker.dial("phpmq").send(publish("jobs", b"new", 0))
        assert read_dispatch(peer).ttl == 0
        kokaq = broker.dial("kokaq", kind=Kokaq)
        assert kokaq.ask(GET, "default/mails").outcome == SUCCESS_OK
        assert kokaq.ask(POP, "default/mails").fields[SOURCE] == b"phpmq 127.0.0.1:1"
        assert broker.stop() == 0
    assert LATER > NOW // SECOND


class TestWhatIsKept:
    """How a message was published is known wherever its row lies: staged, recent, on disk, or a copy."""

    def published(self, engine: Engine) -> list[int]:
        broker = engine.broker
        broker.create_namespace("default", NOW)
        queue = broker.create_queue("default", "jobs", NOW)
        peer = broker.connect(1, b"phpmq 127.0.0.1:1")
        plain = broker.publish(peer, queue, [b"plain"], NOW).first
        zero = broker.publish(peer, queue, [b"zero", b"zero"], NOW, Properties(ttl=0, with_ttl=True)).first
        said = broker.publish(peer, queue, [b"said"], NOW, Properties(source_info=b"billing")).first
        return [plain, zero, zero + 1, said]

    def check(self, engine: Engine, positions: list[int]) -> None:
        assert engine.numbers("with_ttl", positions) == [0, 1, 1, 0]
        assert engine.numbers("with_ttl", positions[::-1]) == [0, 1, 1, 0]
        assert [each.with_ttl for each in engine.messages(positions)] == [0, 1, 1, 0]
        assert [each.source_info for each in engine.messages(positions)] == [b"", b"", b"", b"billing"]

    @pytest.mark.parametrize("cache_bytes", [0, 2**20])
    def test_before_and_after_a_restart(self, tmp_path: Path, cache_bytes: int) -> None:
        opened = open_folder(RealDisk(str(tmp_path)), NOW, SMALL, cache_bytes=cache_bytes, min_free=0)
        positions = self.published(opened.engine)
        opened.engine.commit(NOW)
        self.check(opened.engine, positions)
        opened.engine.log.close()
        again = open_at(tmp_path).engine
        self.check(again, positions)
        again.log.close()

    def test_in_a_copy(self, tmp_path: Path) -> None:
        opened = open_folder(RealDisk(str(tmp_path)), NOW, SMALL, cache_bytes=0, min_free=0)
        engine = opened.engine
        positions = self.published(engine)
        engine.commit(NOW)
        places = engine.broker.carry(engine.messages(positions), [1] * len(positions), NOW)
        engine.move(places)
        engine.commit(NOW)
        assert set(engine.moved) == set(positions)
        self.check(engine, positions)
        engine.log.close()
