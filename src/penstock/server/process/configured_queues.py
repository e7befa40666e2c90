"""Queues that exist from the start: those of the options, and those of the listeners."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.policy import Policy, policy_of
from penstock.protocols import protocols
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions


def configure_queues(options: BrokerOptions, runtime: Runtime) -> None:
    """Create the default namespace and the configured queues, and give them their configured rules."""
    broker, now = runtime.broker, runtime.now()
    broker.create_namespace("default", now)
    listeners = [listener for name in protocols() for listener in options.listeners(name)]
    for namespace in {name: None for listener in listeners for name in listener.namespaces()}:
        broker.create_namespace(namespace, now)
    of_listeners = [queue for listener in listeners for queue in listener.queues().items()]
    wanted: dict[str, Policy | None] = {name: None for name, _ in of_listeners}
    wanted |= {name: policy_of(rules) for name, rules in options.queues.items()}
    without_dead = {name for name, dead_letters in of_listeners if not dead_letters}
    for full_name, rules in wanted.items():
        _configure(runtime, full_name, rules, dead_letters=full_name not in without_dead)
    runtime.touched()


def _configure(runtime: Runtime, full_name: str, rules: Policy | None, *, dead_letters: bool) -> None:
    """Create or configure a queue. Without rules it keeps its own; ``dead_letters`` False overrules them."""
    broker, now = runtime.broker, runtime.now()
    namespace, _, name = full_name.partition("/")
    queue = broker.queue(namespace, name)
    policy = rules or (queue.policy if queue else Policy())
    if not dead_letters:
        policy = replace(policy, dead_letters=False)
    if queue is None:
        broker.create_namespace(namespace, now)
        broker.create_queue(namespace, name, now, policy)
    elif queue.policy != policy:
        broker.configure_queue(queue, policy, now)
