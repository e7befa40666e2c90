"""Commands that lock a message for a connection, renew a lock, and end expired locks."""

from __future__ import annotations

from penstock.core import budget
from penstock.core.commands.dispatch import dispatch, hand_out, take_run
from penstock.core.commands.settle import end_deliveries, return_messages
from penstock.core.queue import Connection, Out, Queue
from penstock.core.state import BrokerState
from penstock.schema import Reason


def lock(
    state: BrokerState, connection: Connection, queue: Queue, now: int, duration: int = 0, count: int = 1
) -> list[Out]:
    """Lock the next messages for the connection, for ``duration`` or the queue's default. Or TryAgain.

    There are fewer than ``count`` if the queue has no more, or if too many expired ones precede the next for this tick.
    """
    outs = [hand_out(state, queue, item, connection, now) for item in take_run(state, queue, count, now)]
    queue.count_delivered(len(outs), sum([out.deliveries > 0 for out in outs]) if queue.deliveries else 0)
    state.lock_new(outs, now + (duration or queue.policy.lock))
    return outs


def renew(state: BrokerState, connection: Connection, position: int, now: int, duration: int = 0) -> Out | None:
    """Extend a lock that the connection holds to ``duration`` from now."""
    out = connection.out.get(position)
    if out is None or not out.deadline:
        return None
    state.lock_until(out, now + (duration or out.queue.policy.lock))
    return out


def end_expired_locks(state: BrokerState, now: int) -> None:
    """Return messages whose locks have ended: those of one queue together, so that they keep their order."""
    ended: dict[int, dict[bytes, list[Out]]] = {}
    left = budget.END_LOCKS
    while left > 0 and (end := state.lock_ends.head) is not None and end[0] <= now:
        out = end[2]
        left -= 1
        end_deliveries(state, out.connection, out.queue, (out.item.position,))
        ended.setdefault(out.queue.id, {}).setdefault(out.connection.source, []).append(out)
    for number, by_source in ended.items():
        queue = state.queues[number]
        for source, outs in by_source.items():
            return_messages(state, queue, outs, Reason.LOCK_EXPIRED, now, source)
        dispatch(state, queue, now)
