"""Whether the disk has room for more messages.

Publishing is refused before the disk is full, so that consuming can continue to the last message. Free space is
measured every second, and by the log whenever it allocates space; in between, staged events that are not yet written
are subtracted. So refusing begins in time at any speed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from penstock.journal.contract import Space
from penstock.journal.errors import LogError
from penstock.server.engine.engine import Engine

#: Publishing is refused while the disk has less room than this, or than ``MESSAGE_BYTES`` for each message in the
#: queues, whichever is more.
MIN_FREE = 2**30
#: What a message may still take on disk until it is gone: an acknowledgement in a commit of its own (150 to 200 bytes;
#: 8 among many), and its row in the next checkpoint (16 bytes or more), which is written before an old one goes.
MESSAGE_BYTES = 256
#: Publishing resumes when there is more room than that by this part of it: space that comes back in drops must not
#: toggle it.
HYSTERESIS = 8


class Admission:
    """Sets how much more a broker may accept."""

    def __init__(self, engine: Engine, space: Space, min_free: int = MIN_FREE) -> None:
        self._engine = engine
        self._space = space
        self.min_free = min_free
        #: Messages in the queues, and the next position, when that was last counted.
        self._held = self._held_at = 0
        self._stuck: Callable[[], bool] = lambda: False
        engine.on_staged = self.count

    def refuse_while(self, stuck: Callable[[], bool]) -> None:
        """Refuse publishing also while a commit waits for room, however much room the disk reports."""
        self._stuck = stuck

    @property
    def needed(self) -> int:
        """Bytes that must stay free so that every message can leave its queue, rounded up."""
        since = self._engine.broker.log.next_position - self._held_at  # each event is one message more at most
        return max(self.min_free, MESSAGE_BYTES * (self._held + since))

    def look(self) -> bool:
        """Look at the disk and count the messages. Returns whether refusing has begun or ended."""
        broker = self._engine.broker
        free = self._space.look() - self._engine.unwritten
        self._held, self._held_at = self._count_messages(free), broker.log.next_position
        needed, was_full = self.needed, broker.disk_full
        broker.disk_full = self._stuck() or free < needed + (needed // HYSTERESIS if was_full else 0)
        broker.disk_room = max(free - needed, 0)
        return broker.disk_full != was_full

    def count(self) -> None:
        """Something was staged: look at the disk only if that seems to be too much."""
        broker = self._engine.broker
        if broker.disk_full:
            return
        broker.disk_room = self._space.free - self._engine.unwritten - self.needed
        if broker.disk_room <= 0:
            with contextlib.suppress(LogError):  # the next write reports a disk that can't be asked
                self.look()

    def _count_messages(self, free: int) -> int:
        """How many messages there are; with plenty of room, how many there can be at most, for queues may be many."""
        broker = self._engine.broker
        most = broker.log.next_position - self._engine.log.start
        if free > 2 * max(self.min_free, MESSAGE_BYTES * most):
            return most
        return sum(queue.counters.balance for queue in broker.queues.values())
