"""Requests about namespaces and queues: figures in pieces, changes, publishing."""

from __future__ import annotations

from bisect import bisect_right

from penstock.admin import admin_requests as requests
from penstock.core.commands.publish import admit
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Queue
from penstock.schema import Reason
from penstock.server.companions.request_table import Handlers, RequestRefused
from penstock.server.network.runtime import Runtime

#: The connection number of operators. Peers have numbers from 0, leases have -1.
OPERATOR = -2
_REASONS = {int(reason): reason.name.lower() for reason in Reason}


class QueueRequests:
    """Handles these requests. All methods raise RequestRefused."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        #: Sorted numbers of all queues when the latest listing began.
        self._numbers: list[int] = []
        self.handlers: Handlers = {
            requests.Queues: self.rows,
            requests.DescribeQueue: lambda request: self.full(self.find(request.namespace, request.name)),
            requests.CreateNamespace: self.create_namespace,
            requests.DeleteNamespace: self.delete_namespace,
            requests.CreateQueue: self.create,
            requests.ConfigureQueue: self.configure,
            requests.DeleteQueue: self.delete,
            requests.Publish: self.publish,
        }

    def find(self, namespace: str, name: str) -> Queue:
        """The queue of this name."""
        queue = self._broker.queue(namespace, name)
        if queue is None:
            raise RequestRefused("not-found", f"there is no queue {namespace}/{name}", "path.queue")
        return queue

    def rows(self, request: requests.Queues) -> requests.QueueRows:
        """The next piece of queues, by number. The list of numbers is made once for each listing."""
        if not request.after:
            self._numbers = sorted(self._broker.queues)
        begin = bisect_right(self._numbers, request.after)
        chosen = self._numbers[begin : begin + requests.PIECE]
        rows = [self.row(queue) for number in chosen if (queue := self._broker.queues.get(number)) is not None]
        return requests.QueueRows(rows=rows, more=begin + requests.PIECE < len(self._numbers))

    def row(self, queue: Queue) -> requests.QueueRow:
        """A queue's figures."""
        oldest, dead = queue.ready.oldest_position or 0, queue.dead.lowest() or 0
        counters = queue.counters
        return requests.QueueRow(
            queue.id,
            queue.namespace,
            queue.name,
            len(queue.ready),
            len(queue.out),
            len(queue.delayed),
            len(queue.dead),
            len(queue.damaged),
            queue.bytes,
            queue.subscribers + len(self._runtime.pollers.of_queue(queue, self._runtime.loop.time())),
            queue.policy.paused,
            self._runtime.engine.moved.get(oldest, oldest),
            (
                counters.published,
                counters.acknowledged,
                counters.popped,
                counters.dropped,
                counters.purged,
                counters.moved_in,
                counters.moved_out,
                queue.delivered,
                queue.redelivered,
            ),
            queue.created_at,
            self._runtime.engine.moved.get(dead, dead),
            {_REASONS[reason]: count for reason, count in queue.dead.reasons.items() if count},
        )

    def full(self, queue: Queue) -> requests.QueueDetails:
        """A queue's figures and rules."""
        return requests.QueueDetails(row=self.row(queue), policy=queue.policy)

    def create_namespace(self, request: requests.CreateNamespace) -> bool:
        """Create a namespace."""
        self._check_new(request.namespace)
        return self._broker.create_namespace(request.namespace, self._runtime.now(), source_of(request.by))

    def delete_namespace(self, request: requests.DeleteNamespace) -> bool:
        """Delete a namespace without queues."""
        queues = self._broker.namespaces.get(request.namespace)
        if queues is None:
            raise RequestRefused("not-found", f"there is no namespace {request.namespace}", "path.namespace")
        if queues:
            raise RequestRefused(
                "conflict", f"the namespace {request.namespace} has {len(queues)} queues: delete them first"
            )
        return self._broker.delete_namespace(request.namespace, self._runtime.now(), source_of(request.by))

    def create(self, request: requests.CreateQueue) -> requests.QueueDetails:
        """Create a queue, and its namespace if needed."""
        if self._broker.queue(request.namespace, request.name) is not None:
            raise RequestRefused(
                "conflict", f"the queue {request.namespace}/{request.name} already exists", "path.queue"
            )
        if not request.name:
            raise RequestRefused("bad-request", "a queue has a name of at least one character", "path.queue")
        self._check_new(request.namespace, request.name)
        now, source = self._runtime.now(), source_of(request.by)
        self._broker.create_namespace(request.namespace, now, source)
        queue = self._broker.create_queue(request.namespace, request.name, now, request.policy, source)
        return self.full(queue)

    def configure(self, request: requests.ConfigureQueue) -> requests.QueueDetails:
        """Replace the rules, if they are still the expected ones."""
        queue = self.find(request.namespace, request.name)
        if queue.policy != request.expected:
            raise RequestRefused("stale", f"the rules of {queue.full_name} were changed meanwhile", "header.If-Match")
        if queue.policy != request.policy:
            self._broker.configure_queue(queue, request.policy, self._runtime.now(), source_of(request.by))
        return self.full(queue)

    def delete(self, request: requests.DeleteQueue) -> bool:
        """Delete an empty queue."""
        queue = self.find(request.namespace, request.name)
        if request.expected is not None and queue.policy != request.expected:
            raise RequestRefused("stale", f"the rules of {queue.full_name} were changed meanwhile", "header.If-Match")
        if not self._broker.delete_queue(queue, self._runtime.now(), source_of(request.by)):
            raise RequestRefused(
                "conflict", f"the queue {queue.full_name} has messages: purge it, or let them be consumed"
            )
        return True

    def publish(self, request: requests.Publish) -> list[bytes]:
        """Publish all messages or none: admission of all is checked before the first is published."""
        queue = self.find(request.namespace, request.name)
        self._check_room(queue, request)
        connection = operator(request.by)
        ids: list[bytes] = []
        for payload, priority, ttl, delay, correlation_id in request.messages:
            how = Properties(
                ttl=None if ttl < 0 else ttl, priority=priority, delay=delay, correlation_id=correlation_id
            )
            done = self._broker.publish(connection, queue, [payload], self._runtime.now(), how)
            if done.refusal is not None:
                raise RequestRefused("refused", f"{done.refusal.value}; {len(ids)} messages before it were published")
            ids.append(self._runtime.ids.raw(queue, done.first))
        return ids

    def _check_room(self, queue: Queue, request: requests.Publish) -> None:
        limit = self._runtime.options.limits.payload_bytes
        sizes = [len(each[0]) for each in request.messages]
        if max(sizes) > limit:
            text = f"a payload has {limit} bytes at most (limits.payload_bytes), not {max(sizes)}"
            raise RequestRefused("bad-request", text, "body.messages.payload")
        groups = [(sizes, False)]
        if queue.policy.on_full == "drop-oldest":  # it makes room for ready messages, not for delayed ones
            ready = [len(payload) for payload, _, _, delay, _ in request.messages if not delay]
            delayed = [len(payload) for payload, _, _, delay, _ in request.messages if delay]
            groups = [(ready, False), (delayed, True)]
        for group, is_delayed in groups:
            _, refusal = admit(self._broker, queue, group, sum(sizes), delayed=is_delayed)
            if refusal is not None:
                raise RequestRefused("refused", refusal.value)

    def _check_new(self, namespace: str, name: str = "") -> None:
        if why_not := self._runtime.creation.why_no_queue(namespace, name):
            raise RequestRefused("conflict", why_not, "path.queue" if name else "path.namespace")


def operator(by: str) -> Connection:
    """The operator's connection; the journal names it as the source of events."""
    return Connection(OPERATOR, source_of(by))


def source_of(by: str) -> bytes:
    """The source of events in the journal."""
    return f"http {by}".rstrip().encode("utf-8", "replace")[:255]
