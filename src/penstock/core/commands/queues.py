"""Commands that create, configure and delete namespaces and queues."""

from __future__ import annotations

import msgspec

from penstock.core.commands.dispatch import dispatch, end_waiting, update_credit
from penstock.core.commands.lease import end_empty_leases
from penstock.core.policy import Policy
from penstock.core.queue import Queue
from penstock.core.state import BROKER_SOURCE, BrokerState
from penstock.schema import Kind


def create_namespace(state: BrokerState, name: str, now: int, source: bytes = BROKER_SOURCE) -> bool:
    """Create a namespace. False: it exists already."""
    if name in state.namespaces:
        return False
    state.namespaces[name] = {}
    state.log.other(Kind.NAMESPACE_CREATED, now, 0, source, detail=name.encode())
    return True


def delete_namespace(state: BrokerState, name: str, now: int, source: bytes = BROKER_SOURCE) -> bool:
    """Remove a namespace. False: it has queues, or does not exist."""
    if state.namespaces.get(name) != {}:
        return False
    del state.namespaces[name]
    state.log.other(Kind.NAMESPACE_DELETED, now, 0, source, detail=name.encode())
    return True


def find_queue(state: BrokerState, namespace: str, name: str) -> Queue | None:
    """The queue of this name, if it exists."""
    queues = state.namespaces.get(namespace)
    return None if queues is None else queues.get(name)


def create_queue(
    state: BrokerState, namespace: str, name: str, now: int, policy: Policy | None = None, source: bytes = BROKER_SOURCE
) -> Queue:
    """Create a queue in a namespace that exists. The caller has checked that the queue does not exist."""
    queue = Queue(state.next_queue_id, namespace, name, policy or Policy(), now)
    state.next_queue_id += 1
    add_queue(state, queue)
    state.log.other(Kind.QUEUE_CREATED, now, queue.id, source, detail=_description(queue))
    return queue


def configure_queue(state: BrokerState, queue: Queue, policy: Policy, now: int, source: bytes = BROKER_SOURCE) -> None:
    """Replace a queue's rules. They apply to what happens from now on; ``paused`` is one of them."""
    queue.configure(policy)
    state.log.other(Kind.QUEUE_CONFIGURED, now, queue.id, source, detail=_description(queue))
    if not policy.dead_letters:
        end_waiting(state, queue.waiting_dead)
    dispatch(state, queue, now)


def delete_queue(state: BrokerState, queue: Queue, now: int, source: bytes = BROKER_SOURCE) -> bool:
    """Remove a queue. False: it contains messages, in whatever state."""
    if not queue.empty:
        return False
    for subscription in [each for each in state.throttled if each.queue is queue]:
        update_credit(state, subscription)
    end_waiting(state, queue.waiting, windows=True)  # nothing is out, so every window stands in line
    end_waiting(state, queue.waiting_dead)
    end_empty_leases(state, queue, now)
    state.unschedule(queue)
    state.unschedule_requests(queue)
    del state.queues[queue.id]
    del state.namespaces[queue.namespace][queue.name]
    # Readers look for changes of queues only in blocks that have a detail.
    state.log.other(Kind.QUEUE_DELETED, now, queue.id, source, detail=_description(queue))
    return True


def add_queue(state: BrokerState, queue: Queue) -> None:
    """Add a queue that was just created, or comes from the journal."""
    state.queues[queue.id] = queue
    state.namespaces.setdefault(queue.namespace, {})[queue.name] = queue


def _description(queue: Queue) -> bytes:
    """A queue's name and rules in the journal's form."""
    return msgspec.json.encode(
        {"namespace": queue.namespace, "name": queue.name, "policy": queue.policy, "created_at": queue.created_at}
    )
