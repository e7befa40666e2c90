"""Requests about messages: browsing, finding, deleting, and steps of jobs."""

from __future__ import annotations

from penstock.admin import admin_requests as requests
from penstock.core.browse import lane_after, out_after, ready_after
from penstock.core.queue import Out, Queue
from penstock.core.structures.item import Item
from penstock.server.admin.queue_requests import QueueRequests, operator
from penstock.server.companions.request_table import Handlers, RequestRefused
from penstock.server.network.runtime import Runtime


class MessageRequests:
    """Answers them."""

    def __init__(self, runtime: Runtime, queues: QueueRequests) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self._queues = queues
        self.handlers: Handlers = {
            requests.Browse: self.browse,
            requests.FindMessage: self.find,
            requests.FindPosition: lambda request: runtime.ids.position(request.id) or 0,
            requests.DeleteMessage: self.delete,
            requests.JobStep: self.work,
        }

    def browse(self, request: requests.Browse) -> requests.BrowsedMessages:
        """A piece of the messages in one state, in order."""
        queue = self._queues.find(request.namespace, request.name)
        limit = max(1, min(request.limit, requests.PIECE))
        if request.state == "out":
            return self._browse_out(queue, request.after, limit)
        if request.state == "ready":
            found, total = ready_after(queue, request.after, limit), len(queue.ready)
        else:
            row = queue.delayed if request.state == "delayed" else queue.dead
            found, total = lane_after(row, request.after, limit), len(row)
        items = [self._item(queue, each) for each in found]
        after = (found[-1].priority, found[-1].rank, found[-1].position) if len(found) == limit else ()
        return requests.BrowsedMessages(items=items, after=after, total=total)

    def _browse_out(self, queue: Queue, after: tuple[int, ...], limit: int) -> requests.BrowsedMessages:
        outs, seen = out_after(queue, after, limit)
        items = [self._out(queue, each) for each in outs]
        more = len(outs) == limit
        after = (0, seen, outs[-1].item.position) if more else ()
        return requests.BrowsedMessages(items=items, begin=seen - len(outs), after=after, total=len(queue.out))

    def find(self, request: requests.FindMessage) -> requests.MessageInState | None:
        """A message by its ID."""
        queue = self._queues.find(request.namespace, request.name)
        position = self._runtime.ids.position(request.id)
        return self.find_at(queue, position) if position else None

    def find_at(self, queue: Queue, position: int) -> requests.MessageInState | None:
        """A message by its position."""
        out = queue.out.get(position)
        if out is not None:
            return requests.MessageInState(state="out", item=self._out(queue, out))
        if (ready := queue.find_ready(position)) is not None:
            return requests.MessageInState(state="ready", item=self._item(queue, ready))
        if (delayed := queue.delayed.find(position)) is not None:
            return requests.MessageInState(state="delayed", item=self._item(queue, delayed))
        if (dead := queue.dead.find(position)) is not None:
            return requests.MessageInState(state="dead", item=self._item(queue, dead))
        return None

    def delete(self, request: requests.DeleteMessage) -> bool:
        """Delete a message that is not in flight."""
        queue = self._queues.find(request.namespace, request.name)
        position = self._runtime.ids.position(request.id) or 0
        if position in queue.out:
            raise RequestRefused("conflict", "the message is in flight: close its connection or release its lock first")
        if not self._broker.delete_message(operator(request.by), queue, position, self._runtime.now()):
            raise RequestRefused("not-found", f"the queue {queue.full_name} has no such message", "path.id")
        return True

    # Steps of jobs

    def work(self, request: requests.JobStep) -> requests.JobStepDone:
        """Redrive, move or delete a few messages."""
        queue = self._queues.find(request.namespace, request.name)
        limit = max(1, min(request.limit, requests.STEP))
        if request.positions is not None:
            return requests.JobStepDone(done=self._work(queue, request, request.positions[:limit]))
        looked_at = self._behind(queue, request, limit)
        old = [each.position for each in looked_at if _is_old(each, request)]
        last = looked_at[-1] if len(looked_at) == limit else None
        done = self._work(queue, request, old)
        return requests.JobStepDone(
            done=done, after=(last.priority, last.rank, last.position) if last is not None else ()
        )

    def _work(self, queue: Queue, request: requests.JobStep, positions: list[int]) -> int:
        now, connection = self._runtime.now(), operator(request.by)
        if request.kind == "delete":
            return sum(self._delete_in(queue, request.state, position, request.by) for position in positions)
        target = self._queues.find(*request.target) if request.target is not None else queue
        if self._broker.draining:
            raise RequestRefused("refused", "the broker is shutting down")
        if not positions:
            return 0
        if request.state == "dead":
            return self._broker.redrive(connection, queue, now, positions=positions, to=target)
        return self._broker.move(connection, queue, now, positions=positions, to=target)

    def _delete_in(self, queue: Queue, state: str, position: int, by: str) -> bool:
        """Delete a message if it is still in the state in which it was chosen."""
        found = self.find_at(queue, position)
        if found is None or found.state != state:
            return False
        return self._broker.delete_message(operator(by), queue, position, self._runtime.now())

    def _behind(self, queue: Queue, request: requests.JobStep, limit: int) -> list[Item]:
        """The next messages in the state, in order."""
        if request.state == "ready":
            return ready_after(queue, request.after, limit)
        return lane_after(queue.delayed if request.state == "delayed" else queue.dead, request.after, limit)

    # Descriptions of messages

    def _item(self, queue: Queue, item: Item) -> requests.BrowsedMessage:
        position = item.position
        return requests.BrowsedMessage(
            position,
            self._runtime.engine.moved.get(position, position),
            item.size,
            item.priority,
            item.rank,
            item.expires,
            item.retries,
            item.reason,
            queue.deliveries.get(position, 0),
            queue.asked.get(position, b""),
        )

    def _out(self, queue: Queue, out: Out) -> requests.BrowsedMessage:
        item, connection = out.item, out.connection
        return requests.BrowsedMessage(
            item.position,
            self._runtime.engine.moved.get(item.position, item.position),
            item.size,
            item.priority,
            item.rank,
            item.expires,
            item.retries,
            item.reason,
            out.deliveries,
            queue.asked.get(item.position, b""),
            connection.id,
            connection.source.decode("utf-8", "replace"),
            out.delivered_at,
            out.deadline,
        )


def _is_old(item: Item, request: requests.JobStep) -> bool:
    """Whether a message is older than the job. The rank of a delayed message is a time."""
    return (item.position if request.state == "delayed" else item.rank) < request.until
