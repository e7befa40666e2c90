"""`live` and `leased` compared with the broker's state, for random clients, checkpoints, compaction and restarts."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

from penstock.companions.rights import Allowed
from penstock.core.broker import Broker
from penstock.flight.access import Caller, Peer
from penstock.flight.calls import Read
from penstock.flight.flight_requests import LeasedMessages, LeasedRows, OutNow
from penstock.flight.history import History
from penstock.flight.leased import read_leased
from penstock.flight.live import Live
from penstock.journal.files.follower import JournalReader
from penstock.server.flight.lease_requests import leased_rows
from support.folders import Life
from support.retaining import retain
from support.workload import READERS

SECOND = 1_000_000


def state_of(broker: Broker, now: int) -> dict[int, tuple[Any, ...]]:
    """Position -> queue, state, deliveries and reason of every message in the broker."""
    found: dict[int, tuple[Any, ...]] = {}
    for queue in broker.queues.values():
        lanes = [("ready", lane) for lane in queue.ready.lanes.values()] + [("dead", queue.dead)]
        for state, lane in lanes:
            for item in lane:
                found[item.position] = (queue.name, state, queue.deliveries.get(item.position, 0), item.reason)
        for item in queue.delayed:
            state = "delayed" if item.rank > now else "ready"
            found[item.position] = (queue.name, state, queue.deliveries.get(item.position, 0), 0)
        for position, out in queue.out.items():
            found[position] = (queue.name, "out", out.deliveries, out.item.reason)
    return found


def messages_out(broker: Broker) -> OutNow:
    """The broker's answer to a request for messages that are out."""
    positions = array("Q")
    for connection in broker.connections.values():
        positions.extend(connection.out)
    damaged = array("Q", [position for queue in broker.queues.values() for position in queue.damaged])
    return OutNow(position=broker.log.next_position, messages=positions.tobytes(), damaged=damaged.tobytes())


@pytest.mark.parametrize("seed", range(6))
def test_the_views_equal_the_state_of_the_broker(seed: int, tmp_path: Path) -> None:
    life = Life(tmp_path, seed=seed, age=30 * SECOND)
    history, live = None, None
    for step in range(12):
        life.run(40)
        if step % 3 == 1:
            life.checkpoint()
        if step % 4 == 2:
            retain(life.opened.upkeep, life.workload.now)
        if step == 7:
            life.kill()
            life.restart()
            life.commit()
        if live is None:
            history = History(JournalReader(tmp_path))
            live = Live(history, lambda: messages_out(life.opened.engine.broker), now=lambda: life.workload.now / 1e6)
        compare(life, live)
        assert history is not None
        compare_leased(life, history)
    assert history is not None
    history.reader.close()
    life.stop()


def test_damaged_messages_are_omitted(tmp_path: Path) -> None:
    life = Life(tmp_path, seed=3).run(300)
    life.checkpoint()
    life.kill()
    oldest = min(tmp_path.glob("*.seg"))
    raw = bytearray(oldest.read_bytes())
    raw[len(raw) // 2] ^= 1
    oldest.write_bytes(raw)
    life.restart()
    life.commit()
    engine = life.opened.engine
    for queue in engine.broker.queues.values():
        known = state_of(engine.broker, life.workload.now)
        damaged = engine.damage(position for position, row in known.items() if row[0] == queue.name)
        engine.broker.set_aside(queue, {position: each.reason for position, each in damaged.items()}, life.workload.now)
    assert engine.broker.damaged > 0
    history = History(JournalReader(tmp_path))
    compare(life, Live(history, lambda: messages_out(engine.broker), now=lambda: life.workload.now / 1e6))
    history.reader.close()
    life.stop()


def compare(life: Life, live: Live) -> None:
    broker = life.opened.engine.broker
    while broker.log.staged:
        life.commit()
    expected = state_of(broker, life.workload.now)
    rows = [row for batch in live.read([], None) for row in batch.to_pylist()]
    found = {row["position"]: row for row in rows}
    assert len(found) == len(rows)
    assert found.keys() == expected.keys()
    for position, (queue, state, deliveries, reason) in expected.items():
        row = found[position]
        assert (row["queue"], row["state"]) == (queue, state)
        assert (row["reason"] is not None) == bool(reason)
        if state != "out":
            assert row["deliveries"] == deliveries
        assert row["payload"] == life.published[position]["payload"]
        assert round(row["published_at"].timestamp() * SECOND) == life.published[position]["at"]


def compare_leased(life: Life, history: History) -> None:
    engine = life.opened.engine

    def ask(request: LeasedRows) -> LeasedMessages:
        return leased_rows(engine.broker, engine.moved, request)

    caller = Caller(Peer("127.0.0.1", "127.0.0.1:1", "", ""), Allowed(open=True))
    for reader in READERS:
        leases = engine.broker.leases_of(reader)
        expected = [(position, lease.queue.name) for lease in leases for position in lease.messages]
        read = Read(view="leased", reader=reader, start=0, stop=engine.broker.log.next_position)
        rows = [row for batch in read_leased(history, ask, read, caller) for row in batch.to_pylist()]
        assert [(row["position"], row["queue"]) for row in rows] == expected
        assert [row["payload"] for row in rows] == [life.published[position]["payload"] for position, _ in expected]
