"""What time asks for, and what commands had to leave: each step does no more than ``core/budget.py`` says."""

from __future__ import annotations

from typing import Any

from penstock.core import budget
from penstock.core.commands.connect import return_from_departed
from penstock.core.commands.dispatch import continue_dispatch, dispatch, resume_throttled
from penstock.core.commands.expiry import expire_queue, forget_requests
from penstock.core.commands.lease import end_late_leases, next_lease_end
from penstock.core.commands.lock import end_expired_locks
from penstock.core.commands.publish import continue_overflow
from penstock.core.state import BrokerState
from penstock.core.structures.ordered import Ordered


def tick(state: BrokerState, now: int) -> int | None:
    """Do what time asks for: expire messages, end locks and leases, let delayed messages in; continue what was left.

    No more is done than ``core/budget.py`` says. Returns when to call again at the latest: ``now`` if there is more
    to do at once, None if nothing is pending. Call it after every few commands: it is what they leave work to.
    """
    state.refill()
    continue_work(state, now)
    end_expired_locks(state, now)
    if state.lease_ends:
        end_late_leases(state, now, budget.EXPIRE)
    left = budget.EXPIRE
    while left > 0 and state.deadlines and state.deadlines.first[0] <= now:
        queue = state.queues[state.deadlines.first[1]]
        state.unschedule(queue)
        left = expire_queue(state, queue, now, left - 1)
        dispatch(state, queue, now)
        state.schedule(queue)
    forget_requests(state, now)
    if state.throttled and resume_throttled(state, now):
        return now
    return _next_deadline(state, now)


def continue_work(state: BrokerState, now: int) -> None:
    """Continue what commands, or an earlier tick, have left undone."""
    return_from_departed(state, now)
    continue_overflow(state, now)
    continue_dispatch(state, now)


def _next_deadline(state: BrokerState, now: int) -> int | None:
    if state.unfinished:
        return now
    ends: tuple[Ordered[Any], ...] = (state.lock_ends, state.deadlines, state.request_ends)
    times: list[int] = [each.first[0] for each in ends if each]
    if state.lease_ends and (lease_end := next_lease_end(state)) is not None:
        times.append(lease_end)
    return max(now, min(times)) if times else None
