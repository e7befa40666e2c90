"""A broker's persistent state as plain values, so that two brokers can be compared."""

from __future__ import annotations

from typing import Any

from penstock.core.broker import Broker
from penstock.core.leases import Lease
from penstock.core.queue import Queue
from penstock.core.structures.item import Item


def lasting(broker: Broker, now: int) -> dict[str, Any]:
    """Everything that survives a restart: messages that are out count as ready, in their places.

    A delayed message whose time has come counts as ready too, whether ``tick`` has been called or not.
    """
    return {
        "namespaces": sorted(broker.namespaces),
        "next_queue_id": broker.next_queue_id,
        "queues": {queue.full_name: _queue(queue, now) for queue in broker.queues.values()},
        "asked": {asked: (queue.full_name, position) for asked, (queue, position) in broker.asked.items()},
        "leases": {position: _lease(lease) for position, lease in broker.leases.items()},
        "leased": broker.leased,
        "writers": {
            name: (each.epoch, dict(each.chunks), dict(each.digests), each.owner, each.at)
            for name, each in broker.writers.items()
        },
        "partitions": broker.partitions,
        "shares": dict(broker.shares),
    }


def forget_requests(view: dict[str, Any], now: int) -> dict[str, Any]:
    """Leave out expired request IDs: it does not matter when they are dropped."""
    for queue in view["queues"].values():
        queue["requests"] = {key: noted for key, noted in queue["requests"].items() if noted[1] > now}
    return view


def difference(one: Any, other: Any, path: str = "") -> str:
    """The first difference between two views, as readable text."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            if one.get(key) != other.get(key):
                return difference(one.get(key), other.get(key), f"{path}/{key}")
    return f"{path}: {one!r} became {other!r}"


STATES = ("ready", "delayed", "dead")


def _queue(queue: Queue, now: int) -> dict[str, Any]:
    waiting = [item for lane in queue.ready.lanes.values() for item in lane]
    waiting += [out.item for out in queue.out.values() if not out.dead]
    aside = {state: [each.item for each in queue.damaged.values() if each.state == state] for state in STATES}
    delayed = [*queue.delayed, *aside["delayed"]]
    waiting += aside["ready"]
    waiting += [item._replace(rank=item.position) for item in delayed if item.rank <= now]
    dead = [*queue.dead, *(out.item for out in queue.out.values() if out.dead), *aside["dead"]]
    return {
        "id": queue.id,
        "policy": queue.policy,
        "created_at": queue.created_at,
        "counters": queue.counters.as_dict(),
        "ready": [_message(queue, item) for item in sorted(waiting, key=lambda item: (-item.priority, item.rank))],
        "delayed": sorted(_message(queue, item) for item in delayed if item.rank > now),
        "dead": [_message(queue, item) for item in sorted(dead)],
        "requests": queue.requests.as_dict(now),
        "asked": dict(queue.asked),
        "bytes": sum(item.size for item in waiting),
    }


def _lease(lease: Lease) -> tuple[Any, ...]:
    """Leave out ``runs``: in a lease from a catalogue they name only messages that existed then."""
    entry = lease.describe()
    outs = [(out.item, out.delivered_at, out.deliveries) for out in lease.connection.out.values()]
    return (entry.reader, entry.instance, entry.since, entry.until, entry.queue, outs)


def _message(queue: Queue, item: Item) -> tuple[Any, ...]:
    return (*item, queue.deliveries.get(item.position, 0), queue.retries_as_published(item))
