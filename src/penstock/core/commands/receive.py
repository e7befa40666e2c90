"""Commands that take messages out of a queue without a lock: windows, single receives, peeks and pops."""

from __future__ import annotations

from array import array

from penstock.core.commands.dispatch import (
    TryAgain,
    dispatch,
    dispatch_dead,
    leave_line,
    take_run,
    update_credit,
)
from penstock.core.commands.expiry import dead_letter_expired
from penstock.core.events import Values
from penstock.core.queue import Connection, Queue, Subscription
from penstock.core.state import BrokerState
from penstock.core.structures.item import Item
from penstock.schema import Kind


def subscribe(state: BrokerState, connection: Connection, queue: Queue, window: int, now: int) -> None:
    """Let the connection have up to ``window`` unsettled messages. 0 stops; messages out stay out."""
    key = (queue.id, False)
    subscription = connection.subscriptions.get(key)
    if not window:
        if subscription is not None:
            leave_line(state, subscription)
            del connection.subscriptions[key]
            queue.subscribers -= 1
        return
    if subscription is None:
        subscription = connection.subscriptions[key] = Subscription(connection, queue, 0)
        queue.subscribers += 1
    subscription.window = window
    update_credit(state, subscription)
    dispatch(state, queue, now)


def receive(state: BrokerState, connection: Connection, queue: Queue, now: int, *, dead: bool = False) -> bool:
    """Let the connection wait for one message, or one dead letter. False: this request will get none.

    That is the case while the broker drains, for dead letters if the queue keeps none, and while the connection already
    waits for, or has a window on, the same thing.
    """
    if state.draining or (dead and not queue.policy.dead_letters) or (queue.id, dead) in connection.subscriptions:
        return False
    subscription = Subscription(connection, queue, 0, dead=dead)
    connection.subscriptions[(queue.id, dead)] = subscription
    queue.subscribers += 1
    line = queue.waiting_dead if dead else queue.waiting
    line.append(subscription)
    subscription.waiting = True
    if dead:
        dispatch_dead(state, queue, now)
    else:
        dispatch(state, queue, now)
    return True


def peek(state: BrokerState, queue: Queue, now: int) -> Item | None:
    """The message that ``pop`` would remove, left in place. Or TryAgain."""
    if queue.policy.paused:
        return None
    while (item := queue.ready.head()) is not None and 0 < item.expires <= now:
        if state.expired_left <= 0:
            raise TryAgain
        queue.ready.remove(item)
        dead_letter_expired(state, queue, [item], now)
        dispatch_dead(state, queue, now)
    return item


def pop(
    state: BrokerState, connection: Connection, queue: Queue, now: int, count: int = 1
) -> tuple[list[Item], list[int]]:
    """Remove the next messages for good. Returns them with the deliveries that each had before. Or TryAgain.

    They must not be shown before the log is durable up to ``log.next_position``: after a crash they would be delivered
    again. There are fewer than ``count`` if the queue has no more, or as for ``lock``.
    """
    items = take_run(state, queue, count, now)
    if not items:
        return [], []
    before = [queue.deliveries.get(item.position, 0) for item in items] if queue.deliveries else [0] * len(items)
    if len(items) == 1:
        state.log.end(Kind.POPPED, now, queue.id, connection.source, items[0].position, before[0] + 1, now)
    else:
        columns: dict[str, Values] = {
            "message": array("Q", [item.position for item in items]),
            "deliveries": array("I", [deliveries + 1 for deliveries in before]),
            "delivered_at": array("q", (now,)) * len(items),
        }
        state.log.others(Kind.POPPED, now, queue.id, connection.source, len(items), columns)
    queue.counters.popped += len(items)
    queue.count_delivered(len(items), sum([deliveries > 0 for deliveries in before]))
    if state.moved_to or queue.has_notes:
        for item in items:
            state.forget_message(queue, item.position)
    return items, before
