"""Expire messages: in ``tick`` when their time has come, or in a command that wants the next message.

An expired message becomes a dead letter, or is dropped where its queue says so: see ``dead_letters``. One that is out
expires when it comes back: see ``settle``.
"""

from __future__ import annotations

from penstock.core import budget
from penstock.core.commands.dead_letters import dead_letter
from penstock.core.queue import Queue
from penstock.core.state import BrokerState
from penstock.core.structures.item import Item
from penstock.schema import Reason


def dead_letter_expired(state: BrokerState, queue: Queue, items: list[Item], now: int) -> None:
    """Handle expired messages that a command met: they are in no lane any more."""
    state.expired_left -= len(items)
    dead_letter(state, queue, items, Reason.EXPIRED, now)


def expire_queue(state: BrokerState, queue: Queue, now: int, left: int) -> int:
    """Expire messages of one queue and make its due delayed messages ready. Returns what is left of the budget."""
    expired, left = queue.ready.take_expired(now, left)
    due = queue.delayed.take(queue.delayed.count_up_to(now, max(0, left)))
    left -= len(due)
    expired += [item for item in due if 0 < item.expires <= now]
    queue.ready.insert_many([item._replace(rank=item.position) for item in due if not 0 < item.expires <= now])
    if expired:
        dead_letter(state, queue, expired, Reason.EXPIRED, now)
    return left


def forget_requests(state: BrokerState, now: int) -> None:
    """Forget request IDs whose time is over."""
    left = budget.FORGET
    while left > 0 and (end := state.request_ends.head) is not None and end[0] <= now:
        queue = state.queues[end[1]]
        state.unschedule_requests(queue)
        left -= queue.requests.forget(now, left) + 1
        state.schedule_requests(queue)
