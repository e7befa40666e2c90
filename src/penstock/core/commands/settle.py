"""Commands that end a delivery: acknowledge, release, requeue, reject; and the returns that other commands share.

A connection can settle only messages that it holds. All others are ignored and counted by the caller, so that a late
acknowledgement never settles another connection's delivery.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from penstock.core.commands.dead_letters import dead_letter_outs
from penstock.core.commands.dispatch import dispatch, update_credit
from penstock.core.events import Values
from penstock.core.queue import Connection, Out, Queue
from penstock.core.state import BrokerState
from penstock.schema import Kind, Reason


def acknowledge(state: BrokerState, connection: Connection, queue: Queue, positions: Iterable[int], now: int) -> int:
    """Acknowledge messages. Returns how many of them the connection had."""
    outs = end_deliveries(state, connection, queue, positions)
    if outs:
        log_acknowledged(state, queue, outs, now, connection.source)
        dispatch(state, queue, now)
    return len(outs)


def release(state: BrokerState, connection: Connection, queue: Queue, position: int, now: int) -> bool:
    """Return the message to its old place."""
    outs = end_deliveries(state, connection, queue, (position,))
    return_messages(state, queue, outs, Reason.RELEASED, now, connection.source)
    dispatch(state, queue, now)
    return bool(outs)


def requeue(state: BrokerState, connection: Connection, queue: Queue, position: int, now: int, *, ttl: int = 0) -> bool:
    """Put the message at the end of its priority, with a new time to live (0 = none) and no retry spent."""
    outs = end_deliveries(state, connection, queue, (position,), dead=False)
    for out in outs:
        out.item = out.item._replace(expires=now + ttl if ttl else 0)
    requeue_messages(state, queue, outs, Reason.NONE, now, connection.source)
    dispatch(state, queue, now)
    return bool(outs)


def reject(state: BrokerState, connection: Connection, queue: Queue, positions: Iterable[int], now: int) -> int:
    """Move the messages to the dead letters. Returns how many of them the connection had."""
    outs = end_deliveries(state, connection, queue, positions, dead=False)
    dead_letter_outs(state, queue, outs, Reason.REJECTED, now, connection.source)
    dispatch(state, queue, now)
    return len(outs)


def end_deliveries(
    state: BrokerState, connection: Connection, queue: Queue, positions: Iterable[int], *, dead: bool = True
) -> list[Out]:
    """Take these messages from the connection, as far as it has them, and open its window again.

    Dead letters are skipped unless ``dead``: they can only be acknowledged or returned.
    """
    outs: list[Out] = []
    had, has = connection.out, queue.out
    counted = 0
    locked: list[Out] = []
    for position in positions:
        out = had.get(position)
        if out is None or out.queue is not queue or (out.dead and not dead):
            continue
        del had[position]
        del has[position]
        out.ended = True
        outs.append(out)
        if out.deadline:
            locked.append(out)
        if out.counted:
            counted += 1
    if locked:
        state.unlock(locked)
    if counted:
        connection.given[queue.id] -= counted
    state.out -= len(outs)
    if state.throttled:
        state.throttled_unchecked = len(state.throttled)
    if not connection.given.get(queue.id, 1):
        del connection.given[queue.id]
    window = connection.subscriptions.get((queue.id, False))
    if outs and window is not None and window.window:
        update_credit(state, window)
    return outs


def log_acknowledged(state: BrokerState, queue: Queue, outs: Sequence[Out], now: int, source: bytes) -> None:
    """Record messages whose deliveries have ended as acknowledged."""
    if len(outs) == 1:
        out = outs[0]
        state.log.end(Kind.ACKNOWLEDGED, now, queue.id, source, out.item.position, out.deliveries + 1, out.delivered_at)
    else:
        state.log.others(Kind.ACKNOWLEDGED, now, queue.id, source, len(outs), _ends(outs))
    queue.counters.acknowledged += len(outs)
    if state.moved_to or queue.has_notes:
        for out in outs:
            state.forget_message(queue, out.item.position)


def return_messages(
    state: BrokerState, queue: Queue, outs: Sequence[Out], reason: Reason, now: int, source: bytes
) -> None:
    """Return messages to their old places. A dead letter stays where it was: nothing happened to it."""
    queue.dead.insert_many(out.item for out in outs if out.dead)
    back = _dead_letter_spent(state, queue, [out for out in outs if not out.dead], now, source)
    if not back:
        return
    columns = _states(back, reason)
    columns["rank"] = array("Q", [0 if out.item.rank == out.item.position else out.item.rank for out in back])
    state.log.others(Kind.RETURNED, now, queue.id, source, len(back), columns)
    items = [out.item for out in back]
    queue.ready.insert_many(items)
    for out in back:
        queue.note(out.item, out.deliveries + 1)
    state.schedule_for(queue, items)


def requeue_messages(
    state: BrokerState, queue: Queue, outs: Sequence[Out], reason: Reason, now: int, source: bytes
) -> None:
    """Put messages at the end of their priority."""
    back = _dead_letter_spent(state, queue, outs, now, source)
    if not back:
        return
    first = state.log.others(Kind.REQUEUED, now, queue.id, source, len(back), _states(back, reason))
    items = [out.item._replace(rank=first + offset) for offset, out in enumerate(back)]
    queue.ready.insert_many(items)
    for item, out in zip(items, back, strict=True):
        queue.note(item, out.deliveries + 1)
    state.schedule_for(queue, items)


def _dead_letter_spent(state: BrokerState, queue: Queue, outs: Sequence[Out], now: int, source: bytes) -> list[Out]:
    """Make dead letters of returned messages that have expired or were delivered too often; returns the others."""
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
    dead_letter_outs(state, queue, expired, Reason.EXPIRED, now, source)
    dead_letter_outs(state, queue, spent, Reason.DELIVERIES, now, source)
    return back


def _ends(outs: Sequence[Out]) -> dict[str, Values]:
    """The columns of every end of a delivery."""
    at = outs[0].delivered_at if outs else 0
    alike = True
    for out in outs:
        if out.deliveries or out.delivered_at != at:
            alike = False
            break
    return {
        "message": array("Q", [out.item.position for out in outs]),
        "deliveries": array("I", (1,)) * len(outs) if alike else array("I", [out.deliveries + 1 for out in outs]),
        "delivered_at": array("q", (at,)) * len(outs) if alike else array("q", [out.delivered_at for out in outs]),
    }


def _states(outs: Sequence[Out], reason: Reason) -> dict[str, Values]:
    """The columns of a delivery that ends with the message alive: its state from now on."""
    return _ends(outs) | {
        "reason": array("B", (reason,)) * len(outs),
        "retries_left": array("B", [out.item.retries for out in outs]),
        "new_expires_at": array("q", [out.item.expires for out in outs]),
    }
