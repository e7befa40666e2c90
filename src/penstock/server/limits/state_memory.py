"""Keeps the memory for the queues' state below ``state_bytes``, estimated by counting items of known cost.

Messages are on disk, but their state is in memory, and peers determine its size. Each round counts some of the queues,
so that ten thousand of them do not hold up the loop; the sum is a few seconds old. Above the limit publishing is
refused, as on a full disk, and consuming continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.core.queue import Queue
from penstock.core.ready import PLAIN_LANES
from penstock.server.engine.engine import Engine

#: Bytes, measured compiled and not, and rounded up. A waiting message: less where chunks are packed, with a time to
#: live in any case.
WAITING = 22
#: A message that is indexed by position as well: delayed, dead, or of one of very many priorities.
INDEXED = 20
#: A message that is set aside because it can't be read.
ASIDE = 500
#: A priority of a queue, with its own deadlines.
PRIORITY = 1_500
OUT = 425
#: The deadline of a lock; the message that is out counts as OUT.
LOCK = 200
#: A message with an entry in a table of its queue: deliveries, retries, its rank, its place.
NOTE = 200
#: Including the requested ID of the message.
REQUEST = 290
ASKED = 220
QUEUE = 4_200
WRITER = 400
PARTITION = 200
#: Queues that are counted in one round.
COUNTED = 1_000
#: Publishing is accepted again when this fraction (1/16) of the limit is free.
HYSTERESIS = 16


class StateMemory:
    """The sum, and whether it is too much."""

    def __init__(self, engine: Engine, limit: int) -> None:
        self._engine = engine
        self.limit = limit
        #: Returns the bytes of a journal in memory.
        self.stored: Callable[[], int] = lambda: 0
        #: Bytes, when all were last counted.
        self.bytes = 0
        self._counting: Iterator[Queue] = iter(())
        self._sum = 0

    def watch(self) -> bool:
        """Count the next queues, and refuse publishing or not. Returns whether that has changed."""
        broker = self._engine.broker
        if not self._count_on():
            return False
        before = broker.memory_full
        broker.memory_full = self.bytes > self.limit - (self.limit // HYSTERESIS if before else 0)
        return broker.memory_full != before

    def _count_on(self) -> bool:
        """Count some of the queues. True: all are counted now."""
        for _ in range(COUNTED):
            queue = next(self._counting, None)
            if queue is None:
                self.bytes = self._sum + self._shared()
                self._sum = 0
                self._counting = iter(list(self._engine.broker.queues.values()))
                return True
            self._sum += cost_of(queue)
        return False

    def _shared(self) -> int:
        """The memory that belongs to no single queue."""
        engine, broker = self._engine, self._engine.broker
        notes = NOTE * (len(broker.moved_to) + len(engine.moved))
        writers = WRITER * len(broker.writers) + PARTITION * broker.partitions
        return self.stored() + notes + LOCK * len(broker.lock_ends) + writers


def cost_of(queue: Queue) -> int:
    """About how many bytes of memory a queue costs now."""
    waiting = queue.depth + len(queue.dead)
    indexed = len(queue.delayed) + len(queue.dead) + (len(queue.ready) if len(queue.ready.lanes) > PLAIN_LANES else 0)
    notes = len(queue.deliveries) + len(queue.moved) + len(queue.published_retries)
    return (
        QUEUE
        + WAITING * waiting
        + INDEXED * indexed
        + ASIDE * len(queue.damaged)
        + PRIORITY * len(queue.ready.lanes)
        + OUT * len(queue.out)
        + NOTE * notes
        + REQUEST * len(queue.requests)
        + ASKED * len(queue.asked)
    )
