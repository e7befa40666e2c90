"""What the journal says is what the core knows: the table made from its columns equals the live broker."""

from __future__ import annotations

import pytest

from penstock.core.broker import Broker
from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.journal.format.block import Block, encode, parse
from support.views import forget_requests, lasting
from support.workload import Workload


def blocks_of(broker: Broker) -> list[Block]:
    blocks = []
    previous = 0
    for batch in broker.log.take():
        encoded = encode(batch, 1, previous)
        previous = encoded.header.crc
        blocks.append(parse(encoded.data))
    return blocks


@pytest.mark.parametrize("seed", range(150))
def test_a_restored_broker_equals_the_one_that_wrote_the_journal(seed: int) -> None:
    workload = Workload(seed, Broker())
    broker, table, blocks = workload.broker, Table(), []
    for _ in range(workload.random.randrange(20, 250)):
        workload.step()
        broker.check()
        if workload.random.random() < 0.4:
            blocks += blocks_of(broker)
        if workload.random.random() < 0.05:
            table.apply(blocks)
            blocks = []
    table.apply(blocks + blocks_of(broker))
    restored = restore(table, broker.log.next_position)
    found, known = (forget_requests(lasting(each, workload.now), workload.now) for each in (restored, broker))
    assert found == known


def test_a_restored_broker_goes_on_like_the_first() -> None:
    """After a restart with nothing out, the same commands have the same events."""
    first = Workload(7, Broker())
    for _ in range(200):
        first.step()
    for connection in list(first.connections):
        first.broker.disconnect(connection, first.now)
    first.connections.clear()
    table = Table()
    table.apply(blocks_of(first.broker))
    second = Workload(7, restore(table, first.broker.log.next_position))
    second.now = first.now
    first.random.seed("again")
    second.random.seed("again")
    second._next_id = first._next_id
    first.broker.tick(first.now)
    second.broker.tick(second.now)
    for _ in range(100):
        first.step()
        second.step()
    assert [batch.columns for batch in first.broker.log.take()] == [batch.columns for batch in second.broker.log.take()]
