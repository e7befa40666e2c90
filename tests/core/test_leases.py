"""Leases: their owners, their recovery after a restart, and leased messages that no longer exist."""

from __future__ import annotations

import msgspec
import pytest

from penstock.core import catalogue
from penstock.core.broker import Broker
from penstock.core.commands import lease as lease_commands
from penstock.core.events import BATCH_BYTES, ROW_BYTES
from penstock.core.policy import SECOND, Policy
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Queue
from penstock.core.recovery.meta import Inconsistent, Meta
from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.core.writers import ChunkKey
from penstock.journal.format.block import Block, parse
from penstock.journal.format.encoding import encode
from penstock.schema import Kind, Reason
from support.stored import StoredRow

NOW = 1_750_000_000 * SECOND
DAY = 24 * 3600 * SECOND


def blocks(broker: Broker) -> list[Block]:
    return [parse(encode(batch, 1, 0).data) for batch in broker.log.take()]


def kinds(found: list[Block]) -> list[Kind]:
    return [Kind(int(kind)) for block in found for kind in block.kinds]


class Rig:
    """A broker with one queue, some messages, and one consumer."""

    def __init__(self, count: int = 5, *, max_deliveries: int = 0) -> None:
        self.broker = Broker()
        self.broker.create_namespace("default", NOW)
        self.queue: Queue = self.broker.create_queue("default", "a", NOW, Policy(max_deliveries=max_deliveries))
        self.peer: Connection = self.broker.connect(1, b"phpmq here")
        self.first = self.broker.publish(self.peer, self.queue, [b"x"] * count, NOW).first
        self.table = Table()

    def restart(self) -> None:
        """Restore the broker from the journal."""
        self.table.apply(blocks(self.broker))
        self.broker = restore(self.table, self.broker.log.next_position)
        self.queue = self.broker.queues[self.queue.id]
        self.peer = self.broker.connect(1, b"phpmq here")


def test_a_leased_message_belongs_to_one_reader() -> None:
    rig = Rig(3)
    lease = rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=2)
    assert lease is not None
    assert lease.messages == [rig.first, rig.first + 1]
    (taken,), _ = rig.broker.pop(rig.peer, rig.queue, NOW)
    assert taken.position == rig.first + 2
    assert rig.broker.pop(rig.peer, rig.queue, NOW) == ([], [])
    assert rig.broker.purge(rig.peer, rig.queue, NOW) == 0
    assert not rig.broker.delete_message(rig.peer, rig.queue, rig.first, NOW)
    assert not rig.broker.delete_queue(rig.queue, NOW)
    assert rig.broker.acknowledge(rig.peer, rig.queue, lease.messages, NOW) == 0


def test_a_restart_keeps_leases_their_order_and_their_end() -> None:
    rig = Rig(5)
    high = rig.broker.publish(rig.peer, rig.queue, [b"high"], NOW, Properties(priority=9)).first
    lease = rig.broker.lease("lake", rig.queue, NOW + 7, DAY, instance="one")
    assert lease is not None
    rig.restart()
    again = rig.broker.leases[lease.position]
    assert again.messages == [high, *range(rig.first, rig.first + 5)]
    assert (again.entry.instance, again.entry.since, again.entry.until) == ("one", NOW + 7, NOW + 7 + DAY)
    assert len(rig.queue.ready) == 0
    assert rig.broker.tick(NOW + 8) == NOW + 7 + DAY
    rig.broker.settle_leases("lake", again.position + 1, NOW + 9)
    rig.restart()
    assert not rig.broker.leases
    assert rig.queue.empty
    assert rig.queue.counters.acknowledged == 6


def test_settling_records_deliveries_and_the_reader() -> None:
    rig = Rig(2)
    rig.broker.log.take()
    rig.broker.lease("lake", rig.queue, NOW + 1, DAY)
    rig.broker.settle_leases("lake", rig.broker.log.next_position, NOW + 2)
    [block] = blocks(rig.broker)
    assert kinds([block]) == [Kind.LEASED, Kind.ACKNOWLEDGED, Kind.ACKNOWLEDGED, Kind.LEASE_ENDED]
    assert block.sources == [b"flight lake"]
    assert [block.value("count", row) for row in range(4)] == [2, 0, 0, 2]
    assert [block.value("deliveries", row) for row in range(4)] == [0, 1, 1, 0]
    assert [block.value("delivered_at", row) for row in range(4)] == [0, NOW + 1, NOW + 1, 0]


