"""Deliver ready messages to waiting subscriptions in turn, within their credit, the allowance and a step's budget."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from mypy_extensions import mypyc_attr

from penstock.core import budget
from penstock.core.commands.expiry import dead_letter_expired
from penstock.core.queue import Connection, Out, Queue, Subscription
from penstock.core.state import BrokerState, DeliveryEffect, WaitEnded
from penstock.core.structures.item import Item

#: Throttled subscriptions that one step examines.
RESUME: Final = 100


@mypyc_attr(native_class=False)
class TryAgain(Exception):
    """Too many expired messages precede the next one for this tick: repeat the command after the next."""


def dispatch(state: BrokerState, queue: Queue, now: int, most: int = budget.HAND_OUT) -> None:
    """Deliver ready messages, one to each waiting subscription in turn; and dead letters to those that wait for these.

    Messages beyond ``most``, or beyond the budget until the next tick, are left to that tick.
    """
    if queue.waiting_dead:
        dispatch_dead(state, queue, now)
    line = queue.waiting
    while line and queue.ready and not (queue.policy.paused or state.draining):
        room = min(most, state.hand_out_left)
        if room <= 0 or state.expired_left <= 0:
            state.undispatched[queue.id] = queue
            break
        wanted = _wanted(line, min(room, len(queue.ready)))
        if state.out - state.leased + wanted > state.most_out // 2:
            _dispatch_within_allowance(state, queue, now, room)
            break
        items = take_ready(state, queue, wanted, now)
        most -= len(items)
        state.hand_out_left -= len(items)
        if len(items) == 1 or (len(line) == 1 and items):
            _give(state, queue, _next_in_line(line, len(items)), items, now)
            continue
        given: dict[Subscription, list[Item]] = {}
        for item in items:
            given.setdefault(_next_in_line(line), []).append(item)
        for subscription, share in given.items():
            _give(state, queue, subscription, share, now)
    queue.check()


def _give(state: BrokerState, queue: Queue, subscription: Subscription, items: list[Item], now: int) -> None:
    connection = subscription.connection
    _deliver(state, subscription, [hand_out(state, queue, item, connection, now, counted=True) for item in items])


def _dispatch_within_allowance(state: BrokerState, queue: Queue, now: int, most: int) -> None:
    """As ``dispatch`` when many messages are out: checks each connection's allowance for each message."""
    line = queue.waiting
    shares: dict[Subscription, list[Out]] = {}
    while line and queue.ready and most > 0 and state.expired_left > 0:
        most -= 1
        state.hand_out_left -= 1
        subscription = line[0]
        if len(subscription.connection.out) >= state.allowance:
            line.popleft()
            subscription.waiting = False
            state.throttled[subscription] = None
            continue
        for item in take_ready(state, queue, 1, now):
            _next_in_line(line)
            out = hand_out(state, queue, item, subscription.connection, now, counted=True)
            shares.setdefault(subscription, []).append(out)
    for subscription, outs in shares.items():
        _deliver(state, subscription, outs)
    if line and queue.ready:
        state.undispatched[queue.id] = queue


def continue_dispatch(state: BrokerState, now: int) -> None:
    """Deliver what commands left over, a share of each queue in turn."""
    while state.undispatched and state.hand_out_left > 0 and state.expired_left > 0:
        queue = state.undispatched.pop(next(iter(state.undispatched)))
        if queue.id in state.queues:
            dispatch(state, queue, now, budget.HAND_OUT_SHARE)


def dispatch_dead(state: BrokerState, queue: Queue, now: int) -> None:
    """Deliver dead letters to the subscriptions that wait for them."""
    while queue.waiting_dead and len(queue.dead) and not state.draining:
        if state.hand_out_left <= 0:
            state.undispatched[queue.id] = queue
            break
        state.hand_out_left -= 1
        (item,) = queue.dead.take(1)
        subscription = _next_in_line(queue.waiting_dead)
        out = hand_out(state, queue, item, subscription.connection, now, dead=True)
        _deliver(state, subscription, [out])


def resume_throttled(state: BrokerState, now: int) -> bool:
    """Put subscriptions back in line whose connections may have more by now. True: more are left to examine."""
    looked_at = list(islice(state.throttled, RESUME))
    free = [subscription for subscription in looked_at if len(subscription.connection.out) < state.allowance]
    state.throttled_unchecked -= len(looked_at)
    for subscription in looked_at:
        del state.throttled[subscription]
        if subscription not in free:
            state.throttled[subscription] = None  # behind the others
    for subscription in free:
        update_credit(state, subscription)
    for queue in {subscription.queue.id: subscription.queue for subscription in free}.values():
        dispatch(state, queue, now)
    return state.throttled_unchecked > 0 and bool(state.throttled)


