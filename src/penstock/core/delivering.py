"""Commands that give messages out: windows, single receives, locks, pops and peeks."""

from __future__ import annotations

from collections import deque
from itertools import islice

from penstock.core import budget
from penstock.core.lane import Item
from penstock.core.queue import Connection, Consumer, Out, Queue
from penstock.core.state import Delivery, NoMessage, State
from penstock.schema import Kind, Reason

#: Consumers that were held back, looked at in one go.
HELD_BACK = 100


class Busy(Exception):
    """So many expired messages stand before the next one that it takes another tick to get there: ask again then."""


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
        """Give the next message to the connection at once, locked for ``duration`` or as its queue says. Or Busy."""
        item = self._next(queue, now)
        if item is None:
            return None
        out = self._hand_out(queue, item, connection, now)
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
        """The message that ``pop`` would take, left where it is. Or Busy."""
        if queue.policy.paused:
            return None
        while (item := queue.head()) is not None and 0 < item.expires <= now:
            if self._expired_left <= 0:
                raise Busy
            queue.remove_ready(item.priority, item.rank)
            self._bury_expired(queue, [item], now)
        return item

    def pop(self, connection: Connection, queue: Queue, now: int) -> tuple[Item, int] | None:
        """Take the next message for good. Returns it with the deliveries it had before. Or Busy.

        It must not be shown before the log is durable up to ``log.next_position``: after a crash it would come again.
        """
        item = self._next(queue, now)
        if item is None:
            return None
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

    def _next(self, queue: Queue, now: int) -> Item | None:
        """Remove the next ready message that has not expired. None: there is none, or none may be given. Or Busy."""
        if self.draining:
            return None
        items = self._take(queue, 1, now)
        if not items and queue.ready and not queue.policy.paused:
            raise Busy
        return items[0] if items else None

    def _dispatch(self, queue: Queue, now: int, most: int = budget.HAND_OUT) -> None:
        """Give ready messages to those who wait, one to each in turn; and dead letters to those who wait for these.

        What is more than ``most``, or than may be given out until the next tick, is left to that.
        """
        if queue.waiting_dead:
            self._dispatch_dead(queue, now)
        line = queue.waiting
        while line and queue.ready and not (queue.policy.paused or self.draining):
            room = min(most, self._hand_out_left)
            if room <= 0 or self._expired_left <= 0:
                self._undispatched[queue.id] = queue
                break
            wanted = _wanted(line, min(room, queue.ready))
            if self.out - self.leased + wanted > self.most_out // 2:
                self._dispatch_sparingly(queue, now, room)
                break
            items = self._take(queue, wanted, now)
            most -= len(items)
            self._hand_out_left -= len(items)
            given: dict[Consumer, list[Item]] = {}
            if len(line) == 1 and items:
                given[self._next_in(line, len(items))] = items
            else:
                for item in items:
                    given.setdefault(self._next_in(line), []).append(item)
            for consumer, share in given.items():
                outs = [self._hand_out(queue, item, consumer.connection, now, counted=True) for item in share]
                self._deliver(consumer, outs)
        queue.check()

    def _dispatch_sparingly(self, queue: Queue, now: int, most: int) -> None:
        """The same where many messages are out: each connection's allowance is looked at for each message."""
        line = queue.waiting
        shares: dict[Consumer, list[Out]] = {}
        while line and queue.ready and most > 0 and self._expired_left > 0:
            most -= 1
            self._hand_out_left -= 1
            consumer = line[0]
            if len(consumer.connection.out) >= self.allowance:
                line.popleft()
                consumer.waiting = False
                self.held_back[consumer] = None
                continue
            for item in self._take(queue, 1, now):
                self._next_in(line)
                out = self._hand_out(queue, item, consumer.connection, now, counted=True)
                shares.setdefault(consumer, []).append(out)
        for consumer, outs in shares.items():
            self._deliver(consumer, outs)
        if line and queue.ready:
            self._undispatched[queue.id] = queue

    def _let_go_on(self, now: int) -> bool:
        """Let some of those that were held back stand in line again, as far as they may. True: there may be more."""
        looked_at = list(islice(self.held_back, HELD_BACK))
        free = [consumer for consumer in looked_at if len(consumer.connection.out) < self.allowance]
        self._unlooked -= len(looked_at)
        for consumer in looked_at:
            del self.held_back[consumer]
            if consumer not in free:
                self.held_back[consumer] = None  # behind the others
        for consumer in free:
            self._refresh(consumer)
        for queue in {consumer.queue.id: consumer.queue for consumer in free}.values():
            self._dispatch(queue, now)
        return self._unlooked > 0 and bool(self.held_back)

    def _dispatch_more(self, now: int) -> None:
        """Go on giving out what commands had to leave, a share of each queue in turn."""
        while self._undispatched and self._hand_out_left > 0 and self._expired_left > 0:
            queue = self._undispatched.pop(next(iter(self._undispatched)))
            if queue.id in self.queues:
                self._dispatch(queue, now, budget.HAND_OUT_SHARE)

    def _dispatch_dead(self, queue: Queue, now: int) -> None:
        """Give dead letters to those who wait for them."""
        while queue.waiting_dead and len(queue.dead) and not self.draining:
            if self._hand_out_left <= 0:
                self._undispatched[queue.id] = queue
                break
            self._hand_out_left -= 1
            (item,) = queue.dead.take(1)
            consumer = self._next_in(queue.waiting_dead)
            out = self._hand_out(queue, item, consumer.connection, now, dead=True)
            self._deliver(consumer, [out])

    def _bury_expired(self, queue: Queue, items: list[Item], now: int) -> None:
        self._expired_left -= len(items)
        self._bury(queue, items, Reason.EXPIRED, now)
        self._dispatch_dead(queue, now)

    def _deliver(self, consumer: Consumer, outs: list[Out]) -> None:
        """Leave the effect. Messages that are durable already do not wait for those that are not."""
        connection, queue = consumer.connection, consumer.queue
        if not consumer.window:
            outs[0].single = True
        durable = [out for out in outs if out.item.position < self.committed]
        if durable:
            self.effects.append(Delivery(connection, queue, durable, 0))
        if len(durable) < len(outs):
            fresh = [out for out in outs if out.item.position >= self.committed]
            after = max(out.item.position for out in fresh) + 1
            self.effects.append(Delivery(connection, queue, fresh, after))

    def _take(self, queue: Queue, count: int, now: int) -> list[Item]:
        """Remove the next ready messages that have not expired. Fewer if too many on the way have."""
        if queue.policy.paused:
            return []
        taken: list[Item] = []
        while len(taken) < count and self._expired_left > 0:
            wanted = count - len(taken)
            items = queue.take(min(wanted, self._expired_left) if queue.deadlines else wanted)
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
        *,
        counted: bool = False,
        dead: bool = False,
    ) -> Out:
        position = item.position
        self.out += 1
        deliveries = queue.deliveries.get(position, 0) if queue.deliveries else 0
        out = Out(queue, item, connection, now, deliveries, dead=dead)
        out.counted = counted
        queue.out[position] = out
        connection.out[position] = out
        return out

    def _next_in(self, line: deque[Consumer], count: int = 1) -> Consumer:
        """The consumer whose turn it is; it spends credit and goes to the end of the line, or out of it."""
        consumer = line.popleft()
        consumer.credit -= count
        if not consumer.dead:
            given = consumer.connection.given
            given[consumer.queue.id] = given.get(consumer.queue.id, 0) + count
        if consumer.credit > 0:
            line.append(consumer)
        else:
            consumer.waiting = False
            if not consumer.window:
                del consumer.connection.consumers[(consumer.queue.id, consumer.dead)]
        return consumer

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
        for _ in range(len(line)):
            consumer = line.popleft()
            if consumer.window and not windows:
                line.append(consumer)
                continue
            consumer.waiting = False
            del consumer.connection.consumers[(consumer.queue.id, consumer.dead)]
            self.effects.append(NoMessage(consumer.connection, consumer.queue))

    def _lock_until(self, out: Out, deadline: int) -> None:
        self._unlock(out)
        self._lock_serial += 1
        out.deadline, out.lock = deadline, self._lock_serial
        self._locks.add((deadline, self._lock_serial, out))

    def _unlock(self, out: Out) -> None:
        if out.deadline:
            self._locks.remove((out.deadline, out.lock, out))


def _wanted(line: deque[Consumer], most: int) -> int:
    """How many messages those in line may be given, up to ``most``: long lines are not looked at to their end."""
    wanted = 0
    for consumer in line:
        wanted += consumer.credit
        if wanted >= most:
            return most
    return wanted