def test_messages_not_settled_in_time_return_to_their_place() -> None:
    rig = Rig(3, max_deliveries=2)
    rig.broker.lease("lake", rig.queue, NOW, SECOND, max_rows=2)
    assert rig.broker.tick(NOW + 1) == NOW + SECOND
    rig.broker.log.take()
    assert rig.broker.tick(NOW + SECOND) is None
    [block] = blocks(rig.broker)
    assert kinds([block]) == [Kind.RETURNED, Kind.RETURNED, Kind.LEASE_ENDED]
    assert [block.value("reason", row) for row in range(3)] == [Reason.LOCK_EXPIRED] * 3
    lease = rig.broker.lease("lake", rig.queue, NOW + SECOND, SECOND)
    assert lease is not None
    assert lease.messages == [rig.first, rig.first + 1, rig.first + 2]
    rig.broker.tick(NOW + 2 * SECOND)
    assert (len(rig.queue.dead), len(rig.queue.ready)) == (2, 1)


def test_forgetting_a_reader_leaves_the_others_alone() -> None:
    rig = Rig(4)
    rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=2)
    other = rig.broker.lease("report", rig.queue, NOW, DAY)
    assert rig.broker.forget_reader("lake", NOW) == 2
    assert list(rig.broker.leases.values()) == [other]
    assert rig.broker.forget_reader("lake", NOW) == 0


def test_a_lease_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_commands, "LEASE_MESSAGES", 3)
    monkeypatch.setattr(lease_commands, "MOST_LEASED", 5)
    rig = Rig(9)
    leases = [rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=100) for _ in range(3)]
    assert [lease and len(lease.messages) for lease in leases] == [3, 2, None]
    rig.broker.forget_reader("lake", NOW)
    monkeypatch.setattr(lease_commands, "MOST_LEASES", 1)
    leases = [rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=1) for _ in range(2)]
    assert [lease and len(lease.messages) for lease in leases] == [1, None]


def test_a_lease_is_bounded_in_bytes_but_one_message_always_fits() -> None:
    rig = Rig(0)
    rig.broker.publish(rig.peer, rig.queue, [bytes(50), bytes(10), bytes(10), bytes(10)], NOW)
    leases = [rig.broker.lease("lake", rig.queue, NOW, DAY, max_bytes=25) for _ in range(4)]
    assert [lease and len(lease.messages) for lease in leases] == [1, 2, 1, None]
    rig.broker.forget_reader("lake", NOW)
    assert rig.broker.lease("lake", rig.queue, NOW, DAY, max_bytes=25, one_anyway=False) is None
    assert len(rig.queue.ready) == 4


def test_the_end_of_a_lease_is_in_one_block() -> None:
    """Even if the previous block has room for the messages but not for the lease itself."""
    rig = Rig(10)
    rig.broker.lease("lake", rig.queue, NOW, DAY)
    room = BATCH_BYTES - rig.broker.log.size - 12 * ROW_BYTES
    rig.broker.publish(rig.peer, rig.queue, [bytes(room)], NOW)
    rig.broker.settle_leases("lake", rig.broker.log.next_position, NOW)
    last = rig.broker.log.take()[-1]
    assert list(last.kinds) == [Kind.ACKNOWLEDGED] * 10 + [Kind.LEASE_ENDED]


class TestWithoutThePast:
    """The log is trimmed and the checkpoints are lost: only the catalogue and the copied messages are left."""

    def restart_without_the_log(self, rig: Rig, carried: list[int]) -> Broker:
        broker = rig.broker
        first = broker.log.next_position
        broker.catalogue(NOW)
        rows = [StoredRow(position, rig.queue.id, NOW) for position in carried]
        broker.carry(rows, [rig.queue.id] * len(rows), NOW)
        table = Table()
        table.apply([block for block in blocks(broker) if block.first >= first])
        table.reconcile()
        assert not table.meta.complete
        return restore(table, broker.log.next_position)

    def test_the_catalogue_is_enough(self) -> None:
        rig = Rig(3)
        lease = rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=2)
        assert lease is not None
        rig.broker.log.take()
        again = self.restart_without_the_log(rig, [rig.first, rig.first + 1, rig.first + 2])
        assert again.leases[lease.position].messages == lease.messages
        assert len(again.queues[rig.queue.id].ready) == 1

    def test_missing_messages_are_skipped(self) -> None:
        rig = Rig(3)
        lease = rig.broker.lease("lake", rig.queue, NOW, DAY)
        assert lease is not None
        rig.broker.log.take()
        again = self.restart_without_the_log(rig, [rig.first + 1])
        assert again.leases[lease.position].messages == [rig.first + 1]
        assert again.leased == 1
        assert again.settle_leases("lake", lease.position + 1, NOW) == 1

    def test_a_large_catalogue_takes_several_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalogue, "ROW_BYTES", 1)
        rig = Rig(3)
        for _ in range(3):
            rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=1)
        rig.broker.write(b"spark", ChunkKey("job"), [], NOW)
        rig.broker.log.take()
        again = self.restart_without_the_log(rig, [rig.first, rig.first + 1, rig.first + 2])
        assert [lease.messages for lease in again.leases.values()] == [[rig.first + i] for i in range(3)]
        assert again.was_written(ChunkKey("job"))

    def test_a_later_catalogue_takes_precedence(self) -> None:
        """The event that ended a lease is lost, but the broker had written a catalogue since."""
        rig = Rig(3)
        lease = rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=1)
        assert lease is not None
        before = blocks(rig.broker)
        rig.broker.settle_leases("lake", lease.position + 1, NOW)
        rig.broker.log.take()
        rig.broker.catalogue(NOW)
        table = Table()
        table.apply(before)
        assert table.meta.leases
        table.meta.complete = False
        table.apply(blocks(rig.broker))
        assert not table.meta.leases


