"""Consumers that ask for one message at a time, and how long they count as consumers of the queue.

A window stays until it ends, so its connection is a consumer all the time. A Kokaq client that pops or locks waits for
nothing between its requests, nor does an SSPQ client that has got its message. Such a connection is a consumer for a
while after each request, and as long as it has a message of the queue. Entries that are out of date are found when
consumers are counted; a request costs two lookups.
"""

from __future__ import annotations

from typing import Final

from penstock.core.queue import Connection, Out, Queue

#: Seconds after a request for which its connection counts as a consumer of the queue: pauses between polls are shorter.
RECENT: Final = 60.0
#: Queues that a connection is noted for, at most: those it began with first are forgotten.
MOST_QUEUES: Final = 100


class Poll:
    """A connection that asked a queue for messages, and when it last did."""

    __slots__ = ("_held", "at", "connection", "queue")

    def __init__(self, connection: Connection, queue: Queue) -> None:
        self.connection = connection
        self.queue = queue
        self.at = 0.0
        #: A message of the queue that the connection had when it was last looked for.
        self._held: Out | None = None

    @property
    def waits(self) -> bool:
        """Whether the connection is in the queue's line at this moment, and so counted there."""
        subscriptions = self.connection.subscriptions
        return (self.queue.id, False) in subscriptions or (self.queue.id, True) in subscriptions

    def is_current(self, now: float) -> bool:
        """Whether the connection is a consumer of the queue."""
        if now - self.at <= RECENT or self.waits or (self._held is not None and not self._held.ended):
            return True
        self._held = next((out for out in self.connection.out.values() if out.queue is self.queue), None)
        return self._held is not None


class Pollers:
    """All of them. Times are seconds of the loop's clock."""

    def __init__(self) -> None:
        self._by_connection: dict[int, dict[int, Poll]] = {}
        self._by_queue: dict[int, dict[int, Poll]] = {}

    def note(self, connection: Connection, queue: Queue, now: float) -> None:
        """The connection asks the queue for messages."""
        polls = self._by_connection.get(connection.id)
        poll = polls.get(queue.id) if polls is not None else None
        if poll is None:
            poll = self._begin(connection, queue)
        poll.at = now

    def _begin(self, connection: Connection, queue: Queue) -> Poll:
        polls = self._by_connection.setdefault(connection.id, {})
        if len(polls) >= MOST_QUEUES:
            self._end(next(iter(polls.values())))
        poll = polls[queue.id] = self._by_queue.setdefault(queue.id, {})[connection.id] = Poll(connection, queue)
        return poll

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        for poll in list(self._by_connection.get(connection.id, {}).values()):
            self._end(poll)

    def of_queue(self, queue: Queue, now: float) -> list[Poll]:
        """The consumers of a queue that are not in its line."""
        return self._current(self._by_queue.get(queue.id), now)

    def of_connection(self, connection: Connection, now: float) -> list[Poll]:
        """The queues of which a connection is a consumer without being in their line."""
        return self._current(self._by_connection.get(connection.id), now)

    def _current(self, polls: dict[int, Poll] | None, now: float) -> list[Poll]:
        if not polls:
            return []
        found = []
        for poll in list(polls.values()):
            if not poll.is_current(now):
                self._end(poll)
            elif not poll.waits:
                found.append(poll)
        return found

    def _end(self, poll: Poll) -> None:
        connection, queue = poll.connection.id, poll.queue.id
        for index, key, other in ((self._by_connection, connection, queue), (self._by_queue, queue, connection)):
            del index[key][other]
            if not index[key]:
                del index[key]
