"""The table built from the journal's columns equals the live broker."""

from __future__ import annotations

import tracemalloc
from array import array
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from penstock.core.broker import Broker
from penstock.core.recovery.column_storage import MOVED, extend, filled, insert, is_one_value, keep
from penstock.core.recovery.event_columns import Array
from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.journal.format.block import Block, parse
from penstock.journal.format.checkpoint import decode_checkpoint, encode_checkpoint
from penstock.journal.format.encoding import encode
from penstock.schema import Kind
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


def read_back(table: Table) -> Table:
    """Write the table to a checkpoint and read it back."""
    data = b"".join(encode_checkpoint(1, table.meta.position, b"", table.columns, clean=False))
    found = decode_checkpoint(lambda size, at: data[at : at + size], len(data), 1, table.meta.position)
    return Table(table.meta, found.columns)


@pytest.mark.parametrize("seed", range(150))
def test_a_restored_broker_equals_the_one_that_wrote_the_journal(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.recovery.table.MANY_SPANS", seed % 3)
    workload = Workload(seed, Broker())
    broker, table, blocks = workload.broker, Table(), []
    for _ in range(workload.random.randrange(20, 250)):
        workload.step()
        broker.check()
        if workload.random.random() < 0.4:
            blocks += blocks_of(broker)
        if workload.random.random() < 0.05:
            table.apply(blocks)
            table, blocks = read_back(table), []
    table.apply(blocks + blocks_of(broker))
    restored = restore(table, broker.log.next_position)
    found, known = (forget_requests(lasting(each, workload.now), workload.now) for each in (restored, broker))
    assert found == known


def test_a_restored_broker_behaves_like_the_first() -> None:
    """After a restart with no messages out, the same commands produce the same events."""
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


def many_blocks(messages: int, acknowledged: int) -> Iterator[Block]:
    """Publish messages, a thousand in each block, and end the first of them."""
    broker = Broker()
    broker.create_namespace("default", 1)
    queue = broker.create_queue("default", "q", 1)
    first = broker.log.next_position
    for _ in range(messages // 1000):
        broker.log.messages(1, queue.id, b"test", [b"x"] * 1000, {})
        yield from blocks_of(broker)
    for start in range(first, first + acknowledged, 1000):
        columns = {"message": array("Q", range(start, start + 1000))}
        broker.log.others(Kind.ACKNOWLEDGED, 1, queue.id, b"test", 1000, dict(columns))
        yield from blocks_of(broker)


def test_building_a_large_table_needs_no_second_copy() -> None:
    """Building it needs at most a position for each message and one group of events."""
    tracemalloc.start()
    try:
        table = Table()
        table.apply(many_blocks(300_000, 150_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(table) == 150_000
    assert is_one_value(table.columns["queue"])
    assert is_one_value(table.columns["size"])
    assert peak < 300_000 * 8 + 15 * 2**20


class TestColumns:
    @pytest.mark.parametrize("count", [0, 1, 5, MOVED, 2 * MOVED + 3])
    def test_they_grow_and_shrink(self, count: int) -> None:
        column, expected = np.arange(count, dtype="u8"), np.arange(count + 7)
        column = extend(column, np.arange(count, count + 7, dtype="u8"))
        assert (column == expected).all()
        mask = expected % 3 == 1
        assert (keep(column, mask) == expected[mask]).all()

    def test_one_value_for_all_rows_stays_constant(self) -> None:
        column = extend(extend(np.empty(0, "u4"), np.full(3, 7, "u4")), filled(7, "u4", 2))
        assert is_one_value(column)
        assert column.tolist() == [7] * 5
        column = keep(column, np.array([True, False, True, False, False]))
        assert is_one_value(column)
        assert extend(column, np.array([8], "u4")).tolist() == [7, 7, 8]

    def test_rows_are_inserted_in_between(self) -> None:
        rows = np.array([0, 2, 2, 3])
        assert insert(np.array([4, 5, 6]), rows, np.arange(4)).tolist() == [0, 4, 5, 1, 2, 6, 3]
        assert insert(np.empty(0, "u4"), rows[:0], np.empty(0, "u4")).tolist() == []
        assert insert(np.empty(0, "u4"), rows[:1], np.array([7], "u4")).tolist() == [7]
        column = insert(filled(7, "u4", 3), rows, filled(7, "u4", 4))
        assert (is_one_value(column), column.tolist()) == (True, [7] * 7)
        assert insert(column, rows[1:3], np.array([7, 8])).tolist() == [7, 7, 7, 8, 7, 7, 7, 7, 7]

    def test_a_view_stays_unchanged(self) -> None:
        column = np.arange(5)
        seen = column[:]
        assert extend(column, np.array([5])).tolist() == [0, 1, 2, 3, 4, 5]
        assert seen.tolist() == [0, 1, 2, 3, 4]
        column = np.arange(5)
        column.flags.writeable = False
        assert keep(column, column > 2).tolist() == [3, 4]
        assert extend(column, np.array([5])).tolist() == [0, 1, 2, 3, 4, 5]
        assert column.tolist() == [0, 1, 2, 3, 4]


def test_retries_spent_equally_by_all_messages_are_kept() -> None:
    broker, table = Broker(), Table()
    broker.create_namespace("default", 1)
    broker.create_queue("default", "alike", 1)
    table.apply(blocks_of(broker))
    [number], rows = table.meta.queues, np.arange(1, 4, dtype=np.uint64)
    table.columns = {"position": 10_000 + rows, "queue": filled(number, "u4", 3), "size": filled(1, "u4", 3)}
    table.columns |= {"retries": filled(1, "u1", 3), "published_retries": filled(2, "u1", 3)}
    table.meta.queues[number].counters["published"] = 3
    [found] = restore(table, 20_000).queues.values()
    assert found.published_retries == dict.fromkeys((10_000 + rows).tolist(), 2)


def test_the_cost_of_short_lived_queues_does_not_depend_on_other_backlogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows move once for each group of events, not for each queue."""
    table, queues = Table(), 100
    table.apply(many_blocks(2000, 0))
    moved = count_moved_rows(monkeypatch)
    table.apply(short_lived_queues(table, queues))
    assert sorted(Counter(table.columns["queue"].tolist()).values()) == [1] * (queues // 4) + [2000]
    assert len(table.meta.queues) == 1 + queues // 2
    assert sum(entry.counters["purged"] for entry in table.meta.queues.values()) == queues // 4
    assert sum(entry.counters["published"] for entry in table.meta.queues.values()) == 2000 + queues // 2
    assert sum(moved) < 20 * 2000


def test_the_cost_of_purges_does_not_depend_on_other_backlogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with messages published between purges, so that these can't be applied together."""
    table = Table()
    table.apply(many_blocks(2000, 0))
    broker = restore(table, table.meta.position)
    peer, [waits] = broker.connect(1, b"test"), broker.queues.values()
    queue = broker.create_queue("default", "purged", 1)
    for _ in range(100):
        broker.publish(peer, queue, [b"x"] * 2, 1)
        assert broker.purge(peer, queue, 1) == 2
    broker.pop(peer, waits, 1)
    moved = count_moved_rows(monkeypatch)
    table.apply(blocks_of(broker))
    assert Counter(table.columns["queue"].tolist()) == {waits.id: 1999}
    assert sum(moved) < 20 * 2000


def count_moved_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the rows of each column that changes from now on."""
    moved: list[int] = []

    def counted(change: Callable[..., Array]) -> Callable[..., Array]:
        def do(column: Array, *given: Array) -> Array:
            moved.append(len(column))
            return change(column, *given)

        return do

    for change in (extend, insert, keep):
        monkeypatch.setattr(f"penstock.core.recovery.rows.{change.__name__}", counted(change))
    return moved


def short_lived_queues(table: Table, queues: int) -> Iterator[Block]:
    """Publish to each queue; then delete every second, purge every fourth, and purge one of them repeatedly."""
    broker, kept = restore(table, table.meta.position), []
    for number in range(queues):
        queue = broker.create_queue("default", f"queue {number}", 1)
        message = broker.log.next_position
        broker.log.messages(1, queue.id, b"test", [b"x"], {})
        if number % 2:
            broker.log.others(Kind.ACKNOWLEDGED, 1, queue.id, b"test", 1, {"message": array("Q", [message])})
            assert broker.delete_queue(queue, 1)
        else:
            kept.append(queue)
    purged = kept[::2]
    for queue in purged:
        broker.log.other(Kind.PURGED, 1, queue.id, b"test", count=1)
    broker.configure_queue(purged[0], purged[0].policy, 1)
    for _ in range(2):
        broker.log.other(Kind.PURGED, 1, purged[0].id, b"test", count=0)
    yield from blocks_of(broker)
