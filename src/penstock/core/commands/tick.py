"""Do the work that is due or that commands left over. Each step does no more than ``core/budget.py`` allows."""

from __future__ import annotations

from typing import Final

from penstock.core import budget
from penstock.core.commands.connect import return_from_departed
from penstock.core.commands.dispatch import continue_dispatch, dispatch, resume_throttled
from penstock.core.commands.expiry import expire_queue, forget_requests
from penstock.core.commands.lease import end_late_leases, next_lease_end
from penstock.core.commands.lock import end_expired_locks
from penstock.core.commands.publish import continue_overflow
from penstock.core.state import BrokerState

_NOTHING: Final = (None, None, None)


def tick(state: BrokerState, now: int) -> int | None:
    """Expire messages, end locks and leases, make delayed messages ready, and continue what was left over.

    No more is done than ``core/budget.py`` allows. Returns when to call again at the latest: ``now`` if there is more
    to do at once, None if nothing is pending. Call it after every few commands, since they leave work to it.
    """
    state.refill()
    if state.unfinished:
        continue_work(state, now)
    if (lock_end := state.lock_ends.head) is not None and lock_end[0] <= now:
        end_expired_locks(state, now)
    if state.lease_ends:
        end_late_leases(state, now, budget.EXPIRE)
    left = budget.EXPIRE
    while left > 0 and (deadline := state.deadlines.head) is not None and deadline[0] <= now:
        queue = state.queues[deadline[1]]
        state.unschedule(queue)
        left = expire_queue(state, queue, now, left - 1)
        dispatch(state, queue, now)
        state.schedule(queue)
    if (request_end := state.request_ends.head) is not None and request_end[0] <= now:
        forget_requests(state, now)
    if state.throttled and resume_throttled(state, now):
        return now
    return _next_deadline(state, now)


def continue_work(state: BrokerState, now: int) -> None:
    """Continue what commands, or an earlier tick, have left over."""
    return_from_departed(state, now)
    continue_overflow(state, now)
    continue_dispatch(state, now)


def _next_deadline(state: BrokerState, now: int) -> int | None:
    if state.unfinished:
        return now
    heads = (state.lock_ends.head, state.deadlines.head, state.request_ends.head)
    if heads == _NOTHING and not state.lease_ends:
        return None
    times: list[int] = [head[0] for head in heads if head is not None]
    if state.lease_ends and (lease_end := next_lease_end(state)) is not None:
        times.append(lease_end)
    return max(now, min(times)) if times else None
