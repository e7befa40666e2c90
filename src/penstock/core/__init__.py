"""The queues: a deterministic state machine. Commands and ``now`` in, events and effects out. No I/O, no clock.

* ``broker`` is the way in: all commands by name. ``commands/`` has a module for each of them, functions over ``state``.
* ``queue`` is one queue with what is out of it and who waits, ``policy`` its rules; ``properties`` are a message's own;
  ``leases`` and ``writers`` what outlives the broker for readers and writers.
* ``structures/`` is how messages and deadlines are kept, so that no step grows with them; ``budget`` how much one step
  may do.
* ``events`` is where the broker writes down what happened, for the journal; ``catalogue`` how queues, leases and
  writers are described there.
* ``recovery/`` works the state out from what was written down, and makes a broker of it.
"""
