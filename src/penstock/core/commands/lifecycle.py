"""Commands of the broker's process: note a start, describe everything in a segment, drain, check."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.core.catalogue import held_rows
from penstock.core.commands.dispatch import end_waiting
from penstock.core.state import BROKER_SOURCE, BrokerState
from penstock.schema import Kind


def start(state: BrokerState, now: int, detail: dict[str, Any]) -> None:
    """Note that a broker has opened the journal."""
    state.log.other(Kind.STARTED, now, 0, BROKER_SOURCE, detail=msgspec.json.encode(detail))


def catalogue(state: BrokerState, now: int) -> None:
    """Stage all namespaces, queues, rules and counters: the first row of every segment. Leases and writers follow.

    They have rows of their own, since the largest possible number of queues nearly fills a block.
    """
    held = held_rows(state.leases, state.writers)
    described: dict[str, Any] = {
        "namespaces": sorted(state.namespaces),
        "next_queue_id": state.next_queue_id,
        "queues": [
            {
                "id": queue.id,
                "namespace": queue.namespace,
                "name": queue.name,
                "created_at": queue.created_at,
                "policy": queue.policy,
                "counters": queue.counters.as_dict(),
            }
            for queue in state.queues.values()
        ],
    }
    if held:
        described["held"] = len(held)
    state.log.other(Kind.CATALOGUE, now, 0, BROKER_SOURCE, detail=msgspec.json.encode(described))
    for row in held:
        state.log.other(Kind.HELD, now, 0, BROKER_SOURCE, detail=row)


def drain(state: BrokerState, now: int) -> None:
    """Deliver and accept nothing from now on; end the waits for single messages."""
    state.draining = True
    for queue in state.queues.values():
        end_waiting(state, queue.waiting)
        end_waiting(state, queue.waiting_dead)


def check(state: BrokerState) -> None:
    """Assert that no queue has lost or invented a message."""
    for queue in state.queues.values():
        queue.check()
