"""A reference model of the queues: lists of messages, sorted on every access.

It is slow, and simple enough to be obviously correct. Commands are those of :class:`penstock.core.broker.Broker`;
queues are named, connections are numbered, messages are identified by the position of their publication. Rules are
those of docs/protocols; where several messages die in one step, the order among them is: by reason (retries, expired,
deliveries), then as they stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.core.policy import Policy
from penstock.schema import FOREVER, Reason
from support.model_queue import Message, ModelQueue, Waiter

#: The owner of a leased message.
LEASE = -1


class Effect(NamedTuple):
    queue: str
    connection: int
    positions: tuple[int, ...]  # empty: no message will come


class ModelLease(NamedTuple):
    reader: str
    queue: str
    until: int
    messages: list[Message]


class Model:
    """All queues."""

    def __init__(self) -> None:
        self.queues: dict[str, ModelQueue] = {}
        self.connections: dict[int, bool] = {}  # the value: it spends retries
        self.effects: list[Effect] = []
        self.leases: dict[int, ModelLease] = {}
        #: The newest epoch, and of each partition the number of chunks and the last digest.
        self.writers: dict[str, tuple[int, dict[int, tuple[int, int]]]] = {}
        self.draining = False
        self._serial = 0

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def restart(self) -> None:
        """The broker was killed and restarted: no connections, and messages that were out are back in their places."""
        self.connections.clear()
        self.effects.clear()
        self.draining = False
        for queue in self.queues.values():
            queue.waiters.clear()
            queue.line.clear()
            queue.dead_line.clear()
            for message in [message for message in queue.out if message.owner != LEASE]:
                message.state = "dead" if message.reason else "ready"
                message.owner = message.handed = message.deadline = message.locked = 0

    # Queues

    def create_queue(self, name: str, policy: Policy) -> None:
        self.queues[name] = ModelQueue(policy)

    def configure_queue(self, name: str, policy: Policy, now: int) -> None:
        queue = self.queues[name]
        queue.policy = policy
        if not policy.dead_letters:
            self._dismiss_dead(name)
        self._dispatch(name, now)

    def delete_queue(self, name: str) -> bool:
        if self.queues[name].messages:
            return False
        self._dismiss(name, windows=True)
        del self.queues[name]
        return True

    def drain(self) -> None:
        self.draining = True
        for name in self.queues:
            self._dismiss(name)

    def _dismiss(self, name: str, *, windows: bool = False) -> None:
        queue = self.queues[name]
        for waiter in [waiter for waiter in queue.line if windows or not waiter.window]:
            queue.line.remove(waiter)
            del queue.waiters[waiter.connection]
            self.effects.append(Effect(name, waiter.connection, ()))
        self._dismiss_dead(name)

    def _dismiss_dead(self, name: str) -> None:
        for waiter in self.queues[name].dead_line:
            self.effects.append(Effect(name, waiter.connection, ()))
        self.queues[name].dead_line.clear()

    # Publishing

    def publish(
        self,
        name: str,
        sizes: Sequence[int],
        now: int,
        first: int,
        *,
        ttl: int | None = None,
        expires_at: int = 0,
        priority: int = 0,
        delay: int = 0,
        retries: int = FOREVER,
        request_id: bytes = b"",
        asked_id: bytes = b"",
    ) -> tuple[int, int, str | None, bool]:
        """``first`` is the position of the first message. Returns first, accepted, refusal, duplicate."""
        queue = self.queues[name]
        if request_id in queue.requests and queue.requests[request_id][1] > now:
            return queue.requests[request_id][0], 1, None, True
        accepted, refusal = self._admit(queue, sizes, asked_id, bool(delay))
        if not accepted:
            return 0, 0, refusal, False
        if ttl is None and not expires_at:
            ttl = queue.policy.default_ttl
        ends = [end for end in (ttl and now + ttl, expires_at) if end]
        for offset in range(accepted):
            message = self._add(queue, first + offset, sizes[offset], min(ends, default=0), now, priority, delay)
            message.retries = message.published_retries = retries
            message.asked = asked_id
        if request_id:
            queue.requests[request_id] = (first, now + queue.policy.deduplication)
        self._dispatch(name, now)
        self._make_room(name, now)
        return first, accepted, refusal, False

    def _add(
        self, queue: ModelQueue, position: int, size: int, expires: int, now: int, priority: int, delay: int
    ) -> Message:
        message = Message(position, size, priority, expires, FOREVER, self._next())
        if delay:
            message.state, message.due = "delayed", now + delay
        queue.messages.append(message)
        queue.counters["published"] += 1
        return message

    def write(
        self,
        key: tuple[str, int, int, int, int],
        rows: dict[str, list[tuple[int, int, int, int]]],
        now: int,
        first: int,
    ) -> str:
        """``rows`` contains size, ttl (-1: the queue's default), delay and priority. Returns the chunk's outcome."""
        writer, epoch, partition, chunk, digest = key
        newest, chunks = self.writers.get(writer, (epoch, {}))
        if epoch < newest:
            return "duplicate"
        chunks = chunks if epoch == newest else {}
        taken, last = chunks.get(partition, (0, 0))
        if chunk > taken:
            return "gap"
        if chunk < taken:
            differs = chunk == taken - 1 and digest and last and digest != last
            return "differs" if differs else "duplicate"
        for name, each in rows.items():
            _, refusal = self._admit(self.queues[name], [row[0] for row in each], b"", any(row[2] for row in each))
            if refusal:
                return refusal
        for name, each in rows.items():
            for size, ttl, delay, priority in each:
                span = self.queues[name].policy.default_ttl if ttl < 0 else ttl
                self._add(self.queues[name], first, size, now + span if span else 0, now, priority, delay)
                first += 1
        self.writers[writer] = (epoch, chunks | {partition: (chunk + 1, digest)})
        for name in rows:
            self._dispatch(name, now)
            self._make_room(name, now)
        return "written"

    def end_writer(self, writer: str) -> bool:
        return self.writers.pop(writer, None) is not None

    def _admit(self, queue: ModelQueue, sizes: Sequence[int], asked_id: bytes, delayed: bool) -> tuple[int, str | None]:
        if asked_id and any(asked_id == m.asked for other in self.queues.values() for m in other.messages):
            return 0, "EXISTS"
        if self.draining:
            return 0, "DRAINING"
        policy = queue.policy
        drops = policy.on_full == "drop-oldest"
        # A queue that drops its oldest has room for whatever fits beside the delayed ones, which it can't drop.
        held = [message.size for message in (queue.delayed if drops else queue.waiting)]
        for accepted, size in enumerate(sizes):
            if policy.max_bytes and size > policy.max_bytes:
                return accepted, "TOO_LARGE"
            over_depth = policy.max_depth and len(held) + 1 > policy.max_depth
            over_bytes = policy.max_bytes and sum(held) + size > policy.max_bytes
            if over_depth or over_bytes:
                return accepted, "FULL"
            if delayed or not drops:
                held.append(size)
        return len(sizes), None

    def _make_room(self, name: str, now: int) -> None:
        queue, policy = self.queues[name], self.queues[name].policy
        while policy.on_full == "drop-oldest" and queue.ready:
            over_depth = policy.max_depth and len(queue.waiting) > policy.max_depth
            over_bytes = policy.max_bytes and sum(message.size for message in queue.waiting) > policy.max_bytes
            if not over_depth and not over_bytes:
                break
            self._dead_letter(name, [min(queue.ready, key=lambda message: message.place)], Reason.OVERFLOW)
        self._dispatch_dead(name)

    # Delivery

    def subscribe(self, connection: int, name: str, window: int, now: int) -> None:
        queue = self.queues[name]
        waiter = queue.waiters.setdefault(connection, Waiter(connection, window))
        waiter.window = window
        if not window:
            del queue.waiters[connection]
            queue.line = [other for other in queue.line if other is not waiter]
        queue.line_up(connection)
        self._dispatch(name, now)

    def receive(self, connection: int, name: str, now: int, *, dead: bool = False) -> bool:
        queue = self.queues[name]
        if self.draining or (dead and not queue.policy.dead_letters):
            return False
        taken = [waiter.connection for waiter in queue.dead_line] if dead else list(queue.waiters)
        if connection in taken:
            return False
        waiter = Waiter(connection, 0)
        if dead:
            queue.dead_line.append(waiter)
        else:
            queue.waiters[connection] = waiter
            queue.line.append(waiter)
        self._dispatch(name, now)
        return True

    def lock(self, connection: int, name: str, now: int, duration: int = 0) -> int | None:
        message = self._head(name, now)
        if message is None:
            return None
        self._hand_out(message, connection)
        message.locked = self._next()
        message.deadline = now + (duration or self.queues[name].policy.lock)
        return message.position

    def renew(self, connection: int, position: int, now: int, duration: int = 0) -> int | None:
        for queue in self.queues.values():
            for message in queue.out:
                if message.position == position and message.owner == connection and message.locked:
                    message.locked = self._next()
                    message.deadline = now + (duration or queue.policy.lock)
                    return message.deadline
        return None

    def peek(self, name: str, now: int) -> int | None:
        message = self._head(name, now, draining=False)
        return None if message is None else message.position

    def pop(self, name: str, now: int) -> tuple[int, int] | None:
        message = self._head(name, now)
        if message is None:
            return None
        self._remove(name, [message], "popped")
        return message.position, message.deliveries

    def _head(self, name: str, now: int, *, draining: bool | None = None) -> Message | None:
        """The next ready message. Moves expired ones before it to the dead letters."""
        queue = self.queues[name]
        if queue.policy.paused or (self.draining if draining is None else draining):
            return None
        while queue.ready and queue.ready[0].expired(now):
            self._dead_letter(name, [queue.ready[0]], Reason.EXPIRED)
            self._dispatch_dead(name)
        return queue.ready[0] if queue.ready else None

    def _hand_out(self, message: Message, connection: int) -> None:
        message.state, message.owner, message.handed = "out", connection, self._next()
        message.deadline = message.locked = 0

    def _dispatch(self, name: str, now: int) -> None:
        """Hand ready messages to the waiters in line, one to each in turn."""
        self._dispatch_dead(name)
        queue = self.queues[name]
        given: dict[int, list[int]] = {}
        while queue.line and (message := self._head(name, now)) is not None:
            waiter = queue.line.pop(0)
            self._hand_out(message, waiter.connection)
            given.setdefault(waiter.connection, []).append(message.position)
            if not waiter.window:
                del queue.waiters[waiter.connection]
            queue.line_up(waiter.connection)
        self.effects += [Effect(name, connection, tuple(positions)) for connection, positions in given.items()]

    def _dispatch_dead(self, name: str) -> None:
        queue = self.queues[name]
        while queue.dead_line and queue.dead and not self.draining:
            message, waiter = queue.dead[0], queue.dead_line.pop(0)
            self._hand_out(message, waiter.connection)
            self.effects.append(Effect(name, waiter.connection, (message.position,)))

    # Settling

    def acknowledge(self, connection: int, name: str, positions: Iterable[int], now: int) -> int:
        outs = self._owned(connection, name, positions)
        self._remove(name, outs, "acknowledged")
        self.queues[name].line_up(connection)
        self._dispatch(name, now)
        return len(outs)

    def release(self, connection: int, name: str, position: int, now: int) -> bool:
        outs = self._owned(connection, name, [position])
        self._come_back(name, outs, now, at_end=False)
        self._dispatch(name, now)
        return bool(outs)

    def requeue(self, connection: int, name: str, position: int, now: int, *, ttl: int = 0) -> bool:
        outs = [message for message in self._owned(connection, name, [position]) if not message.reason]
        for message in outs:
            message.expires = ttl and now + ttl
        self._come_back(name, outs, now, at_end=True)
        self._dispatch(name, now)
        return bool(outs)

    def reject(self, connection: int, name: str, positions: Iterable[int], now: int) -> int:
        outs = [message for message in self._owned(connection, name, positions) if not message.reason]
        for message in outs:
            message.deliveries += 1
        self._dead_letter(name, outs, Reason.REJECTED)
        self.queues[name].line_up(connection)
        self._dispatch(name, now)
        return len(outs)

    def connect(self, connection: int, *, spends_retries: bool) -> None:
        self.connections[connection] = spends_retries

    def disconnect(self, connection: int, now: int, step: int) -> None:
        """Return the connection's messages step by step, in order of delivery."""
        spends_retries = self.connections.pop(connection)
        for queue in self.queues.values():
            queue.waiters.pop(connection, None)
            queue.line = [waiter for waiter in queue.line if waiter.connection != connection]
            queue.dead_line = [waiter for waiter in queue.dead_line if waiter.connection != connection]
        had = [m for queue in self.queues.values() for m in queue.out if m.owner == connection]
        had.sort(key=lambda message: message.handed)
        for at in range(0, len(had), step):
            self._lose(had[at : at + step], now, spends_retries=spends_retries)

    def _lose(self, had: list[Message], now: int, *, spends_retries: bool) -> None:
        for name, queue in self.queues.items():
            outs = [message for message in queue.out if message in had]
            if spends_retries:
                self._spend_retries(name, [message for message in outs if not message.reason])
            self._come_back(name, [m for m in outs if m.state == "out"], now, at_end=spends_retries)
            if outs:
                self._dispatch(name, now)

    def _owned(self, connection: int, name: str, positions: Iterable[int]) -> list[Message]:
        by_position = {m.position: m for m in self.queues[name].out if m.owner == connection}
        return [by_position[position] for position in dict.fromkeys(positions) if position in by_position]

    def _spend_retries(self, name: str, outs: list[Message]) -> None:
        """After a lost connection, messages without a retry left die, and the rest spend one."""
        spent = [message for message in outs if message.retries == 0]
        for message in spent:
            message.deliveries += 1
        self._dead_letter(name, spent, Reason.RETRIES)
        for message in outs:
            if message.state == "out" and message.retries != FOREVER:
                message.retries -= 1

    def _come_back(self, name: str, outs: list[Message], now: int, *, at_end: bool) -> None:
        """Return a message after a failed delivery. Dead letters keep their place."""
        queue = self.queues[name]
        for message in [message for message in outs if message.reason]:
            message.state = "dead"
        alive = [message for message in outs if not message.reason]
        limit = queue.policy.max_deliveries
        for message in alive:
            message.deliveries += 1
        self._dead_letter(name, [m for m in alive if m.expired(now)], Reason.EXPIRED)
        self._dead_letter(name, [m for m in alive if m.state == "out" and 0 < limit <= m.deliveries], Reason.DELIVERIES)
        for message in [message for message in alive if message.state == "out"]:
            message.state = "ready"
            if at_end:
                message.place = self._next()
        for message in outs:
            queue.line_up(message.owner)

    # Leases

    def lease(
        self, reader: str, name: str, now: int, timeout: int, position: int, *, max_rows: int, max_bytes: int
    ) -> list[int]:
        """``position`` is the lease's. Returns the positions of the messages."""
        taken: list[Message] = []
        while len(taken) < max_rows and (message := self._head(name, now)) is not None:
            if max_bytes and taken and sum(m.size for m in taken) + message.size > max_bytes:
                break
            self._hand_out(message, LEASE)
            taken.append(message)
        if taken:
            self.leases[position] = ModelLease(reader, name, now + timeout, taken)
        return [message.position for message in taken]

    def settle_leases(self, reader: str, before: int, now: int) -> int:
        ended = self._end_leases(lambda at, lease: lease.reader == reader and at < before)
        for lease in ended:
            self._remove(lease.queue, lease.messages, "acknowledged")
            self._dispatch(lease.queue, now)
        return sum(len(lease.messages) for lease in ended)

    def forget_reader(self, reader: str, now: int) -> int:
        return self._return_leases(self._end_leases(lambda at, lease: lease.reader == reader), now)

    def _end_leases(self, which: Callable[[int, ModelLease], bool]) -> list[ModelLease]:
        ended = [at for at in sorted(self.leases) if which(at, self.leases[at])]
        return [self.leases.pop(at) for at in ended]

    def _return_leases(self, leases: list[ModelLease], now: int) -> int:
        for lease in leases:
            self._come_back(lease.queue, lease.messages, now, at_end=False)
            self._dispatch(lease.queue, now)
        return sum(len(lease.messages) for lease in leases)

    # Ends

    def _dead_letter(self, name: str, messages: list[Message], reason: Reason) -> None:
        policy = self.queues[name].policy
        if not policy.dead_letters or (reason is Reason.EXPIRED and policy.on_expiry == "drop"):
            self._remove(name, messages, "dropped")
            for message in messages:
                message.state = "gone"
            return
        for message in messages:
            message.state, message.reason, message.died, message.expires = "dead", reason, self._next(), 0

    def _remove(self, name: str, messages: list[Message], counter: str) -> None:
        gone = {message.position for message in messages}
        queue = self.queues[name]
        queue.messages = [message for message in queue.messages if message.position not in gone]
        queue.counters[counter] += len(gone)

    # Operators

    def redrive(
        self, name: str, now: int, *, positions: Sequence[int] | None = None, limit: int, to: str | None = None
    ) -> int:
        source, target = self.queues[name], self.queues[to or name]
        chosen = source.dead[:limit] if positions is None else [m for m in source.dead if m.position in positions]
        if not chosen:
            return 0
        if source is not target:
            self._remove(name, chosen, "moved_out")
            target.messages += chosen
            target.counters["moved_in"] += len(chosen)
        for message in chosen:
            message.state, message.place, message.reason = "ready", self._next(), 0
            message.retries, message.deliveries = message.published_retries, 0
        self._dispatch(to or name, now)
        return len(chosen)

    def move(self, name: str, now: int, positions: Sequence[int], to: str) -> int:
        if name == to:
            return 0
        waiting = {message.position: message for message in self.queues[name].waiting}
        chosen = [waiting[position] for position in dict.fromkeys(positions) if position in waiting]
        if not chosen:
            return 0
        self._remove(name, chosen, "moved_out")
        self.queues[to].messages += chosen
        self.queues[to].counters["moved_in"] += len(chosen)
        for message in chosen:
            message.state, message.place, message.due, message.expires = "ready", self._next(), 0, 0
            message.retries, message.deliveries = message.published_retries, 0
        self._dispatch(to, now)
        return len(chosen)

    def purge(self, name: str) -> int:
        waiting = self.queues[name].waiting
        self._remove(name, waiting, "purged")
        return len(waiting)

    def purge_dead(self, name: str) -> int:
        dead = self.queues[name].dead
        self._remove(name, dead, "purged")
        return len(dead)

    def delete_message(self, name: str, position: int) -> bool:
        dropped = [m for m in self.queues[name].messages if m.position == position and m.state != "out"]
        self._remove(name, dropped, "dropped")
        return bool(dropped)

    # Time

    def tick(self, now: int) -> None:
        outs = [(message, name) for name, queue in self.queues.items() for message in queue.out]
        ended = [entry for entry in outs if entry[0].locked and entry[0].deadline <= now]
        ended.sort(key=lambda entry: (entry[0].deadline, entry[0].locked))
        for name in dict.fromkeys(name for _, name in ended):
            for owner in dict.fromkeys(message.owner for message, where in ended if where == name):
                mine = [message for message, where in ended if where == name and message.owner == owner]
                self._come_back(name, mine, now, at_end=False)
            self._dispatch(name, now)
        late_leases = self._end_leases(lambda at, lease: lease.until <= now)
        self._return_leases(sorted(late_leases, key=lambda lease: lease.until), now)
        for name, queue in self.queues.items():
            late = [message for message in queue.delayed if message.fires <= now]
            expired = [m for m in queue.ready if m.expired(now)] + [m for m in late if m.expired(now)]
            for message in late:
                message.state = "ready"
            self._dead_letter(name, expired, Reason.EXPIRED)
            if late or expired:
                self._dispatch(name, now)

    def deadlines(self) -> list[int]:
        """The times of pending deadlines, unordered."""
        times = [lease.until for lease in self.leases.values()]
        for queue in self.queues.values():
            times += [message.expires for message in queue.ready if message.expires]
            times += [message.fires for message in queue.delayed]
            times += [message.deadline for message in queue.out if message.locked]
        return times
