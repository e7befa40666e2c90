"""The broker's commands, a module for each or a few: functions whose first argument is the state.

* in: :mod:`.publish`, :mod:`.write`; out: :mod:`.receive` (windows, single receives, peek, pop), :mod:`.lock`,
  :mod:`.lease`; ends of a delivery: :mod:`.settle`; peers: :mod:`.connect`
* for operators: :mod:`.queues`, :mod:`.redrive`, :mod:`.purge`; for upkeep: :mod:`.carry`, :mod:`.set_aside`,
  :mod:`.lifecycle`
* steps of these: :mod:`.dispatch` delivers ready messages to waiting subscriptions, :mod:`.expiry` expires messages,
  :mod:`.dead_letters` makes them dead letters, :mod:`.tick` does what is due

A module imports the functions of others that it calls; the commands are those that :class:`penstock.core.broker.Broker`
binds.
"""

from __future__ import annotations

from penstock.core.commands import (
    carry,
    connect,
    lease,
    lifecycle,
    lock,
    publish,
    purge,
    queues,
    receive,
    redrive,
    set_aside,
    settle,
    tick,
    write,
)

__all__ = [
    "carry",
    "connect",
    "lease",
    "lifecycle",
    "lock",
    "publish",
    "purge",
    "queues",
    "receive",
    "redrive",
    "set_aside",
    "settle",
    "tick",
    "write",
]
