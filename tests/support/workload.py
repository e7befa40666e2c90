"""Random clients: every command of the broker, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.core.broker import Broker
from penstock.core.commands.write import Portion
from penstock.core.policy import SECOND, Policy
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Queue
from penstock.core.writers import ChunkKey

#: The start of the simulated time.
MORNING = 1_750_000_000 * SECOND
READERS = ("lake", "report")
STEPS = (0, 1, 1000, SECOND // 2, SECOND, 3 * SECOND)


def random_policy(random: Random) -> Policy:
    """Queue rules that are likely to take effect."""
    return Policy(
        max_deliveries=random.choice((0, 0, 3)),
        dead_letters=random.random() < 0.8,
        on_expiry=random.choice(("dead", "drop")),
        max_depth=random.choice((0, 0, 20)),
        max_bytes=random.choice((0, 0, 400)),
        on_full=random.choice(("reject", "drop-oldest")),
        default_ttl=random.choice((0, 0, 5 * SECOND)),
        deduplication=random.choice((SECOND, 300 * SECOND)),
    )


class Workload:
    """Clients of a few queues. Each ``step`` advances the time and runs one random command."""

    def __init__(self, seed: int, broker: Broker, queues: int = 3) -> None:
        self.random = Random(seed)
        self.now = MORNING
        self.broker = broker
        self.connections: list[Connection] = []
        #: The newest chunk of each writer and partition, and the next position.
        self.chunks: dict[tuple[str, int], tuple[ChunkKey, int]] = {}
        #: Writers that have ended, for tests to inspect.
        self.ended: set[str] = set()
        self._next_id = 1
        self._queues = queues
        self._make_queues()

    def reconnect(self, broker: Broker) -> None:
        """Continue with another broker, as after a restart, on new connections."""
        self.broker = broker
        self.connections.clear()
        self.chunks.clear()
        self._make_queues()

    def _make_queues(self) -> None:
        if not self.broker.queues:
            self.broker.create_namespace("default", self.now)
            for number in range(self._queues):
                self.broker.create_queue("default", f"q{number}", self.now, random_policy(self.random))

    def step(self) -> None:
        """Advance the time a little, and run one random command."""
        self.now += self.random.choice(STEPS)
        if not self.connections or self.random.random() < 0.05:
            self._connect()
        command = self.random.choices(_COMMANDS, _WEIGHTS)[0]
        connection = self.random.choice(self.connections)
        command(self, connection, self.random.choice(list(self.broker.queues.values())))
        self.broker.tick(self.now)

    def _connect(self) -> None:
        spends = self.random.random() < 0.3
        source = b"phpmq 127.0.0.1:%d" % self._next_id
        self.connections.append(self.broker.connect(self._next_id, source, spends_retries=spends))
        self._next_id += 1

    def _publish(self, connection: Connection, queue: Queue) -> None:
        random = self.random
        self.broker.publish(
            connection,
            queue,
            [random.randbytes(random.randrange(30)) for _ in range(random.randrange(1, 6))],
            self.now,
            Properties(
                ttl=random.choice((0, 0, SECOND, 10 * SECOND)),
                expires_at=random.choice((0, 0, 0, self.now + 2 * SECOND)),
                priority=random.choice((0, 0, 5, 2**63)),
                delay=random.choice((0, 0, 0, 2 * SECOND)),
                retries=random.choice((255, 255, 0, 2)),
                correlation_id=random.choice((b"", b"", b"about")),
                with_ttl=connection.id % 2 == 0,
                source_info=b"service %d" % connection.id if connection.id % 3 == 0 else b"",
            ),
        )

    def _publish_named(self, connection: Connection, queue: Queue) -> None:
        request = bytes((self.random.randrange(4),)) * 16
        requested = self.random.choice((b"", bytes((200 + self.random.randrange(5),)) * 16))
        self.broker.publish(connection, queue, [b"named"], self.now, Properties(request_id=request, asked_id=requested))

    def _subscribe(self, connection: Connection, queue: Queue) -> None:
        self.broker.subscribe(connection, queue, self.random.randrange(8), self.now)

    def _receive(self, connection: Connection, queue: Queue) -> None:
        self.broker.receive(connection, queue, self.now, dead=self.random.random() < 0.5)

    def _lock(self, connection: Connection, queue: Queue) -> None:
        self.broker.lock(connection, queue, self.now, self.random.choice((0, SECOND)))

    def _pop(self, connection: Connection, queue: Queue) -> None:
        self.broker.pop(connection, queue, self.now)

    def _acknowledge(self, connection: Connection, queue: Queue) -> None:
        held = _held(connection, queue)
        self.broker.acknowledge(
            connection, queue, self.random.sample(held, self.random.randint(0, len(held))), self.now
        )

    def _give_back(self, connection: Connection, queue: Queue) -> None:
        for position in self.random.sample(held := _held(connection, queue), min(1, len(held))):
            choice = self.random.randrange(4)
            if choice == 0:
                self.broker.release(connection, queue, position, self.now)
            elif choice == 1:
                self.broker.requeue(connection, queue, position, self.now, ttl=self.random.choice((0, SECOND)))
            elif choice == 2:
                self.broker.reject(connection, queue, [position], self.now)
            else:
                self.broker.renew(connection, position, self.now, 2 * SECOND)

    def _disconnect(self, connection: Connection, queue: Queue) -> None:
        self.broker.disconnect(connection, self.now)
        self.connections.remove(connection)

    def _redrive(self, connection: Connection, queue: Queue) -> None:
        to = self.random.choice((None, self.random.choice(list(self.broker.queues.values()))))
        self.broker.redrive(connection, queue, self.now, limit=self.random.randrange(1, 5), to=to)

    def _purge(self, connection: Connection, queue: Queue) -> None:
        purge = self.broker.purge if self.random.random() < 0.5 else self.broker.purge_dead
        purge(connection, queue, self.now)

    def _delete_one(self, connection: Connection, queue: Queue) -> None:
        items = [*(item for lane in queue.ready.lanes.values() for item in lane), *queue.delayed, *queue.dead]
        if items:
            self.broker.delete_message(connection, queue, self.random.choice(items).position, self.now)

    def _configure(self, connection: Connection, queue: Queue) -> None:
        self.broker.configure_queue(queue, random_policy(self.random), self.now, connection.source)

    def _recreate(self, connection: Connection, queue: Queue) -> None:
        if self.broker.delete_queue(queue, self.now, connection.source):
            policy = random_policy(self.random)
            self.broker.create_queue("default", queue.name, self.now, policy, connection.source)

    # Spark

    def _lease(self, connection: Connection, queue: Queue) -> None:
        random = self.random
        timeout = random.choice((SECOND, 30 * SECOND, 3600 * SECOND))
        self.broker.lease(
            random.choice(READERS),
            queue,
            self.now,
            timeout,
            instance=random.choice(("one", "two")),
            max_rows=random.randrange(1, 12),
            max_bytes=random.choice((0, 0, 40)),
        )

    def _settle_leases(self, connection: Connection, queue: Queue) -> None:
        before = self.random.choice([*self.broker.leases, self.broker.log.next_position])
        self.broker.settle_leases(self.random.choice(READERS), before, self.now)

    def _forget_reader(self, connection: Connection, queue: Queue) -> None:
        self.broker.forget_reader(self.random.choice(READERS), self.now)

    def _write(self, connection: Connection, queue: Queue) -> None:
        """Write the next chunk; sometimes repeat one, or begin a new epoch."""
        random, name = self.random, self.random.choice(("v", "w"))
        known, partition = self.broker.writers.get(name), random.randrange(3)
        epoch = known.epoch if known else 0
        taken = known.chunks.get(partition, 0) if known else 0
        step = random.randrange(8)
        owner = ("", "one", "two")[partition]
        key = ChunkKey(name, epoch, partition, taken, random.randrange(3), owner=owner)
        if step == 0 and known and taken:
            key = ChunkKey(name, epoch, partition, taken - 1, known.digests.get(partition, 0), owner=owner)
        if step == 1:
            key = ChunkKey(name, epoch + 1, partition, owner=owner)
        queues = random.sample(list(self.broker.queues.values()), random.randint(1, len(self.broker.queues)))
        if self.broker.write(b"spark 127.0.0.1:1", key, list(map(self._portion, queues)), self.now).refusal is None:
            self.chunks[(name, partition)] = (key, self.broker.log.next_position)

    def _portion(self, queue: Queue) -> Portion:
        random = self.random
        payloads = [random.randbytes(random.randrange(30)) for _ in range(random.randrange(1, 6))]
        each = range(len(payloads))
        return Portion(
            queue,
            payloads,
            [random.choice((-1, 0, 5 * SECOND)) for _ in each] if random.random() < 0.3 else (),
            [random.choice((0, 2 * SECOND)) for _ in each] if random.random() < 0.2 else (),
            [random.choice((0, 5)) for _ in each] if random.random() < 0.3 else (),
            [random.choice((b"", b"about")) for _ in each] if random.random() < 0.3 else (),
        )

    def _end_writer(self, connection: Connection, queue: Queue) -> None:
        name = self.random.choice(("v", "w"))
        self.broker.end_writer(name, self.now, b"spark 127.0.0.1:1")
        self.chunks = {key: value for key, value in self.chunks.items() if key[0] != name}
        self.ended.add(name)


def _held(connection: Connection, queue: Queue) -> list[int]:
    return sorted(position for position, out in connection.out.items() if out.queue is queue)


_WEIGHTED: list[tuple[int, Callable[[Workload, Connection, Queue], None]]] = [
    (6, Workload._publish),
    (1, Workload._publish_named),
    (1, Workload._subscribe),
    (1, Workload._receive),
    (1, Workload._lock),
    (1, Workload._pop),
    (3, Workload._acknowledge),
    (3, Workload._give_back),
    (1, Workload._redrive),
    (1, Workload._lease),
    (1, Workload._settle_leases),
    (2, Workload._write),
]
_RARE: list[tuple[float, Callable[[Workload, Connection, Queue], None]]] = [
    (0.5, Workload._disconnect),
    (0.3, Workload._purge),
    (0.3, Workload._delete_one),
    (0.2, Workload._configure),
    (0.1, Workload._recreate),
    (0.1, Workload._forget_reader),
    (0.1, Workload._end_writer),
]
_COMMANDS = [command for _, command in [*_WEIGHTED, *_RARE]]
_WEIGHTS = [weight for weight, _ in [*_WEIGHTED, *_RARE]]
