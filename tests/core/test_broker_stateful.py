"""The broker against its model: both run the same random commands, and everything is compared after each.

``PENSTOCK_LONG=1`` runs many more examples. Queues are addressed by name and connections by number, so a restart only
replaces the broker under test with one restored from its journal.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.core import budget
from penstock.core.broker import Broker
from penstock.core.commands.publish import PublishResult
from penstock.core.commands.tick import continue_work
from penstock.core.commands.write import ChunkDiffers, Portion, WriterError
from penstock.core.policy import Policy
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Queue
from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.core.state import WaitEnded
from penstock.core.structures.item import Item
from penstock.core.structures.lane import Lane
from penstock.core.writers import ChunkKey
from penstock.journal.format.block import parse
from penstock.journal.format.encoding import encode
from penstock.schema import FOREVER
from support.model import Effect, Model

LONG = os.environ.get("PENSTOCK_LONG") == "1"
SECOND = 1_000_000
START = 1_700_000_000 * SECOND + 250_000
NAMES = ("a", "b")
#: Zero comes up often, so that most messages are plain.
SPANS = st.sampled_from([0, 0, 0, 1, 300_000, SECOND, 1_500_000, 3 * SECOND, 90 * SECOND])
NUMBERS = st.integers(0, 2)
PICKS = st.integers(0, 15)

#: Mostly one rule at a time: queues with many rules refuse and drop so many messages that little else happens.
RULES: list[dict[str, Any]] = [
    {},
    {"default_ttl": 2 * SECOND},
    {"default_ttl": SECOND, "on_expiry": "drop", "lock": SECOND},
    {"max_deliveries": 1},
    {"max_deliveries": 2, "dead_letters": False},
    {"max_depth": 3},
    {"max_bytes": 10, "deduplication": SECOND},
    {"max_depth": 2, "on_full": "drop-oldest"},
    {"max_depth": 4, "max_bytes": 9, "on_full": "drop-oldest", "max_deliveries": 2},
    {"dead_letters": False, "max_depth": 3, "on_full": "drop-oldest"},
    {"paused": True},
]
POLICIES = st.sampled_from([Policy(**rules) for rules in RULES])
READERS = st.sampled_from(["r", "s"])
#: Size, time to live, delay and priority.
ROWS = st.tuples(
    st.integers(0, 5), st.sampled_from([-1, -1, 0, SECOND]), st.sampled_from([0, 0, SECOND]), st.integers(0, 1)
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "ttl": SPANS,
        "priority": st.sampled_from([0, 1, 7, 2**64 - 1]),
        "delay": SPANS,
        "retries": st.sampled_from([0, 1, 2, FOREVER]),
    },
)


class BrokerMachine(RuleBasedStateMachine):
    """Each rule sends one command to broker and model and compares the results; the invariants compare the rest."""

    #: Messages of a lost connection that are put back in one step.
    give_back = budget.GIVE_BACK

    def __init__(self) -> None:
        super().__init__()
        small = {
            "budget.GIVE_BACK": self.give_back,
            "structures.lane.CHUNK": 3,
            "structures.ordered.CHUNK": 3,
            "ready.PLAIN_LANES": 1,
            "commands.lease.PIECE": 1,
            "commands.lease.END_SLACK": 0,
            "catalogue.ROW_BYTES": 1,
        }
        self.patches = [patch(f"penstock.core.{name}", value) for name, value in small.items()]
        for each in self.patches:
            each.start()
        self.now = START
        self.model = Model()
        self.broker = Broker()
        self.committed_before = self.broker.committed
        self.table = Table()

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()

    def queue(self, name: str) -> Queue:
        queue = self.broker.queue("default", name)
        assert queue is not None
        return queue

    def name(self, pick: int) -> str:
        return sorted(self.model.queues)[pick % len(self.model.queues)]

    def peer(self, number: int) -> Connection:
        """Return the connection with this number, creating it if necessary. Odd ones spend retries."""
        if number not in self.model.connections:
            self.model.connect(number, spends_retries=bool(number % 2))
            self.broker.connect(number, b"test %d" % number, spends_retries=bool(number % 2))
        return self.broker.connections[number]

    def position(self, name: str, pick: int) -> int:
        """Draw the position of a message in any state, or a position that was never used."""
        positions = sorted(self.model.queues[name].positions)
        return positions[pick % len(positions)] if positions else 10**6

    def owned(self, pick: int) -> tuple[int, str, int]:
        """Draw a connection, a queue and a message: mostly one that is out on that connection, sometimes any."""
        outs = [(m.owner, name, m.position) for name, queue in sorted(self.model.queues.items()) for m in queue.out]
        # No connection can settle a leased message.
        outs = [(max(owner, 0), name, position) for owner, name, position in outs]
        name = self.name(pick)
        return outs[pick % len(outs)] if outs and pick else (0, name, self.position(name, pick))

    @initialize(policy=POLICIES)
    def make_queues(self, policy: Policy) -> None:
        self.broker.create_namespace("default", self.now)
        for name, rules in zip(NAMES, (Policy(), policy), strict=True):
            self.model.create_queue(name, rules)
            self.broker.create_queue("default", name, self.now, rules)
        for pick in range(len(NAMES)):
            self.publish(0, pick, [1, 2, 3], {})

    # Queues

    @rule(pick=PICKS, policy=POLICIES)
    def configure_queue(self, pick: int, policy: Policy) -> None:
        name = self.name(pick)
        self.model.configure_queue(name, policy, self.now)
        self.broker.configure_queue(self.queue(name), policy, self.now)

    @rule(pick=PICKS)
    def resume(self, pick: int) -> None:
        self.configure_queue(pick, Policy())

    @rule(name=st.sampled_from(["a", "b", "c", "c"]), policy=POLICIES)
    def create_or_delete_queue(self, name: str, policy: Policy) -> None:
        if name not in self.model.queues:
            self.model.create_queue(name, policy)
            self.broker.create_queue("default", name, self.now, policy)
        elif len(self.model.queues) > 1:
            assert self.broker.delete_queue(self.queue(name), self.now) == self.model.delete_queue(name)

    # Publishing

    @rule(number=NUMBERS, pick=PICKS, sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), options=OPTIONS)
    def publish(self, number: int, pick: int, sizes: list[int], options: dict[str, Any]) -> None:
        name = self.name(pick)
        connection = self.peer(number)
        expected = self.model.publish(name, sizes, self.now, self.broker.log.next_position, **options)
        payloads = [bytes(size) for size in sizes]
        result = self.broker.publish(connection, self.queue(name), payloads, self.now, Properties(**options))
        assert _plain(result) == expected

    @rule(pick=PICKS, ttls=st.lists(SPANS, min_size=2, max_size=6), priority=st.integers(0, 2))
    def publish_several(self, pick: int, ttls: list[int], priority: int) -> None:
        """Publish with different priorities and times to live, so that the broker has to choose an order."""
        for offset, ttl in enumerate(ttls):
            self.publish(0, pick, [1], {"ttl": ttl, "priority": (priority + offset) % 3, "retries": 2 + offset})

    @rule(number=NUMBERS, pick=PICKS, mark=st.integers(1, 3), options=OPTIONS, kind=st.integers(1, 3), end=SPANS)
    def publish_one(self, number: int, pick: int, mark: int, options: dict[str, Any], kind: int, end: int) -> None:
        """Publish with a request ID, a requested message ID, or both; and perhaps a fixed expiry time."""
        ids: dict[str, Any] = {"request_id": b"r%d" % mark} if kind & 1 else {}
        ids |= {"asked_id": b"a%d" % mark} if kind & 2 else {}
        ids |= {"expires_at": self.now + end} if end else {}
        self.publish(number, pick, [1], options | ids)

    @rule(
        writer=st.sampled_from(["v", "w"]),
        numbers=st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)),
        rows=st.dictionaries(PICKS, st.lists(ROWS, min_size=1, max_size=4), max_size=2),
    )
    def write(
        self, writer: str, numbers: tuple[int, int, int, int], rows: dict[int, list[tuple[int, int, int, int]]]
    ) -> None:
        by_name = {self.name(pick): each for pick, each in rows.items()}
        expected = self.model.write((writer, *numbers), by_name, self.now, self.broker.log.next_position)
        portions = []
        for name, each in by_name.items():
            sizes, ttl, delay, priority = zip(*each, strict=True)
            portions.append(Portion(self.queue(name), list(map(bytes, sizes)), ttl, delay, priority))
        try:
            done = self.broker.write(b"spark test", ChunkKey(writer, *numbers), portions, self.now)
        except ChunkDiffers:
            assert expected == "differs"
        except WriterError:
            assert expected == "gap"
        else:
            assert expected == (done.refusal.name if done.refusal else "duplicate" if done.duplicate else "written")

    @rule(writer=st.sampled_from(["v", "w"]))
    def write_next(self, writer: str) -> None:
        """Write the next chunk of a writer; arbitrary chunks are mostly out of order."""
        epoch, chunks = self.model.writers.get(writer, (0, {}))
        taken, last = chunks.get(0, (0, 0))
        self.write(writer, (epoch, 0, taken, last), {0: [(1, -1, 0, 0), (2, -1, 0, 0)]})

    @rule(writer=st.sampled_from(["v", "w"]))
    def end_writer(self, writer: str) -> None:
        assert self.broker.end_writer(writer, self.now, b"spark test") == self.model.end_writer(writer)

    # Leases

    @rule(reader=READERS, pick=PICKS, max_rows=st.integers(1, 5), max_bytes=st.sampled_from([0, 0, 4]), span=SPANS)
    def lease(self, reader: str, pick: int, max_rows: int, max_bytes: int, span: int) -> None:
        name = self.name(pick)
        queue, until = self.queue(name), span + 1
        lease = self.broker.lease(reader, queue, self.now, until, max_rows=max_rows, max_bytes=max_bytes)
        at = lease.position if lease else 0
        expected = self.model.lease(reader, name, self.now, until, at, max_rows=max_rows, max_bytes=max_bytes)
        assert (lease.messages if lease else []) == expected

    @rule(reader=READERS, pick=PICKS)
    def settle_leases(self, reader: str, pick: int) -> None:
        leases = sorted(self.model.leases)
        before = leases[pick % len(leases)] + pick % 2 if leases else pick
        result = self.broker.settle_leases(reader, before, self.now)
        assert result == self.model.settle_leases(reader, before, self.now)

    @rule(reader=READERS)
    def forget_reader(self, reader: str) -> None:
        assert self.broker.forget_reader(reader, self.now) == self.model.forget_reader(reader, self.now)

    # Delivery

    @rule(number=NUMBERS, pick=PICKS, window=st.integers(0, 4))
    def subscribe(self, number: int, pick: int, window: int) -> None:
        name = self.name(pick)
        self.broker.subscribe(self.peer(number), self.queue(name), window, self.now)
        self.model.subscribe(number, name, window, self.now)

    @rule(number=NUMBERS, pick=PICKS, dead=st.booleans())
    def receive(self, number: int, pick: int, dead: bool) -> None:
        name = self.name(pick)
        result = self.broker.receive(self.peer(number), self.queue(name), self.now, dead=dead)
        assert result == self.model.receive(number, name, self.now, dead=dead)

    @rule(number=NUMBERS, pick=PICKS, count=st.integers(0, 4), duration=SPANS)
    def lock(self, number: int, pick: int, count: int, duration: int) -> None:
        name = self.name(pick)
        outs = self.broker.lock(self.peer(number), self.queue(name), self.now, duration, count)
        expected = [self.model.lock(number, name, self.now, duration) for _ in range(count)]
        assert [out.item.position for out in outs] == [position for position in expected if position is not None]

    @rule(pick=PICKS, duration=SPANS)
    def renew(self, pick: int, duration: int) -> None:
        number, _, position = self.owned(pick)
        out = self.broker.renew(self.peer(number), position, self.now, duration)
        assert (out and out.deadline) == self.model.renew(number, position, self.now, duration)

    @rule(pick=PICKS)
    def peek(self, pick: int) -> None:
        name = self.name(pick)
        item = self.broker.peek(self.queue(name), self.now)
        assert (item and item.position) == self.model.peek(name, self.now)

    @rule(number=NUMBERS, pick=PICKS, count=st.integers(0, 4))
    def pop(self, number: int, pick: int, count: int) -> None:
        name = self.name(pick)
        items, deliveries = self.broker.pop(self.peer(number), self.queue(name), self.now, count)
        expected = [self.model.pop(name, self.now) for _ in range(count)]
        popped = [(item.position, before) for item, before in zip(items, deliveries, strict=True)]
        assert popped == [each for each in expected if each is not None]

    # Settling

    @rule(picks=st.lists(PICKS, min_size=1, max_size=3))
    def acknowledge(self, picks: list[int]) -> None:
        chosen = [self.owned(pick) for pick in picks]
        number, name, positions = chosen[0][0], chosen[0][1], [position for _, _, position in chosen]
        result = self.broker.acknowledge(self.peer(number), self.queue(name), positions, self.now)
        assert result == self.model.acknowledge(number, name, positions, self.now)

    @rule(pick=PICKS)
    def release(self, pick: int) -> None:
        number, name, position = self.owned(pick)
        result = self.broker.release(self.peer(number), self.queue(name), position, self.now)
        assert result == self.model.release(number, name, position, self.now)

    @rule(pick=PICKS, ttl=SPANS)
    def requeue(self, pick: int, ttl: int) -> None:
        number, name, position = self.owned(pick)
        result = self.broker.requeue(self.peer(number), self.queue(name), position, self.now, ttl=ttl)
        assert result == self.model.requeue(number, name, position, self.now, ttl=ttl)

    @rule(picks=st.lists(PICKS, min_size=1, max_size=3))
    def reject(self, picks: list[int]) -> None:
        chosen = [self.owned(pick) for pick in picks]
        number, name, positions = chosen[0][0], chosen[0][1], [position for _, _, position in chosen]
        result = self.broker.reject(self.peer(number), self.queue(name), positions, self.now)
        assert result == self.model.reject(number, name, positions, self.now)

    @rule(number=NUMBERS)
    def disconnect(self, number: int) -> None:
        self.broker.disconnect(self.peer(number), self.now)
        self.model.disconnect(number, self.now, self.give_back)
        while self.broker.unfinished:
            self.broker.refill()
            continue_work(self.broker, self.now)

    # Operators

    @rule(number=NUMBERS, pick=PICKS, to=PICKS, limit=st.integers(0, 5))
    def redrive(self, number: int, pick: int, to: int, limit: int) -> None:
        name, target = self.name(pick), self.name(to)
        queue, other = self.queue(name), self.queue(target)
        result = self.broker.redrive(self.peer(number), queue, self.now, limit=limit, to=other)
        assert result == self.model.redrive(name, self.now, limit=limit, to=target)

    @rule(number=NUMBERS, pick=PICKS, picks=st.lists(PICKS, max_size=3))
    def redrive_some(self, number: int, pick: int, picks: list[int]) -> None:
        name = self.name(pick)
        positions = [self.position(name, each) for each in picks]
        result = self.broker.redrive(self.peer(number), self.queue(name), self.now, positions=positions)
        assert result == self.model.redrive(name, self.now, positions=positions, limit=10_000)

    @rule(number=NUMBERS, pick=PICKS, to=PICKS, picks=st.lists(PICKS, max_size=3))
    def move(self, number: int, pick: int, to: int, picks: list[int]) -> None:
        name, target = self.name(pick), self.name(to)
        positions = [self.position(name, each) for each in picks]
        other = self.queue(target)
        result = self.broker.move(self.peer(number), self.queue(name), self.now, positions=positions, to=other)
        assert result == self.model.move(name, self.now, positions, target)

    @rule(number=NUMBERS, pick=PICKS, dead=st.booleans())
    def purge(self, number: int, pick: int, dead: bool) -> None:
        name = self.name(pick)
        connection, queue = self.peer(number), self.queue(name)
        if dead:
            assert self.broker.purge_dead(connection, queue, self.now) == self.model.purge_dead(name)
        else:
            assert self.broker.purge(connection, queue, self.now) == self.model.purge(name)

    @rule(number=NUMBERS, pick=PICKS, which=PICKS)
    def delete_message(self, number: int, pick: int, which: int) -> None:
        name = self.name(pick)
        position = self.position(name, which)
        result = self.broker.delete_message(self.peer(number), self.queue(name), position, self.now)
        assert result == self.model.delete_message(name, position)

    # Time

    @rule(span=SPANS)
    def pass_time(self, span: int) -> None:
        """Advance the clock without calling ``tick``: expired messages must not be delivered even then."""
        self.now += span

    @rule(span=SPANS)
    def tick(self, span: int) -> None:
        self.now += span
        self.model.tick(self.now)
        following = self.broker.tick(self.now)
        assert following is None or following > self.now
        deadlines = self.model.deadlines()
        assert not deadlines or (following is not None and following <= min(deadlines))

    @rule()
    def tick_when_asked(self) -> None:
        following = self.broker.tick(self.now)
        self.model.tick(self.now)
        if following is not None:
            self.tick(following - self.now)

    @rule()
    def commit(self) -> None:
        self.table.apply([parse(encode(batch, 1, 0).data) for batch in self.broker.log.take()])
        self.broker.committed = self.committed_before = self.broker.log.next_position

    @rule(sure=st.integers(0, 9))
    def restart(self, sure: int) -> None:
        """Kill the broker and restore it from the journal."""
        if sure == 7:
            self.same_effects()
            self.commit()
            self.broker = restore(self.table, self.broker.log.next_position)
            self.model.restart()
            self.tick(0)

    @rule(sure=st.integers(0, 19))
    def drain(self, sure: int) -> None:
        if sure == 7:
            self.broker.drain(self.now)
            self.model.drain()

    # Invariants

    @invariant()
    def same_effects(self) -> None:
        """Compare deliveries per consumer, in order. There is no order between queues, so none is compared."""
        given: list[Effect] = []
        for effect in self.broker.take_effects():
            name, number = effect.queue.name, effect.connection.id
            if isinstance(effect, WaitEnded):
                given.append(Effect(name, number, ()))
                continue
            positions = tuple(out.item.position for out in effect.messages)
            assert effect.after == 0 or effect.after == max(positions) + 1
            assert all((position >= self.committed_before) == bool(effect.after) for position in positions)
            given.append(Effect(name, number, positions))
        expected = [part for effect in self.model.effects for part in self.by_durability(effect)]
        self.model.effects = []
        assert sorted(given, key=lambda effect: effect.queue) == sorted(expected, key=lambda effect: effect.queue)

    def by_durability(self, effect: Effect) -> list[Effect]:
        """Split deliveries: messages that are already durable go out ahead of those that wait for the commit."""
        durable = tuple(position for position in effect.positions if position < self.committed_before)
        fresh = tuple(position for position in effect.positions if position >= self.committed_before)
        return [effect._replace(positions=part) for part in (durable, fresh) if part] or [effect]

    @invariant()
    def same_state(self) -> None:
        assert set(self.broker.namespaces.get("default", {})) == set(self.model.queues)
        for name in self.model.queues:
            assert describe(self.queue(name)) == self.model.queues[name].describe()

    @invariant()
    def same_leases_and_writers(self) -> None:
        leases = {at: (each.entry.reader, each.entry.until, each.messages) for at, each in self.broker.leases.items()}
        assert list(leases) == sorted(leases)
        assert leases == {
            at: (each.reader, each.until, [m.position for m in each.messages]) for at, each in self.model.leases.items()
        }
        assert self.broker.leased == sum(len(messages) for _, _, messages in leases.values())
        writers = {
            name: (each.epoch, {part: (count, each.digests.get(part, 0)) for part, count in each.chunks.items()})
            for name, each in self.broker.writers.items()
        }
        assert writers == self.model.writers
        assert self.broker.partitions == sum(len(chunks) for _, chunks in writers.values())
        assert all(each.digests.keys() <= each.chunks.keys() for each in self.broker.writers.values())
        assert self.broker.shares == ({"": (len(writers), self.broker.partitions)} if writers else {})

    @rule(writer=st.sampled_from(["v", "w"]), change=st.integers(0, 5))
    def check_written(self, writer: str, change: int) -> None:
        """The model's chunk is accepted as a repetition; with any change it is rejected."""
        epoch, known = self.model.writers.get(writer, (0, {}))
        parts, wrong = dict(known), bool(known)
        match change:
            case 0 if known:
                parts.popitem()
            case 1:
                parts[7], wrong = (1, 0), True
            case 2 if known:
                parts[next(iter(parts))] = (99, 0)
            case 3 if any(digest for _, digest in known.values()):
                parts = {part: (count, digest + 5) for part, (count, digest) in parts.items()}
            case _:
                wrong = False
        with pytest.raises(ChunkDiffers) if wrong else nullcontext():
            self.broker.check_written(writer, epoch, parts)
        if known:
            self.broker.check_written(writer, epoch - 1, parts)

    @invariant()
    def nothing_lost(self) -> None:
        """Count by walking the lanes; do not rely on the counters alone."""
        for queue in self.broker.queues.values():
            here = [item.position for lane in queue.ready.lanes.values() for item in walk(lane)]
            here += [item.position for lane in (queue.delayed, queue.dead) for item in walk(lane)]
            here += list(queue.out)
            assert len(set(here)) == len(here) == queue.counters.balance
            queue.check()

    @invariant()
    def nothing_left_behind(self) -> None:
        """Indexes refer to existing messages only."""
        asked: dict[bytes, tuple[Queue, int]] = {}
        for name, queue in self.broker.namespaces.get("default", {}).items():
            there = self.model.queues[name].positions
            notes = (queue.deliveries, queue.moved, queue.published_retries, queue.asked)
            assert all(note.keys() <= there for note in notes)
            assert sorted(queue.ready.lanes) == list(queue.ready.priorities)
            assert {id(lane) for _, _, lane, _ in queue.ready.deadlines} <= set(map(id, queue.ready.lanes.values()))
            asked |= {key: (queue, position) for position, key in queue.asked.items()}
        assert self.broker.asked == asked
        assert self.broker.moved_to.keys() <= {p for queue in self.model.queues.values() for p in queue.positions}
        for connection in self.broker.connections.values():
            assert all(out.queue.out[position] is out for position, out in connection.out.items())


