"""Commands that end a delivery: acknowledge, give back, put at the end, reject; and connections that go away.

A connection can settle only what it has. Anything else is ignored and counted by the caller, so that a late
acknowledgement never settles somebody else's delivery.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from penstock.core.publishing import Publishing
from penstock.core.queue import Connection, Out, Queue
from penstock.core.state import NOBODY
from penstock.schema import FOREVER, Kind, Reason


class Settling(Publishing):
    """The ends of a delivery."""

    def acknowledge(self, connection: Connection, queue: Queue, positions: Iterable[int], now: int) -> int:
        """The messages are done with. Returns how many of them the connection had."""
        outs = self._settle(connection, queue, positions)
        if outs:
            self._acknowledge(queue, outs, now, connection.source)
            self._dispatch(queue, now)
        return len(outs)

    def release(self, connection: Connection, queue: Queue, position: int, now: int) -> bool:
        """The message goes back to its old place."""
        outs = self._settle(connection, queue, (position,))
        self._give_back(queue, outs, Reason.RELEASED, now, connection.source)
        self._dispatch(queue, now)
        return bool(outs)

    def requeue(self, connection: Connection, queue: Queue, position: int, now: int, *, ttl: int = 0) -> bool:
        """The message goes to the end of its priority, with a new time to live (0 = for ever) and no retry spent."""
        outs = self._settle(connection, queue, (position,), dead=False)
        for out in outs:
            out.item = out.item._replace(expires=now + ttl if ttl else 0)
        self._put_at_end(queue, outs, Reason.NONE, now, connection.source)
        self._dispatch(queue, now)
        return bool(outs)

    def reject(self, connection: Connection, queue: Queue, positions: Iterable[int], now: int) -> int:
        """The messages go to the dead letters. Returns how many of them the connection had."""
        outs = self._settle(connection, queue, positions, dead=False)
        self._bury_outs(queue, outs, Reason.REJECTED, now, connection.source)
        self._dispatch(queue, now)
        return len(outs)

    def connect(self, id: int, source: bytes, *, spends_retries: bool = False) -> Connection:  # noqa: A002
        """A peer is there. ``source`` names protocol and address, as in ``b"phpmq 127.0.0.1:4711"``."""
        connection = self.connections[id] = Connection(id, source, spends_retries=spends_retries)
        return connection

    def disconnect(self, connection: Connection, now: int, unshown: Callable[[Out], bool] | None = None) -> None:
        """A peer is gone: what it had goes back, what it waited for is forgotten.

        Messages that are ``unshown`` never left for the peer: for them it is as if they had not been given out. When
        there are very many messages, the next ticks put them back, and they are out until then.
        """
        del self.connections[connection.id]
        for consumer in connection.consumers.values():
            self._leave(consumer)
        connection.consumers.clear()
        if connection.out:
            connection.unshown = unshown
            self._gone.append((connection, iter(list(connection.out.values()))))
            self._clear_gone(now)

    def _clear_gone(self, now: int) -> None:
        """Put back what connections had that are gone, as much as may be until the next tick."""
        while self._gone and self._give_back_left > 0:
            connection, remaining = self._gone[0]
            part = list(islice(remaining, self._give_back_left))
            self._give_back_left -= max(1, len(part))
            self._put_back(connection, part, now)
            if not connection.out:
                self._gone.popleft()

    def _put_back(self, connection: Connection, outs: Sequence[Out], now: int) -> None:
        by_queue: dict[int, list[Out]] = {}
        for out in outs:
            if connection.out.get(out.item.position) is out:  # its lock may have ended meanwhile
                by_queue.setdefault(out.queue.id, []).append(out)
        for queue_id, had in by_queue.items():
            queue = self.queues[queue_id]
            self._settle(connection, queue, [out.item.position for out in had])
            unshown = set(filter(connection.unshown, had)) if connection.unshown is not None else set()
            self._take_back(queue, [out for out in had if out in unshown])
            lost = [out for out in had if out not in unshown]
            if connection.spends_retries:
                self._spend_retries(queue, lost, now, connection.source)
            else:
                self._give_back(queue, lost, Reason.LOST, now, connection.source)
            self._dispatch(queue, now)

    def _settle(
        self, connection: Connection, queue: Queue, positions: Iterable[int], *, dead: bool = True
    ) -> list[Out]:
        """Take these messages from the connection, where it has them, and open its window again.

        Dead letters are passed over unless ``dead``: they can be acknowledged or given back, nothing else.
        """
        outs: list[Out] = []
        held = connection.out
        for position in positions:
            out = held.get(position)
            if out is None or out.queue is not queue or (out.dead and not dead):
                continue
            del held[position]
            del queue.out[position]
            outs.append(out)
            self._unlock(out)
            if out.counted:
                connection.given[queue.id] -= 1
        self.out -= len(outs)
        if self.held_back:
            self._unlooked = len(self.held_back)
        if not connection.given.get(queue.id, 1):
            del connection.given[queue.id]
        window = connection.consumers.get((queue.id, False))
        if outs and window is not None and window.window:
            self._refresh(window)
        return outs

    def _acknowledge(self, queue: Queue, outs: Sequence[Out], now: int, source: bytes) -> None:
        self.log.others(Kind.ACKNOWLEDGED, now, queue.id, source, len(outs), _ends(outs))
        queue.counters.acknowledged += len(outs)
        if self.homes or queue.has_notes:
            for out in outs:
                self._forget(queue, out.item.position)

    def _spend_retries(self, queue: Queue, outs: Sequence[Out], now: int, source: bytes) -> None:
        """Lost with a connection that counts retries: to the end while some are left, then to the dead letters."""
        self._give_back(queue, [out for out in outs if out.dead], Reason.LOST, now, source)
        alive = [out for out in outs if not out.dead]
        self._bury_outs(queue, [out for out in alive if not out.item.retries], Reason.RETRIES, now, source)
        left = [out for out in alive if out.item.retries]
        for out in left:
            item = out.item
            if item.retries != FOREVER:
                queue.published_retries.setdefault(item.position, item.retries)
                out.item = item._replace(retries=item.retries - 1)
        self._put_at_end(queue, left, Reason.LOST, now, source)

    def _take_back(self, queue: Queue, outs: Sequence[Out]) -> None:
        """Messages that nobody has seen lie where they lay: nothing happened to them."""
        queue.dead.insert_many(out.item for out in outs if out.dead)
        items = [out.item for out in outs if not out.dead]
        queue.put_many(items)
        self._schedule_for(queue, items)

    def _give_back(self, queue: Queue, outs: Sequence[Out], reason: Reason, now: int, source: bytes) -> None:
        """Put messages back at their old places. A dead letter just lies where it lay: nothing happened to it."""
        queue.dead.insert_many(out.item for out in outs if out.dead)
        back = self._bury_spent(queue, [out for out in outs if not out.dead], now, source)
        if not back:
            return
        columns = _states(back, reason)
        columns["rank"] = array("Q", [0 if out.item.rank == out.item.position else out.item.rank for out in back])
        self.log.others(Kind.RETURNED, now, queue.id, source, len(back), columns)
        items = [out.item for out in back]
        queue.put_many(items)
        for out in back:
            queue.note(out.item, out.deliveries + 1)
        self._schedule_for(queue, items)

    def _put_at_end(self, queue: Queue, outs: Sequence[Out], reason: Reason, now: int, source: bytes) -> None:
        """Put messages at the end of their priority."""
        back = self._bury_spent(queue, outs, now, source)
        if not back:
            return
        first = self.log.others(Kind.REQUEUED, now, queue.id, source, len(back), _states(back, reason))
        items = [out.item._replace(rank=first + offset) for offset, out in enumerate(back)]
        queue.put_many(items)
        for item, out in zip(items, back, strict=True):
            queue.note(item, out.deliveries + 1)
        self._schedule_for(queue, items)

    def _bury_spent(self, queue: Queue, outs: Sequence[Out], now: int, source: bytes) -> list[Out]:
        """Of messages that come back, bury those that have expired or were given out too often; return the others."""
        limit = queue.policy.max_deliveries
        back: list[Out] = []
        expired: list[Out] = []
        spent: list[Out] = []
        for out in outs:
            if 0 < out.item.expires <= now:
                expired.append(out)
            elif limit and out.deliveries + 1 >= limit:
                spent.append(out)
            else:
                back.append(out)
        self._bury_outs(queue, expired, Reason.EXPIRED, now, source)
        self._bury_outs(queue, spent, Reason.DELIVERIES, now, source)
        return back

    def _bury_outs(self, queue: Queue, outs: Sequence[Out], reason: Reason, now: int, source: bytes = NOBODY) -> None:
        if outs:
            self._bury(
                queue,
                [out.item for out in outs],
                reason,
                now,
                source=source,
                deliveries=[out.deliveries + 1 for out in outs],
                delivered_at=[out.delivered_at for out in outs],
            )


def _ends(outs: Sequence[Out]) -> dict[str, array[int] | list[bytes]]:
    """The columns that every end of a delivery has."""
    return {
        "message": array("Q", [out.item.position for out in outs]),
        "deliveries": array("I", [out.deliveries + 1 for out in outs]),
        "delivered_at": array("q", [out.delivered_at for out in outs]),
    }


def _states(outs: Sequence[Out], reason: Reason) -> dict[str, array[int] | list[bytes]]:
    """The columns of a delivery that ends with the message alive: how things stand with it from now on."""
    return _ends(outs) | {
        "reason": array("B", (reason,)) * len(outs),
        "retries_left": array("B", [out.item.retries for out in outs]),
        "new_expires_at": array("q", [out.item.expires for out in outs]),
    }
