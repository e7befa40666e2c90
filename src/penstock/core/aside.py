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
        for position, reason in reasons.items():
            found = self._take_aside(queue, position, now)
            if found is not None:
                queue.damaged[position] = found._replace(reason=reason)
                count += 1
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

    def _take_aside(self, queue: Queue, position: int, now: int) -> Aside | None:
        """Take the message from wherever it is."""
        out = queue.out.get(position)
        if out is not None:
            return self._take_from(queue, out, now)
        ready = queue.find_ready(position)
        if ready is not None:
            queue.remove_ready(ready.priority, ready.rank)
            return Aside(ready, "ready", "")
        for state, lane in (("delayed", queue.delayed), ("dead", queue.dead)):
            for found in lane.find_positions([position]):
                lane.remove(found.rank, position)
                return Aside(found, state, "")
        return None

    def _take_from(self, queue: Queue, out: Out, now: int) -> Aside:
        self._settle(out.connection, queue, (out.item.position,))
        if out.connection.id == LEASE:
            self.leased -= 1
        single = out.consumer is not None and not out.consumer.window
        if single and not self.receive(out.connection, queue, now, dead=out.dead):
            self.effects.append(NoMessage(out.connection, queue))
        return Aside(out.item, "dead" if out.dead else "ready", "")
