"""The queues: a deterministic state machine. Commands and ``now`` in, events and effects out. No I/O, no clock.

* ``broker`` is the entry point: all commands by name. ``commands/`` has their modules, which are functions of
``state``.
* ``queue`` is one queue with its messages out and its waiting subscriptions, ``policy`` its rules; ``properties`` are a
  message's own; ``leases`` and ``writers`` are the state of readers and writers, which outlives the broker.
* ``structures/`` keeps messages and deadlines, so that no step grows with their number; ``budget`` limits each step.
* ``events`` stages what happened, for the journal; ``catalogue`` is the journal's form of queues, leases and writers.
* ``recovery/`` computes the state from the journal, and makes a broker of it.
"""
