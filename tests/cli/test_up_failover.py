"""The demo's traffic while its broker and its database's primary are killed: clients and journal count the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.compute as pc

from penstock.demo.agreement import history
from penstock.demo.broker import BrokerProcess
from penstock.demo.failover import FailoverSetup
from penstock.demo.processes import RunLock
from penstock.demo.traffic import Addresses, ClientCounts, send_and_consume
from support.commands import penstock

FREE = [part for name in ("phpmq", "sspq", "kokaq", "flight") for part in (f"--{name}", "127.0.0.1:0")]


def test_nothing_is_lost_or_doubled_by_a_failover(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "lock")
    setup = FailoverSetup()
    serving: list[BrokerProcess] = []

    def lose_broker() -> None:
        serving.append(setup.lose_broker(serving.pop()))

    try:
        setup.start_database()
        serving.append(
            BrokerProcess([*setup.storage_flags("first"), *FREE, "--http", "off"], tmp_path / "first.log", lock)
        )
        serving[0].wait()
        where = {name: each.rpartition("://")[2] for name, each in serving[0].addresses.items()}
        same = [part for name, each in where.items() for part in (f"--{name}", each)]
        setup.start_standby([*same, "--http", "off"], tmp_path / "second.log", lock)
        counts = ClientCounts("failover")
        losses = [("broker", lose_broker), ("primary", setup.lose_primary)]
        addresses = Addresses(**{name: where[name] for name in ("phpmq", "sspq", "kokaq")})
        steps = list(send_and_consume(addresses, counts, losses))
        assert {"broker", "primary"} <= set(steps)
        events = history(serving[0].addresses["flight"]).events
        for kind, expected in (("published", counts.published), ("acknowledged", counts.acknowledged)):
            rows = events.filter(pc.equal(events["kind"], kind))
            names = zip(rows["namespace"].to_pylist(), rows["queue"].to_pylist(), strict=True)
            assert Counter(f"{namespace}/{queue}" for namespace, queue in names) == expected
    finally:
        for broker in serving:
            broker.stop()
        setup.stop()
        lock.release()


def test_a_database_of_its_own_needs_the_demo() -> None:
    refused = penstock("up", "--journal", "postgresql")
    assert refused.code == 2
    assert "--demo" in refused.err
