"""Connect and disconnect peers: a departed peer's messages are returned, spread over ticks if there are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from penstock.core.commands.dead_letters import dead_letter_outs
from penstock.core.commands.dispatch import dispatch, leave_line
from penstock.core.commands.settle import end_deliveries, requeue_messages, return_messages
from penstock.core.queue import Connection, Out, Queue
from penstock.core.state import BrokerState
from penstock.schema import FOREVER, Reason


def connect(state: BrokerState, id: int, source: bytes, *, spends_retries: bool = False) -> Connection:  # noqa: A002
    """A peer connects. ``source`` names protocol and address, as in ``b"phpmq 127.0.0.1:4711"``."""
    connection = state.connections[id] = Connection(id, source, spends_retries=spends_retries)
    return connection


def disconnect(
    state: BrokerState, connection: Connection, now: int, unshown: Callable[[Out], bool] | None = None
) -> None:
    """A peer disconnects: its messages go back, and its subscriptions are forgotten.

    ``unshown`` messages never left for the peer, so they return as if they had not been delivered. If there are very
    many messages, the next ticks return them, and they stay out until then.
    """
    del state.connections[connection.id]
    for subscription in connection.subscriptions.values():
        leave_line(state, subscription)
        subscription.queue.subscribers -= 1
    connection.subscriptions.clear()
    if connection.out:
        connection.unshown = unshown
        state.departed.append((connection, iter(list(connection.out.values()))))
        return_from_departed(state, now)


def return_from_departed(state: BrokerState, now: int) -> None:
    """Return messages of departed connections, within the budget until the next tick."""
    while state.departed and state.return_left > 0:
        connection, remaining = state.departed[0]
        part = list(islice(remaining, state.return_left))
        state.return_left -= max(1, len(part))
        _return_all(state, connection, part, now)
        if not connection.out:
            state.departed.popleft()


def _return_all(state: BrokerState, connection: Connection, outs: Sequence[Out], now: int) -> None:
    by_queue: dict[int, list[Out]] = {}
    for out in outs:
        if connection.out.get(out.item.position) is out:  # its lock may have ended meanwhile
            by_queue.setdefault(out.queue.id, []).append(out)
    for queue_id, had in by_queue.items():
        queue = state.queues[queue_id]
        end_deliveries(state, connection, queue, [out.item.position for out in had])
        unshown = set(filter(connection.unshown, had)) if connection.unshown is not None else set()
        _undo_deliveries(state, queue, [out for out in had if out in unshown])
        lost = [out for out in had if out not in unshown]
        if connection.spends_retries:
            _spend_retries(state, queue, lost, now, connection.source)
        else:
            return_messages(state, queue, lost, Reason.LOST, now, connection.source)
        dispatch(state, queue, now)


def _spend_retries(state: BrokerState, queue: Queue, outs: Sequence[Out], now: int, source: bytes) -> None:
    """Return messages lost with a connection that counts retries: to the end of the queue, or to the dead letters.

    A message without retries left becomes a dead letter.
    """
    return_messages(state, queue, [out for out in outs if out.dead], Reason.LOST, now, source)
    alive = [out for out in outs if not out.dead]
    dead_letter_outs(state, queue, [out for out in alive if not out.item.retries], Reason.RETRIES, now, source)
    left = [out for out in alive if out.item.retries]
    for out in left:
        item = out.item
        if item.retries != FOREVER:
            queue.published_retries.setdefault(item.position, item.retries)
            out.item = item._replace(retries=item.retries - 1)
    requeue_messages(state, queue, left, Reason.LOST, now, source)


def _undo_deliveries(state: BrokerState, queue: Queue, outs: Sequence[Out]) -> None:
    """Put back messages that never left for a peer, as if they had not been delivered."""
    queue.dead.insert_many(out.item for out in outs if out.dead)
    items = [out.item for out in outs if not out.dead]
    queue.ready.insert_many(items)
    state.schedule_for(queue, items)
