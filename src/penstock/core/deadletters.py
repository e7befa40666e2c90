"""Commands for operators: dead letters back to work, and messages away."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.lane import Item
from penstock.core.leasing import Leasing
from penstock.core.queue import Connection, Queue
from penstock.core.state import NOBODY
from penstock.schema import Kind, Reason


class DeadLetters(Leasing):
    """Re-drive, purge and delete."""

    def redrive(
        self,
        connection: Connection,
        queue: Queue,
        now: int,
        *,
        positions: Sequence[int] | None = None,
        limit: int = 10_000,
        to: Queue | None = None,
    ) -> int:
        """Send dead letters back to the end of their queue, or of another. Returns how many.

        Without ``positions`` the oldest ``limit`` go. They keep their ID and priority, lose their time to live, have
        their retry counter as published and count no deliveries.
        """
        items = self._take_dead(queue, positions, limit)
        if not items:
            return 0
        target = to or queue
        restored = [item._replace(retries=queue.retries_as_published(item), reason=0) for item in items]
        columns = {
            "message": array("Q", [item.position for item in items]),
            "retries_left": array("B", [item.retries for item in restored]),
        }
        if target is not queue:
            columns["from_queue"] = array("I", (queue.id,)) * len(items)
        first = self.log.others(Kind.REDRIVEN, now, target.id, connection.source, len(items), dict(columns))
        for offset, item in enumerate(restored):
            self._move(queue, target, item.position)
            moved = item._replace(rank=first + offset)
            target.put(moved)
            target.note(moved, 0)
        self._dispatch(target, now)
        return len(items)

    def purge(self, connection: Connection, queue: Queue, now: int) -> int:
        """Remove all ready and delayed messages, damaged ones too; those that are out stay out. Returns how many."""
        damaged = [position for position, aside in queue.damaged.items() if aside.state != "dead"]
        count = queue.depth + len(damaged)
        if not count:
            return 0
        kept = sorted(position for position, out in queue.out.items() if not out.dead)
        detail = msgspec.json.encode(kept) if kept else b""
        self.log.other(Kind.PURGED, now, queue.id, connection.source, count=count, detail=detail)
        queue.counters.purged += count
        queue.clear_waiting()
        for position in damaged:
            del queue.damaged[position]
        dead = set(queue.dead.columns()[1].tolist())
        self._forget_all_but(queue, dead | queue.out.keys() | queue.damaged.keys())
        return count

    def purge_dead(self, connection: Connection, queue: Queue, now: int) -> int:
        """Remove all dead letters, damaged ones too; those that are out stay out. Returns how many went."""
        items = queue.dead.take(len(queue.dead))
        damaged = [aside.item for aside in queue.damaged.values() if aside.state == "dead"]
        for item in damaged:
            del queue.damaged[item.position]
        items += damaged
        if not items:
            return 0
        kept = sorted(position for position, out in queue.out.items() if out.dead)
        detail = msgspec.json.encode(kept) if kept else b""
        self.log.other(Kind.DEAD_PURGED, now, queue.id, connection.source, count=len(items), detail=detail)
        queue.counters.purged += len(items)
        for item in items:
            self._forget(queue, item.position)
        return len(items)

    def delete_message(self, connection: Connection, queue: Queue, position: int, now: int) -> bool:
        """Remove one message that waits, is delayed, dead or damaged. False: it is not there, or it is out."""
        return self._drop_one(queue, position, now, Reason.DELETED, connection.source)

    def drop_damaged(self, queue: Queue, positions: Iterable[int], now: int) -> int:
        """Give up messages whose payloads are lost, leased or not. Returns how many that were."""
        return sum(self._drop_one(queue, position, now, Reason.DAMAGED, NOBODY) for position in positions)

    def _drop_one(self, queue: Queue, position: int, now: int, reason: Reason, source: bytes) -> bool:
        item = self._take_one(queue, position)
        if item is None and reason is Reason.DAMAGED:
            item = self._take_leased(queue, position)
        if item is None:
            return False
        self.log.other(
            Kind.DROPPED,
            now,
            queue.id,
            source,
            message=position,
            deliveries=queue.deliveries.get(position, 0),
            reason=reason,
            retries_left=item.retries,
        )
        queue.counters.dropped += 1
        self._forget(queue, position)
        return True

    def _take_one(self, queue: Queue, position: int) -> Item | None:
        aside = queue.damaged.pop(position, None)
        if aside is not None:
            return aside.item
        item = queue.find_ready(position)
        if item is not None:
            return queue.remove_ready(item.priority, item.rank)
        for lane in (queue.delayed, queue.dead):
            for found in lane.find_positions([position]):
                return lane.remove(found.rank, position)
        return None

    def _take_dead(self, queue: Queue, positions: Sequence[int] | None, limit: int) -> list[Item]:
        if positions is None:
            return queue.dead.take(limit)
        return queue.dead.remove_many([item.rank for item in queue.dead.find_positions(positions)])

    def _move(self, queue: Queue, target: Queue, position: int) -> None:
        """A message leaves one queue for another."""
        if queue is target:
            queue.published_retries.pop(position, None)
            return
        queue.counters.moved_out += 1
        target.counters.moved_in += 1
        self.homes[position] = target.id
        queue.forget(position)
        asked = queue.asked.pop(position, None)
        if asked is not None:
            target.asked[position] = asked
            self.asked[asked] = (target, position)

    def _forget_all_but(self, queue: Queue, kept: set[int]) -> None:
        noted = queue.deliveries.keys() | queue.published_retries.keys() | queue.moved.keys() | queue.asked.keys()
        for position in noted - kept:
            self._forget(queue, position)
