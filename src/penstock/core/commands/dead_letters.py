"""Make messages dead letters, for whatever reason, and note that in the journal."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from penstock.core.queue import Out, Queue
from penstock.core.state import BROKER_SOURCE, BrokerState
from penstock.core.structures.item import Item
from penstock.schema import Kind, Reason


def dead_letter(
    state: BrokerState,
    queue: Queue,
    items: Sequence[Item],
    reason: Reason,
    now: int,
    *,
    source: bytes = BROKER_SOURCE,
    deliveries: Sequence[int] = (),
    delivered_at: Sequence[int] = (),
) -> None:
    """Move messages to the dead letters, or drop them if the queue says so. They are in no lane any more.

    ``deliveries`` and ``delivered_at`` are given for messages that were out.
    """
    counts = list(deliveries) or [queue.deliveries.get(item.position, 0) for item in items]
    policy = queue.policy
    drop = not policy.dead_letters or (reason is Reason.EXPIRED and policy.on_expiry == "drop")
    first = state.log.others(
        Kind.DROPPED if drop else Kind.DEAD,
        now,
        queue.id,
        source,
        len(items),
        {
            "message": array("Q", [item.position for item in items]),
            "deliveries": array("I", counts),
            "delivered_at": array("q", list(delivered_at) or [0] * len(items)),
            "reason": array("B", (reason,)) * len(items),
            "retries_left": array("B", [item.retries for item in items]),
        },
    )
    if drop:
        queue.counters.dropped += len(items)
        for item in items:
            state.forget_message(queue, item.position)
        return
    dead = [
        Item(first + offset, item.position, item.size, 0, item.retries, item.priority, reason)
        for offset, item in enumerate(items)
    ]
    queue.dead.insert_many(dead)
    for item, count in zip(dead, counts, strict=True):
        queue.note(item, count)


def dead_letter_outs(
    state: BrokerState, queue: Queue, outs: Sequence[Out], reason: Reason, now: int, source: bytes
) -> None:
    """The same for messages that were out: the delivery that ends is counted."""
    if outs:
        dead_letter(
            state,
            queue,
            [out.item for out in outs],
            reason,
            now,
            source=source,
            deliveries=[out.deliveries + 1 for out in outs],
            delivered_at=[out.delivered_at for out in outs],
        )
