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

from typing import Any

import msgspec

from penstock.core import budget
from penstock.core.held import held_rows
from penstock.core.ordered import Ordered
from penstock.core.policy import Policy
from penstock.core.queue import Out, Queue
from penstock.core.state import NOBODY
from penstock.core.writing import Writing
from penstock.schema import Kind, Reason


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
        queue.configure(policy)
        self.log.other(Kind.QUEUE_CONFIGURED, now, queue.id, source, detail=_description(queue))
        if not policy.dead_letters:
            self._dismiss(queue.waiting_dead)
        self._dispatch(queue, now)

    def delete_queue(self, queue: Queue, now: int, source: bytes = NOBODY) -> bool:
        """Remove a queue. False: something is in it, in whatever state."""
        if not queue.empty:
            return False
        for consumer in [each for each in self.held_back if each.queue is queue]:
            self._refresh(consumer)
        self._dismiss(queue.waiting, windows=True)  # nothing is out, so every window stands in line
        self._dismiss(queue.waiting_dead)
        self._end_empty_leases(queue, now)
        self._unschedule(queue)
        self._unschedule_requests(queue)
        del self.queues[queue.id]
        del self.namespaces[queue.namespace][queue.name]
        # Readers look for news of queues only in blocks that have a detail.
        self.log.other(Kind.QUEUE_DELETED, now, queue.id, source, detail=_description(queue))
        return True

    def tick(self, now: int) -> int | None:
        """Do what time asks for: expire messages, end locks and leases, let delayed messages in. Go on with the rest.

        No more is done than ``core/budget.py`` says. Returns when to call again at the latest: ``now`` if there is more
        to do at once, None if nothing is pending. Call it after every few commands: it is what they leave work to.
        """
        self._refill()
        self._go_on(now)
        self._end_locks(now)
        if self._lease_ends:
            self._end_late_leases(now, budget.EXPIRE)
        left = budget.EXPIRE
        while left > 0 and self._deadlines and self._deadlines.first[0] <= now:
            queue = self.queues[self._deadlines.first[1]]
            self._unschedule(queue)
            left = self._expire(queue, now, left - 1)
            self.schedule(queue)
        self._forget_requests(now)
        if self.held_back and self._let_go_on(now):
            return now
        return self._next_deadline(now)

    def _go_on(self, now: int) -> None:
        """Go on with what commands have left undone, or an earlier tick."""
        self._clear_gone(now)
        self._make_more_room(now)
        self._dispatch_more(now)

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

    def _expire(self, queue: Queue, now: int, left: int) -> int:
        """Expire messages of one queue and let its delayed ones in. Returns what is left of the budget."""
        expired, left = queue.take_expired(now, left)
        due = queue.delayed.take(queue.delayed.count_up_to(now, max(0, left)))
        left -= len(due)
        expired += [item for item in due if 0 < item.expires <= now]
        queue.put_many([item._replace(rank=item.position) for item in due if not 0 < item.expires <= now])
        if expired:
            self._bury(queue, expired, Reason.EXPIRED, now)
        self._dispatch(queue, now)
        queue.check()
        return left

    def _end_locks(self, now: int) -> None:
        """Put back messages whose locks have ended: those of one queue together, so that they stand in their order."""
        ended: dict[int, dict[bytes, list[Out]]] = {}
        left = budget.END_LOCKS
        while left > 0 and self._locks and self._locks.first[0] <= now:
            out = self._locks.first[2]
            left -= 1
            self._settle(out.connection, out.queue, (out.item.position,))
            ended.setdefault(out.queue.id, {}).setdefault(out.connection.source, []).append(out)
        for number, by_source in ended.items():
            queue = self.queues[number]
            for source, outs in by_source.items():
                self._give_back(queue, outs, Reason.LOCK_EXPIRED, now, source)
            self._dispatch(queue, now)

    def _forget_requests(self, now: int) -> None:
        """Give up request IDs whose time is over."""
        left = budget.FORGET
        while left > 0 and self._request_ends and self._request_ends.first[0] <= now:
            queue = self.queues[self._request_ends.first[1]]
            self._unschedule_requests(queue)
            left -= queue.requests.forget(now, left) + 1
            self.schedule_requests(queue)

    def _next_deadline(self, now: int) -> int | None:
        if self.unfinished:
            return now
        ends: tuple[Ordered[Any], ...] = (self._locks, self._deadlines, self._request_ends)
        times: list[int] = [each.first[0] for each in ends if each]
        if self._lease_ends and (lease_end := self._next_lease_end()) is not None:
            times.append(lease_end)
        return max(now, min(times)) if times else None


def _description(queue: Queue) -> bytes:
    """A queue's name and rules, as the journal keeps them."""
    return msgspec.json.encode(
        {"namespace": queue.namespace, "name": queue.name, "policy": queue.policy, "created_at": queue.created_at}
    )