def take_run(state: BrokerState, queue: Queue, count: int, now: int) -> list[Item]:
    """The next ``count`` messages; fewer if there are fewer, or if the budget for expired ones ends between them."""
    if state.draining:
        return []
    items = take_ready(state, queue, count, now)
    if not items and count and queue.ready and not queue.policy.paused:
        raise TryAgain
    return items


def take_ready(state: BrokerState, queue: Queue, count: int, now: int) -> list[Item]:
    """Remove the next ready messages that have not expired. Fewer if too many expired ones are in between."""
    if queue.policy.paused:
        return []
    taken: list[Item] = []
    while len(taken) < count and state.expired_left > 0:
        wanted = count - len(taken)
        if queue.ready.deadlines.head is None:  # none of them ever expires
            return taken + queue.ready.take(wanted) if taken else queue.ready.take(wanted)
        items = queue.ready.take(min(wanted, state.expired_left))
        if not items:
            break
        expired = [item for item in items if 0 < item.expires <= now]
        if expired:
            dead_letter_expired(state, queue, expired, now)
            dispatch_dead(state, queue, now)
            items = [item for item in items if not 0 < item.expires <= now]
        taken += items
    return taken


def hand_out(
    state: BrokerState,
    queue: Queue,
    item: Item,
    connection: Connection,
    now: int,
    *,
    counted: bool = False,
    dead: bool = False,
) -> Out:
    """Assign the message to the connection from now on. ``counted``: it counts towards a window."""
    position = item.position
    state.out += 1
    deliveries = queue.deliveries.get(position, 0) if queue.deliveries else 0
    out = Out(queue, item, connection, now, deliveries, dead=dead)
    out.counted = counted
    queue.out[position] = out
    connection.out[position] = out
    return out


def update_credit(state: BrokerState, subscription: Subscription) -> None:
    """Recompute a window's credit, and join or leave the line accordingly."""
    subscription.credit = max(0, subscription.window - subscription.out)
    if subscription.credit and not subscription.waiting:
        state.throttled.pop(subscription, None)
        subscription.queue.waiting.append(subscription)
        subscription.waiting = True
    elif not subscription.credit:
        leave_line(state, subscription)


def leave_line(state: BrokerState, subscription: Subscription) -> None:
    """Deliver nothing to the subscription any more."""
    state.throttled.pop(subscription, None)
    if subscription.waiting:
        line = subscription.queue.waiting_dead if subscription.dead else subscription.queue.waiting
        line.remove(subscription)
        subscription.waiting = False


def end_waiting(state: BrokerState, line: deque[Subscription], *, windows: bool = False) -> None:
    """End the wait of every subscription in line for a single message, and of windows if ``windows``."""
    for _ in range(len(line)):
        subscription = line.popleft()
        if subscription.window and not windows:
            line.append(subscription)
            continue
        subscription.waiting = False
        subscription.queue.subscribers -= 1
        del subscription.connection.subscriptions[(subscription.queue.id, subscription.dead)]
        state.effects.append(WaitEnded(subscription.connection, subscription.queue))


def _deliver(state: BrokerState, subscription: Subscription, outs: list[Out]) -> None:
    """Leave the effect. Messages that are already durable do not wait for those that are not."""
    connection, queue = subscription.connection, subscription.queue
    queue.count_delivered(len(outs), sum(out.deliveries > 0 for out in outs) if queue.deliveries else 0)
    if not subscription.window:
        outs[0].single = True
    committed = state.committed
    fresh = [out for out in outs if out.item.position >= committed]
    if len(fresh) < len(outs):
        durable = [out for out in outs if out.item.position < committed] if fresh else outs
        state.effects.append(DeliveryEffect(connection, queue, durable, 0))
    if fresh:
        after = max([out.item.position for out in fresh]) + 1
        state.effects.append(DeliveryEffect(connection, queue, fresh, after))


def _next_in_line(line: deque[Subscription], count: int = 1) -> Subscription:
    """The subscription whose turn it is; it spends credit and goes to the end of the line, or out of it."""
    subscription = line.popleft()
    subscription.credit -= count
    if not subscription.dead:
        given = subscription.connection.given
        given[subscription.queue.id] = given.get(subscription.queue.id, 0) + count
    if subscription.credit > 0:
        line.append(subscription)
    else:
        subscription.waiting = False
        if not subscription.window:
            del subscription.connection.subscriptions[(subscription.queue.id, subscription.dead)]
            subscription.queue.subscribers -= 1
    return subscription


def _wanted(line: deque[Subscription], most: int) -> int:
    """How many messages the line may receive, up to ``most``: long lines are not examined to their end."""
    wanted = 0
    for subscription in line:
        wanted += subscription.credit
        if wanted >= most:
            return most
    return wanted