class TestDamage:
    def test_a_leased_message_with_a_lost_payload_is_given_up(self) -> None:
        rig = Rig(3)
        lease = rig.broker.lease("lake", rig.queue, NOW, DAY)
        assert lease is not None
        assert rig.broker.drop_damaged(rig.queue, [rig.first + 1], NOW) == 1
        assert lease.messages == [rig.first, rig.first + 2]
        rig.restart()
        assert rig.broker.leases[lease.position].messages == [rig.first, rig.first + 2]
        assert rig.broker.settle_leases("lake", lease.position + 1, NOW) == 2

    def test_an_empty_lease_ends_with_its_queue(self) -> None:
        rig = Rig(1)
        lease = rig.broker.lease("lake", rig.queue, NOW, DAY)
        assert lease is not None
        rig.broker.drop_damaged(rig.queue, [rig.first], NOW)
        assert rig.broker.delete_queue(rig.queue, NOW)
        assert not rig.broker.leases
        rig.table.apply(blocks(rig.broker))
        assert not rig.table.meta.leases

    def test_a_message_belongs_to_one_lease(self) -> None:
        """A repair may lose the end of a lease and keep the next lease of the same messages."""
        rig = Rig(3)
        stale = rig.broker.lease("lake", rig.queue, NOW, DAY, max_rows=2)
        rig.table.apply(blocks(rig.broker))
        rig.broker.forget_reader("lake", NOW)
        rig.broker.log.take()
        fresh = rig.broker.lease("lake", rig.queue, NOW, DAY)
        assert stale is not None
        assert fresh is not None
        rig.table.meta.complete = False
        rig.table.apply(blocks(rig.broker))
        again = restore(rig.table, rig.broker.log.next_position)
        assert again.leases[stale.position].messages == [rig.first, rig.first + 1]
        assert again.leases[fresh.position].messages == [rig.first + 2]
        again.check()

    def test_an_end_without_a_beginning_is_a_contradiction(self) -> None:
        rig = Rig(1)
        rig.broker.lease("lake", rig.queue, NOW, DAY)
        rig.table.apply(blocks(rig.broker))
        rig.table.meta.leases.clear()
        rig.broker.forget_reader("lake", NOW)
        with pytest.raises(Inconsistent, match="is not outstanding"):
            rig.table.apply(blocks(rig.broker))


def test_an_older_checkpoint_has_no_leases() -> None:
    """Tables that a checkpoint does not contain are empty."""
    old = msgspec.json.decode(msgspec.json.encode(Meta()))
    del old["leases"], old["writers"]
    meta = msgspec.convert(old, Meta)
    assert (meta.leases, meta.writers) == ({}, {})


def test_a_delayed_message_that_was_leased_stays_leased() -> None:
    """The journal records no event when a delayed message becomes ready."""
    rig = Rig(0)
    rig.broker.publish(rig.peer, rig.queue, [b"late"], NOW, Properties(delay=SECOND))
    rig.broker.tick(NOW + SECOND)
    lease = rig.broker.lease("lake", rig.queue, NOW + SECOND, DAY)
    assert lease is not None
    rig.restart()
    rig.broker.tick(NOW + 2 * SECOND)
    assert (len(rig.queue.ready), len(rig.queue.delayed), list(rig.queue.out)) == (0, 0, lease.messages)
