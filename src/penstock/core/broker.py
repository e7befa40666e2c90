"""The broker as its callers know it: namespaces, queues, time, and all commands of the classes below it.

    State        what is known, and the small shared steps
    Delivering   subscribe, receive, lock, renew, peek, pop
    Publishing   publish
    Settling     acknowledge, release, requeue, reject, connect, disconnect
    Leasing      lease, settle_leases, forget_reader
    DeadLetters  redrive, purge, purge_dead, delete_message
    SettingAside set_aside, put_back
    Carrying     find, carry
    Writing      write, end_writer
    Broker       namespaces and queues, tick, drain

A command takes the time as an argument, changes the state, stages what happened in ``log`` and leaves effects in
``effects``. Nothing here waits, reads a clock, or touches a disk; the same commands give the same events.
"""

from __future__ import annotations

from heapq import heappop
from typing import Any

import msgspec

from penstock.core.held import held_rows
from penstock.core.policy import Policy
from penstock.core.queue import Queue
from penstock.core.state import NOBODY, lock_holds
from penstock.core.writing import Writing
from penstock.schema import Kind, Reason

#: How many messages one ``tick`` expires before it asks to be called again, so that the caller's loop stays free.
TICK_LIMIT = 10_000


class Broker(Writing):
    """All queues. See the module's description."""

    def create_namespace(self, name: str, now: int, source: bytes = NOBODY) -> bool:
        """Make a namespace. False: it exists already."""
        if name in self.namespaces:
            return False
        self.namespaces[name] = {}
        self.log.other(Kind.NAMESPACE_CREATED, now, 0, source, detail=name.encode())
        return True

    def delete_namespace(self, name: str, now: int, source: bytes = NOBODY) -> bool:
        """Remove a namespace. False: it has queues, or does not exist."""
        if self.namespaces.get(name) != {}:
            return False
        del self.namespaces[name]
        self.log.other(Kind.NAMESPACE_DELETED, now, 0, source, detail=name.encode())
        return True

    def queue(self, namespace: str, name: str) -> Queue | None:
        """The queue of this name, if it exists."""
        return self.namespaces.get(namespace, {}).get(name)

    def create_queue(
        self, namespace: str, name: str, now: int, policy: Policy | None = None, source: bytes = NOBODY
    ) -> Queue:
        """Make a queue in a namespace that exists. The caller has made sure that the queue does not."""
        queue = Queue(self.next_queue_id, namespace, name, policy or Policy(), now)
        self.next_queue_id += 1
        self.enter(queue)
        self.log.other(Kind.QUEUE_CREATED, now, queue.id, source, detail=_description(queue))
        return queue

    def configure_queue(self, queue: Queue, policy: Policy, now: int, source: bytes = NOBODY) -> None:
        """Give a queue other rules. They hold for what happens from now on; ``paused`` is one of them."""
        queue.policy = policy
        self.log.other(Kind.QUEUE_CONFIGURED, now, queue.id, source, detail=_description(queue))
        if not policy.dead_letters:
            self._dismiss(queue.waiting_dead)
        self._dispatch(queue, now)

    def delete_queue(self, queue: Queue, now: int, source: bytes = NOBODY) -> bool:
        """Remove a queue. False: something is in it, in whatever state."""
        if not queue.empty:
            return False
        self._dismiss(queue.waiting, windows=True)  # nothing is out, so every window stands in line
        self._dismiss(queue.waiting_dead)
        self._end_empty_leases(queue, now)
        del self.queues[queue.id]
        del self.namespaces[queue.namespace][queue.name]
        # Readers look for news of queues only in blocks that have a detail.
        self.log.other(Kind.QUEUE_DELETED, now, queue.id, source, detail=_description(queue))
        return True

    def tick(self, now: int) -> int | None:
        """Do what time asks for: expire messages, end locks and leases, let delayed messages in.

        Returns when to call again at the latest: ``now`` if there is more to do at once, None if nothing is pending.
        """
        self._end_locks(now)
        budget = self._end_late_leases(now, TICK_LIMIT) if self._lease_ends else TICK_LIMIT
        while budget > 0 and self._deadlines and self._deadlines[0][0] <= now:
            deadline, queue_id = heappop(self._deadlines)
            queue = self.queues.get(queue_id)
            if queue is None or queue.scheduled != deadline:
                continue
            queue.scheduled = 0
            budget -= self._expire(queue, now, budget)
            self.schedule(queue)
        return self._next_deadline(now)

    def drain(self, now: int) -> None:
        """Give nothing out and take nothing in from now on; tell those who wait for a single message."""
        self.draining = True
        for queue in self.queues.values():
            self._dismiss(queue.waiting)
            self._dismiss(queue.waiting_dead)

    def start(self, now: int, detail: dict[str, Any]) -> None:
        """Note that a broker has opened the journal."""
        self.log.other(Kind.STARTED, now, 0, NOBODY, detail=msgspec.json.encode(detail))

    def catalogue(self, now: int) -> None:
        """Stage all namespaces, queues, rules and counters: the first row of every segment. Leases and writers follow.

        They have rows of their own: all queues there may be nearly fill a block.
        """
        held = held_rows(self.leases, self.writers)
        described: dict[str, Any] = {
            "namespaces": sorted(self.namespaces),
            "next_queue_id": self.next_queue_id,
            "queues": [
                {
                    "id": queue.id,
                    "namespace": queue.namespace,
                    "name": queue.name,
                    "created_at": queue.created_at,
                    "policy": queue.policy,
                    "counters": queue.counters.as_dict(),
                }
                for queue in self.queues.values()
            ],
        }
        if held:
            described["held"] = len(held)
        self.log.other(Kind.CATALOGUE, now, 0, NOBODY, detail=msgspec.json.encode(described))
        for row in held:
            self.log.other(Kind.HELD, now, 0, NOBODY, detail=row)

    def check(self) -> None:
        """Assert that no queue has lost or invented a message."""
        for queue in self.queues.values():
            queue.check()

    def enter(self, queue: Queue) -> None:
        """Add a queue that exists: it was made just now, or comes from the journal."""
        self.queues[queue.id] = queue
        self.namespaces.setdefault(queue.namespace, {})[queue.name] = queue

    def _expire(self, queue: Queue, now: int, budget: int) -> int:
        """Expire messages of one queue and let its delayed ones in. Returns how many it handled."""
        expired = queue.take_expired(now, budget)
        handled = len(expired)
        while handled < budget and (head := queue.delayed.head()) is not None and head.rank <= now:
            (item,) = queue.delayed.take(1)
            handled += 1
            if 0 < item.expires <= now:
                expired.append(item)
            else:
                queue.put(item._replace(rank=item.position))
        if expired:
            self._bury(queue, expired, Reason.EXPIRED, now)
        self._dispatch(queue, now)
        queue.check()
        return handled

    def _end_locks(self, now: int) -> None:
        while self._locks and self._locks[0][0] <= now:
            _, lock, out = heappop(self._locks)
            if lock_holds(out, lock):
                self._settle(out.connection, out.queue, (out.item.position,))
                self._give_back(out.queue, [out], Reason.LOCK_EXPIRED, now, out.connection.source)
                self._dispatch(out.queue, now)

    def _next_deadline(self, now: int) -> int | None:
        times = [heap[0][0] for heap in (self._locks, self._deadlines) if heap]
        if self._lease_ends and (ends := self._next_lease_end()) is not None:
            times.append(ends)
        return max(now, min(times)) if times else None


def _description(queue: Queue) -> bytes:
    """A queue's name and rules, as the journal keeps them."""
    return msgspec.json.encode(
        {"namespace": queue.namespace, "name": queue.name, "policy": queue.policy, "created_at": queue.created_at}
    )
