"""Messages whose payloads can't be read: set aside, so that the sound ones flow, and put back once they can be read.

That is no event: the journal still has the message where it was, so a start finds it there, and sets it aside again if
it is still damaged. Nothing is given up by it, and nothing has to be undone when the file is put back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.deadletters import DeadLetters
from penstock.core.held import LEASE
from penstock.core.queue import Aside, Out, Queue
from penstock.core.state import NoMessage


class SettingAside(DeadLetters):
    """Setting damaged messages aside, and putting them back."""

    @property
    def damaged(self) -> int:
        """How many messages are set aside, in all queues."""
        return sum(len(queue.damaged) for queue in self.queues.values())

    def set_aside(self, queue: Queue, reasons: Mapping[int, str], now: int) -> int:
        """Set messages of a queue aside, each for a reason: position -> reason. Returns how many that were.

        One that is out must not have been shown to anybody: it is taken back, and its consumer waits for another. One
        that is leased leaves its lease.
        """
        count = 0
        left: list[Out] = []
        for position, reason in reasons.items():
            out = queue.out.get(position)
            found = self._take_from(queue, out) if out is not None else self._take_waiting(queue, position)
            if found is not None:
                queue.damaged[position] = found._replace(reason=reason)
                count += 1
            if out is not None and out.consumer is not None and not out.consumer.window:
                left.append(out)
        for out in left:  # who waits for one message waits for another
            if not self.receive(out.connection, queue, now, dead=out.dead):
                self.effects.append(NoMessage(out.connection, queue))
        if count:
            self._dispatch(queue, now)
        return count

    def put_back(self, queue: Queue, positions: Sequence[int], now: int) -> int:
        """Messages that were set aside can be read again: they go to their old places. Returns how many that were."""
        back = [queue.damaged.pop(position) for position in positions if position in queue.damaged]
        for item, state, _ in back:
            if state == "dead":
                queue.dead.insert(item)
            elif state == "delayed":
                queue.delayed.insert(item)
            else:
                queue.put(item)
        if back:
            self.schedule(queue)
            self._dispatch(queue, now)
        return len(back)

    def _take_waiting(self, queue: Queue, position: int) -> Aside | None:
        """Take a message from wherever it waits."""
        ready = queue.find_ready(position)
        if ready is not None:
            queue.remove_ready(ready.priority, ready.rank)
            return Aside(ready, "ready", "")
        for state, lane in (("delayed", queue.delayed), ("dead", queue.dead)):
            for found in lane.find_positions([position]):
                lane.remove(found.rank, position)
                return Aside(found, state, "")
        return None

    def _take_from(self, queue: Queue, out: Out) -> Aside:
        """Take a message from who has it."""
        self._settle(out.connection, queue, (out.item.position,))
        if out.connection.id == LEASE:
            self.leased -= 1
        return Aside(out.item, "dead" if out.dead else "ready", "")
