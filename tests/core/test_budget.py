"""No command and no tick does more than a fixed amount of work, however much the broker holds.

Each scenario builds a state of a given size and returns one command or tick. It runs on a state larger than every
budget, and on one several times as large: neither run may take more than ``MOST``, and the larger state may not take
more than the smaller. Every new command needs a scenario, or a reason why it needs none.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.core.broker import Broker
from penstock.core.commands.dispatch import TryAgain
from penstock.core.commands.write import Portion
from penstock.core.policy import Policy
from penstock.core.properties import Properties
from penstock.core.queue import Connection
from penstock.core.writers import ChunkKey
from penstock.schema import Reason
from support.bench import NOW, SECOND
from support.effort import effort
from support.stored import StoredRow

#: Bytecodes of one step: some 20 milliseconds.
MOST = 1_600_000
SMALL, LARGE = 5_000, 15_000
#: The tolerance for the larger state: bisections, and chunks that happen to be full.
GROWTH = 1.5
LATER = NOW + 1_000 * SECOND
BATCH = 500


class World:
    """A broker with one queue and a publisher."""

    def __init__(self, **policy: object) -> None:
        self.broker = Broker()
        self.broker.create_namespace("default", NOW)
        self.queue = self.broker.create_queue("default", "q", NOW, Policy(**policy))  # type: ignore[arg-type]
        self.peer = self.broker.connect(1, b"test 1")
        self.other = self.broker.connect(2, b"test 2")

    def publish(self, count: int, **options: int) -> None:
        for _ in range(count // BATCH):
            self.broker.publish(self.peer, self.queue, [b"x"] * BATCH, NOW, Properties(**options))  # type: ignore[arg-type]
        self.rest()

    def one_each(self, count: int, **options: int) -> None:
        """Publish one message of each priority."""
        for priority in range(count):
            self.broker.publish(self.peer, self.queue, [b"x"], NOW, Properties(priority=priority, **options))  # type: ignore[arg-type]
        self.rest()

    def hand_out(self, connection: Connection, count: int) -> list[int]:
        """Deliver messages to a connection, in as many steps as it takes."""
        self.broker.subscribe(connection, self.queue, count, NOW)
        while len(connection.out) < count:
            self.broker.tick(NOW)
        self.rest()
        return list(connection.out)

    def kill(self, count: int) -> None:
        """Create dead letters."""
        self.publish(count)
        positions = self.hand_out(self.other, count)
        self.broker.subscribe(self.other, self.queue, 0, NOW)
        for at in range(0, count, BATCH):
            self.broker.reject(self.other, self.queue, positions[at : at + BATCH], NOW)
        self.rest()

    def rest(self) -> None:
        """Finish a turn of the loop: nothing is staged and nothing is left to do."""
        self.broker.log.take()
        self.broker.take_effects()
        while self.broker.unfinished:
            self.broker.tick(NOW)


Command = Callable[[], object]
SCENARIOS: dict[str, list[Callable[[int], Command]]] = {}


def scenario(*names: str) -> Callable[[Callable[[int], Command]], Callable[[int], Command]]:
    def add(build: Callable[[int], Command]) -> Callable[[int], Command]:
        for name in names:
            SCENARIOS.setdefault(name, []).append(build)
        return build

    return add


#: Public methods that a running server does not call as steps, and why.
EXEMPT = {
    "check": "for tests and the start: commands check their own queue",
    "start": "one row",
    "take_effects": "hands over a list",
    "holders": "an iterator",
    "count_writer": "one entry",
    "check_written": "no server calls it: it compares in steps",
    "unfinished": "a property",
    "refill": "three assignments",
    "schedule": "one entry",
    "schedule_at": "one entry",
    "schedule_for": "a step: looks at the messages that a command has returned, and no others",
    "unschedule": "one entry",
    "schedule_requests": "one entry",
    "unschedule_requests": "one entry",
    "lock_until": "one entry",
    "lock_new": "an entry for each of the messages that a command has handed out",
    "unlock": "one entry",
    "forget_message": "the notes on one message",
    "drop_damaged": "for the start",
    "lowest_position": "for a log in memory, which is for tests and trials",
    "drain": "at shutdown only: every queue and waiting receive once",
    "catalogue": "a row for each queue, of which there are limits.queues, when a segment begins",
    "purge": "no server calls it",
    "purge_dead": "no server calls it",
    "settle_leases": "no server calls it: it settles lease by lease",
    "forget_reader": "no server calls it: it returns lease by lease",
}


def ignoring_refusals(do: Command) -> Command:
    """Run a command, which may be refused with "try again"."""

    def run() -> None:
        with contextlib.suppress(TryAgain):
            do()

    return run


# Queues


@scenario("create_namespace", "delete_namespace", "create_queue", "queue")
def among_many_queues(size: int) -> Command:
    world = World()
    for number in range(size):
        world.broker.create_queue("default", str(number), NOW)
    world.rest()

    def do() -> None:
        world.broker.create_namespace("more", NOW)
        world.broker.create_queue("more", "one", NOW)
        queue = world.broker.queue("more", "one")
        assert queue is not None
        assert world.broker.delete_queue(queue, NOW)
        assert world.broker.delete_namespace("more", NOW)

    return do


@scenario("configure_queue")
def a_paused_queue_is_resumed(size: int) -> Command:
    world = World(paused=True)
    world.publish(size)
    world.broker.subscribe(world.other, world.queue, size, NOW)
    return lambda: world.broker.configure_queue(world.queue, Policy(), NOW)


@scenario("delete_queue")
def a_queue_that_had_many_messages_is_deleted(size: int) -> Command:
    world = World()
    world.publish(size, ttl=SECOND)
    positions = world.hand_out(world.other, size)
    for at in range(0, size, BATCH):
        world.broker.acknowledge(world.other, world.queue, positions[at : at + BATCH], NOW)
    world.rest()
    return lambda: world.broker.delete_queue(world.queue, NOW)


# Publishing


@scenario("publish")
def many_receives_wait_for_a_message(size: int) -> Command:
    world = World()
    for number in range(size):
        world.broker.receive(world.broker.connect(10 + number, b"test"), world.queue, NOW)
    return lambda: world.broker.publish(world.peer, world.queue, [b"x"], NOW)


@scenario("publish")
def many_request_ids_have_expired(size: int) -> Command:
    world = World()
    for number in range(size):
        world.broker.publish(world.peer, world.queue, [b"x"], NOW, Properties(request_id=b"%d" % number))
    world.rest()
    return lambda: world.broker.publish(world.peer, world.queue, [b"x"], LATER, Properties(request_id=b"0"))


@scenario("publish")
def the_oldest_of_many_priorities_is_dropped(size: int) -> Command:
    world = World(on_full="drop-oldest", max_depth=size)
    world.one_each(size)
    return lambda: world.broker.publish(world.peer, world.queue, [b"x"], NOW, Properties(priority=7))


@scenario("publish")
def a_large_message_evicts_many_small_ones(size: int) -> Command:
    world = World(on_full="drop-oldest", max_bytes=size)
    world.publish(size)
    return lambda: world.broker.publish(world.peer, world.queue, [bytes(size)], NOW)


@scenario("write", "was_written", "end_writer")
def a_writer_among_many(size: int) -> Command:
    world = World()
    for number in range(size):
        world.broker.write(b"test", ChunkKey(f"{number % 9}", 0, number), [Portion(world.queue, [b"x"])], NOW)
    world.rest()

    def do() -> None:
        world.broker.write(b"test", ChunkKey("new"), [Portion(world.queue, [b"x"] * BATCH, delay=[9] * BATCH)], NOW)
        assert world.broker.was_written(ChunkKey("new"))
        world.broker.end_writer("1", NOW, b"test")

    return do


# Delivery


@scenario("subscribe")
def a_wide_window(size: int) -> Command:
    world = World()
    world.publish(size)
    return lambda: world.broker.subscribe(world.other, world.queue, size, NOW)


@scenario("subscribe")
def a_window_of_a_connection_with_many_messages(size: int) -> Command:
    world = World()
    world.publish(size)
    world.hand_out(world.other, size)
    queue = world.broker.create_queue("default", "other", NOW)
    return lambda: world.broker.subscribe(world.other, queue, 1, NOW)


@scenario("receive", "lock", "pop", "peek", "lease")
def many_expired_messages_precede_the_next(size: int) -> Command:
    world = World()
    world.publish(size, ttl=SECOND)
    broker, later = world.broker, NOW + 5 * SECOND
    commands: list[Command] = [
        lambda: broker.peek(world.queue, later),
        lambda: broker.lock(world.peer, world.queue, later),
        lambda: broker.lock(world.peer, world.queue, later, count=500),
        lambda: broker.pop(world.peer, world.queue, later),
        lambda: broker.pop(world.peer, world.queue, later, 500),
        lambda: broker.lease("r", world.queue, later, SECOND),
        lambda: broker.receive(world.peer, world.queue, later),
    ]

    def do() -> None:
        for command in commands:
            ignoring_refusals(command)()

    return do


@scenario("lock", "pop")
def runs_are_taken_from_many(size: int) -> Command:
    world = World()
    world.publish(size)

    def do() -> None:
        assert len(world.broker.lock(world.peer, world.queue, NOW, count=500)) == 500
        assert len(world.broker.pop(world.peer, world.queue, NOW, 500)[0]) == 500

    return do


@scenario("lease", "leases_of", "settle_lease")
def a_lease_of_many_messages_is_taken_and_settled(size: int) -> Command:
    world = World()
    world.publish(2 * size)
    lease = world.broker.lease("r", world.queue, NOW, SECOND, max_rows=2_000)
    assert lease is not None

    def do() -> None:
        world.broker.lease("s", world.queue, NOW, SECOND, max_rows=size)
        assert len(world.broker.leases_of("r")) == 1
        world.broker.settle_lease(lease, NOW)

    return do


@scenario("return_lease")
def a_lease_of_many_messages_is_returned(size: int) -> Command:
    world = World()
    world.publish(2 * size)
    leases = [world.broker.lease("r", world.queue, NOW, SECOND) for _ in range(2)]
    world.rest()
    assert len(world.broker.leases_of("r")) == 2
    lease = leases[0]
    assert lease is not None
    return lambda: world.broker.return_lease(lease, Reason.RELEASED, NOW)


@scenario("renew", "release", "requeue", "acknowledge", "reject")
def one_of_many_locks(size: int) -> Command:
    world = World()
    world.publish(size)
    for number in range(size):
        world.broker.lock(world.other, world.queue, NOW, (number % 977 + 1) * SECOND)
    held = list(world.other.out)
    broker, other, queue = world.broker, world.other, world.queue

    def do() -> None:
        broker.renew(other, held[size // 2], NOW, 60 * SECOND)
        broker.release(other, queue, held[size // 2], NOW)
        broker.requeue(other, queue, held[size // 3], NOW)
        broker.acknowledge(other, queue, held[size // 4 : size // 4 + 100], NOW)
        broker.reject(other, queue, held[size // 5 : size // 5 + 100], NOW)

    return do


@scenario("connect", "disconnect")
def a_connection_with_many_messages_is_lost(size: int) -> Command:
    world = World()
    world.publish(2 * size)
    world.hand_out(world.other, size)
    return lambda: world.broker.disconnect(world.other, NOW, lambda out: not out.shown)


@scenario("disconnect")
def many_connections_are_lost_at_once(size: int) -> Command:
    world = World()
    world.publish(size)
    peers = [world.broker.connect(10 + number, b"test") for number in range(20)]
    for peer in peers:
        world.hand_out(peer, size // BATCH * BATCH // 20)

    def do() -> None:
        for peer in peers:
            world.broker.disconnect(peer, NOW)

    return do


# Single messages among many


def positions_in_all_states(size: int) -> tuple[World, list[int]]:
    """Return positions of messages in all states, and unused positions."""
    world = World()
    world.kill(size)
    world.publish(size, delay=500 * SECOND)
    world.one_each(size // 4)
    lanes = [world.queue.dead, world.queue.delayed, *world.queue.ready.lanes.values()]
    here = [item.position for lane in lanes for item in lane]
    return world, [*here[:: len(here) // 90], *range(10**9, 10**9 + 90)]


@scenario("find", "delete_message")
def messages_are_looked_for(size: int) -> Command:
    world, positions = positions_in_all_states(size)

    def do() -> None:
        assert len(world.broker.find(world.queue, positions)) == len(positions) - 90
        assert sum(world.broker.delete_message(world.peer, world.queue, each, NOW) for each in positions) >= 90

    return do


@scenario("carry")
def messages_are_carried_forward(size: int) -> Command:
    world, positions = positions_in_all_states(size)
    rows = [StoredRow(position, world.queue.id, NOW) for position in positions]
    return lambda: world.broker.carry(rows, [world.queue.id] * len(rows), NOW)


@scenario("redrive")
def dead_letters_are_redriven(size: int) -> Command:
    world = World()
    world.kill(size)
    return lambda: world.broker.redrive(world.peer, world.queue, NOW)


@scenario("move")
def some_of_many_messages_are_moved(size: int) -> Command:
    world, positions = positions_in_all_states(size)
    other = world.broker.create_queue("default", "other", NOW)
    return lambda: world.broker.move(world.peer, world.queue, NOW, positions=positions[:100], to=other)


@scenario("check_written_in_steps")
def a_batch_of_many_partitions_is_compared(size: int) -> Command:
    world = World()
    for partition in range(size):
        world.broker.write(b"spark", ChunkKey("w", 1, partition, 0, digest=7), [Portion(world.queue, [b"x"])], NOW)
    world.rest()
    parts = dict.fromkeys(range(size), (1, 7))
    return lambda: next(world.broker.check_written_in_steps("w", 1, parts))


@scenario("set_aside")
def damaged_messages_are_set_aside(size: int) -> Command:
    world, positions = positions_in_all_states(size)
    return lambda: world.broker.set_aside(world.queue, dict.fromkeys(positions[:90], "torn"), NOW)


@scenario("put_back")
def damaged_messages_are_put_back(size: int) -> Command:
    world, positions = positions_in_all_states(size)
    world.broker.set_aside(world.queue, dict.fromkeys(positions[:90], "torn"), NOW)
    world.rest()
    return lambda: world.broker.put_back(world.queue, positions[:90], NOW)


# Time


@scenario("tick")
def many_locks_end(size: int) -> Command:
    world = World()
    world.publish(size)
    for _ in range(size):
        world.broker.lock(world.other, world.queue, NOW, SECOND)
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def many_leases_end(size: int) -> Command:
    world = World()
    world.publish(size)
    while world.broker.lease("r", world.queue, NOW, SECOND, max_rows=BATCH) is not None:
        pass
    world.rest()
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def many_expire(size: int) -> Command:
    world = World()
    world.publish(size, ttl=SECOND)
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def many_priorities_expire(size: int) -> Command:
    world = World()
    world.one_each(size, ttl=SECOND)
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def one_of_many_priorities_expires(size: int) -> Command:
    world = World()
    world.one_each(size, ttl=5_000 * SECOND)
    world.broker.publish(world.peer, world.queue, [b"x"], NOW, Properties(ttl=SECOND))
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def many_delayed_ones_are_due(size: int) -> Command:
    world = World()
    world.publish(size, delay=SECOND)
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def many_queues_are_due(size: int) -> Command:
    world = World()
    for number in range(size // 4):
        queue = world.broker.create_queue("default", str(number), NOW)
        world.broker.publish(world.peer, queue, [b"x"], NOW, Properties(ttl=SECOND))
    world.rest()
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def request_ids_are_forgotten(size: int) -> Command:
    world = World()
    for number in range(size):
        world.broker.publish(world.peer, world.queue, [b"x"], NOW, Properties(request_id=b"%d" % number))
    world.rest()
    return lambda: world.broker.tick(LATER)


@scenario("tick")
def leftover_work_of_commands_is_continued(size: int) -> Command:
    world = World(on_full="drop-oldest", max_bytes=3 * size)
    a_wide_window_and_a_lost_one(world, size)
    world.broker.publish(world.peer, world.queue, [bytes(3 * size)], NOW)
    assert world.broker.unfinished
    return lambda: world.broker.tick(NOW)


def a_wide_window_and_a_lost_one(world: World, size: int) -> None:
    world.publish(2 * size)
    world.hand_out(world.other, size)
    world.broker.disconnect(world.other, NOW)
    world.broker.subscribe(world.peer, world.queue, size, NOW)


# The tests


def commands() -> set[str]:
    """Return all public methods of the broker."""
    found = {name for cls in Broker.__mro__[:-1] for name in vars(cls) if not name.startswith("_")}
    return {name for name in found if callable(getattr(Broker, name)) or isinstance(vars(Broker).get(name), property)}


def test_every_command_has_a_scenario_or_a_reason() -> None:
    assert commands() | {"unfinished"} == SCENARIOS.keys() | EXEMPT.keys()
    assert not SCENARIOS.keys() & EXEMPT.keys()


@pytest.mark.parametrize("name", [name for name, reason in EXEMPT.items() if reason.startswith("no server calls it")])
def test_no_server_calls_the_methods_exempt_for_that_reason(name: str) -> None:
    for path in (Path(penstock.__file__).parent / "server").glob("**/*.py"):
        called = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert name not in called, path


@pytest.mark.parametrize(
    "build", list(dict.fromkeys(b for builds in SCENARIOS.values() for b in builds)), ids=lambda build: build.__name__
)
def test_a_step_is_small_and_does_not_grow(build: Callable[[int], Command]) -> None:
    small, large = effort(build(SMALL)), effort(build(LARGE))
    assert large <= MOST
    assert large <= GROWTH * small + 2_000
