"""Set messages with unreadable payloads aside, so that the others flow, and put them back once they can be read.

This is not an event: the journal still has the message in its place, so a start finds it there, and sets it aside again
if it is still damaged. No message is given up, and nothing has to be undone when the file is restored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.commands.dispatch import dispatch
from penstock.core.commands.receive import receive
from penstock.core.commands.settle import end_deliveries
from penstock.core.leases import LEASE
from penstock.core.queue import DamagedMessage, Out, Queue
from penstock.core.state import BrokerState, WaitEnded


def set_aside(state: BrokerState, queue: Queue, reasons: Mapping[int, str], now: int) -> int:
    """Set messages of a queue aside, each for a reason: position -> reason. Returns how many there were.

    A message that is out must not have been shown to its peer: it is taken back, and its consumer waits for another. A
    leased message leaves its lease.
    """
    count = 0
    left: list[Out] = []
    for position, reason in reasons.items():
        out = queue.out.get(position)
        found = _take_from(state, queue, out) if out is not None else _take_waiting(queue, position)
        if found is not None:
            queue.damaged[position] = found._replace(reason=reason)
            count += 1
        if out is not None and out.single:
            left.append(out)
    for out in left:  # a consumer that waited for a single message waits for another
        if not receive(state, out.connection, queue, now, dead=out.dead):
            state.effects.append(WaitEnded(out.connection, queue))
    if count:
        dispatch(state, queue, now)
    return count


def put_back(state: BrokerState, queue: Queue, positions: Sequence[int], now: int) -> int:
    """Return messages that can be read again to their old places. Returns how many there were."""
    back = [queue.damaged.pop(position) for position in positions if position in queue.damaged]
    for item, place, _ in back:
        if place == "dead":
            queue.dead.insert_many([item])
        elif place == "delayed":
            queue.delayed.insert_many([item])
        else:
            queue.ready.insert_many([item])
    if back:
        state.schedule(queue)
        dispatch(state, queue, now)
    return len(back)


def _take_waiting(queue: Queue, position: int) -> DamagedMessage | None:
    """Take a message from wherever it waits."""
    ready = queue.find_ready(position)
    if ready is not None:
        queue.ready.remove(ready)
        return DamagedMessage(ready, "ready", "")
    for place, lane in (("delayed", queue.delayed), ("dead", queue.dead)):
        if (found := lane.find(position)) is not None:
            lane.remove(found.rank, position)
            return DamagedMessage(found, place, "")
    return None


def _take_from(state: BrokerState, queue: Queue, out: Out) -> DamagedMessage:
    """Take a message from its consumer."""
    end_deliveries(state, out.connection, queue, (out.item.position,))
    if out.connection.id == LEASE:
        state.leased -= 1
    return DamagedMessage(out.item, "dead" if out.dead else "ready", "")