def _plain(result: PublishResult) -> tuple[int, int, str | None, bool]:
    return result.first, result.accepted, result.refusal and result.refusal.name, result.duplicate


def walk(lane: Lane) -> list[Item]:
    items = [Item._make(row) for row in zip(*(column.tolist() for column in lane.columns()), strict=True)]
    assert len(items) == len(lane)
    assert sum(item.size for item in items) == lane.bytes
    assert [item.rank for item in items] == sorted(item.rank for item in items)
    return items


def describe(queue: Queue) -> dict[str, Any]:
    """Describe the queue's whole state in the terms of the model."""
    ready = [item for priority in reversed(list(queue.ready.priorities)) for item in walk(queue.ready.lanes[priority])]
    assert len(queue.ready) == len(ready)
    count = queue.deliveries.get
    return {
        "ready": [(i.position, i.priority, i.size, i.expires, i.retries, count(i.position, 0)) for i in ready],
        "delayed": [(i.position, i.priority, i.size, i.expires, i.retries, i.rank) for i in walk(queue.delayed)],
        "out": sorted(
            (i.position, i.size, i.expires, i.retries, o.deliveries, o.connection.id, o.deadline, i.reason * o.dead)
            for o in queue.out.values()
            for i in [o.item]
        ),
        "dead": [(i.position, i.priority, i.size, i.reason, i.retries, count(i.position, 0)) for i in walk(queue.dead)],
        "line": [(consumer.connection.id, consumer.window, consumer.credit) for consumer in queue.waiting],
        "dead_line": [consumer.connection.id for consumer in queue.waiting_dead],
        "asked": queue.asked,
        "counters": {name: count for name, count in queue.counters.as_dict().items() if count},
        "ready_bytes": queue.ready.bytes,
        "bytes": queue.bytes,
    }


class SmallSteps(BrokerMachine):
    """Messages of a lost connection come back two at a time."""

    give_back = 2

    @invariant()
    def all_are_found(self) -> None:
        """Every message is found by position in any state, and no other position is."""
        for name, queue in self.model.queues.items():
            states = {message.position: message.state for message in queue.messages}
            found = self.broker.find(self.queue(name), [*states, 10**6])
            assert {position: each.state for position, each in found.items()} == states


TestBroker = BrokerMachine.TestCase
TestSmallSteps = SmallSteps.TestCase
TestSmallSteps.settings = settings(
    max_examples=5_000 if LONG else 3 * settings().max_examples // 5,
    stateful_step_count=60,
    derandomize=not LONG,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestBroker.settings = settings(
    max_examples=5_000 if LONG else 3 * settings().max_examples,
    stateful_step_count=80,
    derandomize=not LONG,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
