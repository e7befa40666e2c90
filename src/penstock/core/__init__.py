"""The queues: a deterministic state machine. Commands and ``now`` in, events and effects out. No I/O, no clock.

* :mod:`~penstock.core.broker` is the way in; its description lists the commands and where they live.
* :mod:`~penstock.core.queue` is one queue, made of :mod:`~penstock.core.lane` (waiting messages as arrays) and
  :mod:`~penstock.core.expiry` (their deadlines).
* :mod:`~penstock.core.events` is where the broker writes down what happened, for the journal.
* :mod:`~penstock.core.table` works out the state from what was written down, a million events at a time
  (:mod:`~penstock.core.gathering` lays them side by side); :mod:`~penstock.core.restore` makes a broker of it.
"""
