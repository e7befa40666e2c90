"""How often Python collects garbage: objects in reference cycles.

By default Python collects after 700 allocations, and from time to time over all objects. A broker has very many
long-lived objects (connections, queues, messages in flight) and hardly any cycles: with 1,000 queues it spent a fifth
of its time on collections, and single ones took 200 ms. So the objects of the start, mostly code, are excluded, and
collections are rare.
"""

from __future__ import annotations

import gc

#: Allocations per collection of the youngest generation, those collections per one of the middle generation, and
#: those per one of all objects.
THRESHOLDS = (10_000, 5, 50)


def collect_rarely() -> None:
    """Configure this process. Call it once all modules are loaded."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def free_spares() -> None:
    """Empty Python's free lists, whose few thousand objects keep many pages in use.

    This is a full collection, which takes milliseconds with a few hundred connections or queues.
    """
    gc.collect()
