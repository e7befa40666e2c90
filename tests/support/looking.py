"""A stand-in for a running broker, for requests that only read queues and messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from penstock.core.broker import Broker
from penstock.server.engine.ids import Ids
from penstock.server.network.pollers import Pollers
from penstock.server.network.runtime import Runtime

NOW = 1_700_000_000_000_000


def runtime_of(broker: Broker) -> Runtime:
    """A stand-in for the runtime of this broker."""
    runtime = SimpleNamespace(
        broker=broker,
        engine=SimpleNamespace(moved={}),
        ids=Ids(1, broker),
        now=lambda: NOW,
        pollers=Pollers(),
        loop=SimpleNamespace(time=lambda: 0.0),
    )
    return cast(Runtime, runtime)
