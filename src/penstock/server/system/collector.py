"""How often Python looks for objects that only refer to each other.

By itself it looks whenever 700 more objects were made than freed, and at all of them now and then. A broker has very
many that live on (connections, queues, messages that are out), and next to none in circles: with 1,000 queues a fifth
of its time went into looking, and single looks held everybody up for 200 ms. What is there at the start, mostly the
code, is never looked at again; the rest so seldom that the looks cost little and the frequent ones are short.
"""

from __future__ import annotations

import gc

#: Objects more than at the last look, then how many looks at new objects there are to one at those that have stayed a
#: while, and how many of these to one at all.
THRESHOLDS = (10_000, 5, 50)


def look_seldom() -> None:
    """Set it for this process, once what it consists of is loaded."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def free_spares() -> None:
    """Free the objects that Python keeps for the next of their kind: a few thousand, in whose pages there is no other.

    It looks at all objects for that, which takes milliseconds with a few hundred connections or queues.
    """
    gc.collect()
