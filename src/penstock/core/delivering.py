"""Commands that give messages out: windows, single receives, locks, pops and peeks."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappush
from itertools import islice

from penstock.core.lane import Item
from penstock.core.queue import Connection, Consumer, Out, Queue
from penstock.core.state import LOCK_SLACK, Delivery, NoMessage, State, lock_holds
from penstock.schema import Kind, Reason

#: Consumers that were held back, looked at in one go.
HELD_BACK = 100


class Delivering(State):
    """The ways out of a queue that keep the message until it is settled, and ``pop``, which does not."""

    def subscribe(self, connection: Connection, queue: Queue, window: int, now: int) -> None:
        """The connection takes up to ``window`` unsettled messages at a time. 0 stops; messages out stay out."""
        key = (queue.id, False)
        consumer = connection.consumers.get(key)
        if not window:
            if consumer is not None:
                self._leave(consumer)
                del connection.consumers[key]
            return
        if consumer is None:
            consumer = connection.consumers[key] = Consumer(connection, queue, 0)
        if not consumer.window:
            self._adopt(consumer)
        consumer.window = window
        self._refresh(consumer)
        self._dispatch(queue, now)

    def receive(self, connection: Connection, queue: Queue, now: int, *, dead: bool = False) -> bool:
        """The connection waits for one message, or one dead letter. False: this request will get none.

        That is so while the broker drains, for dead letters where the queue keeps none, and while the connection waits
        for, or has a window on, the same thing already.
        """
        if self.draining or (dead and not queue.policy.dead_letters) or (queue.id, dead) in connection.consumers:
            return False
        consumer = Consumer(connection, queue, 0, dead=dead)
        connection.consumers[(queue.id, dead)] = consumer
        line = queue.waiting_dead if dead else queue.waiting
        line.append(consumer)
        consumer.waiting = True
        if dead:
            self._dispatch_dead(queue, now)
        else:
            self._dispatch(queue, now)
        return True

    def lock(self, connection: Connection, queue: Queue, now: int, duration: int = 0) -> Out | None:
        """Give the next message to the connection at once, locked for ``duration`` or as its queue says."""
        items = [] if self.draining else self._take(queue, 1, now)
        if not items:
            return None
        out = self._hand_out(queue, items[0], connection, now)
        self._lock_until(out, now + (duration or queue.policy.lock_duration))
        return out

    def renew(self, connection: Connection, position: int, now: int, duration: int = 0) -> Out | None:
        """Let a lock that the connection holds run for ``duration`` from now."""
        out = connection.out.get(position)
        if out is None or not out.deadline:
            return None
        self._lock_until(out, now + (duration or out.queue.policy.lock_duration))
        return out

    def peek(self, queue: Queue, now: int) -> Item | None:
        """The message that ``pop`` would take, left where it is."""
        if queue.policy.paused:
            return None
        while (item := queue.head()) is not None and 0 < item.expires <= now:
            queue.remove_ready(item.priority, item.rank)
            self._bury_expired(queue, [item], now)
        return item

    def pop(self, connection: Connection, queue: Queue, now: int) -> tuple[Item, int] | None:
        """Take the next message for good. Returns it with the deliveries it had before.

        It must not be shown before the log is durable up to ``log.next_position``: after a crash it would come again.
        """
        items = [] if self.draining else self._take(queue, 1, now)
        if not items:
            return None
        item = items[0]
        deliveries = queue.deliveries.get(item.position, 0)
        self.log.other(
            Kind.POPPED,
            now,
            queue.id,
            connection.source,
            message=item.position,
            deliveries=deliveries + 1,
            delivered_at=now,
        )
        queue.counters.popped += 1
        self._forget(queue, item.position)
        return item, deliveries

    def _dispatch(self, queue: Queue, now: int) -> None:
        """Give ready messages to those who wait, one to each in turn; and dead letters to those who wait for these."""
        if queue.waiting_dead:
            self._dispatch_dead(queue, now)
        line = queue.waiting
        while line and queue.ready and not (queue.policy.paused or self.draining):
            wanted = min(queue.ready, sum(consumer.credit for consumer in line))
            if self.out - self.leased + wanted > self.most_out // 2:
                self._dispatch_sparingly(queue, now)
                break
            items = self._take(queue, wanted, now)
            given: dict[Consumer, list[Item]] = {}
            if len(line) == 1 and items:
                given[self._next_in(line, len(items))] = items
            else:
                for item in items:
                    given.setdefault(self._next_in(line), []).append(item)
            for consumer, share in given.items():
                outs = [self._hand_out(queue, item, consumer.connection, now, consumer) for item in share]
                self._deliver(consumer.connection, queue, outs)
        queue.check()

    def _dispatch_sparingly(self, queue: Queue, now: int) -> None:
        """The same where many messages are out: each connection's allowance is looked at for each message."""
        line = queue.waiting
        shares: dict[Consumer, list[Out]] = {}
        while line and queue.ready:
            consumer = line[0]
            if len(consumer.connection.out) >= self.allowance:
                line.popleft()
                consumer.waiting = False
                self.held_back[consumer] = None
                continue
            items = self._take(queue, 1, now)
            for item in items:
                self._next_in(line)
                out = self._hand_out(queue, item, consumer.connection, now, consumer)
                shares.setdefault(consumer, []).append(out)
        for consumer, outs in shares.items():
            self._deliver(consumer.connection, queue, outs)

    def _let_go_on(self, now: int) -> bool:
        """Let some of those that were held back stand in line again, as far as they may. True: there may be more."""
        looked_at = list(islice(self.held_back, HELD_BACK))
        free = [consumer for consumer in looked_at if len(consumer.connection.out) < self.allowance]
        for consumer in looked_at:
            del self.held_back[consumer]
            if consumer not in free:
                self.held_back[consumer] = None  # behind the others
        for consumer in free:
            self._refresh(consumer)
        for queue in {consumer.queue.id: consumer.queue for consumer in free}.values():
            self._dispatch(queue, now)
        return bool(free and self.held_back)

    def _dispatch_dead(self, queue: Queue, now: int) -> None:
        """Give dead letters to those who wait for them."""
        while queue.waiting_dead and len(queue.dead) and not self.draining:
            (item,) = queue.dead.take(1)
            consumer = self._next_in(queue.waiting_dead)
            out = self._hand_out(queue, item, consumer.connection, now, consumer, dead=True)
            self._deliver(consumer.connection, queue, [out])

    def _bury_expired(self, queue: Queue, items: list[Item], now: int) -> None:
        self._bury(queue, items, Reason.EXPIRED, now)
        self._dispatch_dead(queue, now)

    def _deliver(self, connection: Connection, queue: Queue, outs: list[Out]) -> None:
        """Leave the effect. Messages that are durable already do not wait for those that are not."""
        durable = [out for out in outs if out.item.position < self.committed]
        if durable:
            self.effects.append(Delivery(connection, queue, durable, 0))
        if len(durable) < len(outs):
            fresh = [out for out in outs if out.item.position >= self.committed]
            after = max(out.item.position for out in fresh) + 1
            self.effects.append(Delivery(connection, queue, fresh, after))

    def _take(self, queue: Queue, count: int, now: int) -> list[Item]:
        """Remove the next ready messages that have not expired."""
        if queue.policy.paused:
            return []
        taken: list[Item] = []
        while len(taken) < count:
            items = queue.take(count - len(taken))
            if not items:
                break
            expired = [item for item in items if 0 < item.expires <= now]
            if expired:
                self._bury_expired(queue, expired, now)
                items = [item for item in items if not 0 < item.expires <= now]
            taken += items
        return taken

    def _hand_out(
        self,
        queue: Queue,
        item: Item,
        connection: Connection,
        now: int,
        consumer: Consumer | None = None,
        *,
        dead: bool = False,
    ) -> Out:
        position = item.position
        self.out += 1
        deliveries = queue.deliveries.get(position, 0) if queue.deliveries else 0
        out = Out(queue, item, connection, now, deliveries, dead=dead)
        out.consumer = consumer
        queue.out[position] = out
        connection.out[position] = out
        return out

    def _next_in(self, line: deque[Consumer], count: int = 1) -> Consumer:
        """The consumer whose turn it is; it spends credit and goes to the end of the line, or out of it."""
        consumer = line.popleft()
        consumer.credit -= count
        consumer.out += count
        if consumer.credit > 0:
            line.append(consumer)
        else:
            consumer.waiting = False
            if not consumer.window:
                del consumer.connection.consumers[(consumer.queue.id, consumer.dead)]
        return consumer

    def _adopt(self, consumer: Consumer) -> None:
        """A new window counts what an earlier one, or a receive, has given to the connection."""
        for out in consumer.connection.out.values():
            if out.queue is consumer.queue and out.consumer is not None and not out.dead:
                out.consumer = consumer
                consumer.out += 1

    def _refresh(self, consumer: Consumer) -> None:
        """Work out a window's credit anew, and stand in line accordingly."""
        consumer.credit = max(0, consumer.window - consumer.out)
        if consumer.credit and not consumer.waiting:
            self.held_back.pop(consumer, None)
            consumer.queue.waiting.append(consumer)
            consumer.waiting = True
        elif not consumer.credit:
            self._leave(consumer)

    def _leave(self, consumer: Consumer) -> None:
        self.held_back.pop(consumer, None)
        if consumer.waiting:
            line = consumer.queue.waiting_dead if consumer.dead else consumer.queue.waiting
            line.remove(consumer)
            consumer.waiting = False

    def _dismiss(self, line: deque[Consumer], *, windows: bool = False) -> None:
        """Tell everybody in the line who waits for a single message, or has a window too, that none will come."""
        for consumer in list(line):
            if windows or not consumer.window:
                self._leave(consumer)
                del consumer.connection.consumers[(consumer.queue.id, consumer.dead)]
                self.effects.append(NoMessage(consumer.connection, consumer.queue))

    def _lock_until(self, out: Out, deadline: int) -> None:
        out.deadline = deadline
        self._lock_serial += 1
        out.lock = self._lock_serial
        heappush(self._locks, (deadline, self._lock_serial, out))
        if len(self._locks) > self._lock_limit:
            self._locks = [entry for entry in self._locks if lock_holds(entry[2], entry[1])]
            heapify(self._locks)
            self._lock_limit = 2 * len(self._locks) + LOCK_SLACK
