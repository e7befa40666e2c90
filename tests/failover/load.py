"""Clients of all three protocols that keep going through every fault, and record what was confirmed to them.

A message is a number with the name of its queue. Each number is sent once; if its outcome is unknown, the client goes
on with the next. ``confirmed`` and ``shown`` messages are promises: they must be in the journal.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import NamedTuple

from failover.cluster import Cluster, Node
from penstock.client import Client, ClientError, connect

#: Queues, and the protocol that publishes to each. The SSPQ listener's configuration names its queue.
QUEUES = {"jobs": "kokaq", "tasks": "phpmq", "sspq": "sspq"}
#: The protocol that consumes each queue, which may differ from the publisher's.
CONSUMERS = (("jobs", "phpmq"), ("jobs", "kokaq"), ("tasks", "kokaq"), ("sspq", "sspq"))
#: Seconds that a client waits for an answer before it tries another broker.
ANSWER = 2.0


class Shown(NamedTuple):
    """A message handed to a consumer."""

    text: str
    at: float
    broker: str


class Confirmation(NamedTuple):
    """A push that the broker confirmed."""

    at: float
    broker: Node


class Load:
    """One thread per client. ``stop`` ends them; ``drain`` consumes the remaining messages."""

    def __init__(self, cluster: Cluster, more: Mapping[str, str], *, pause: float = 0.02) -> None:
        """``more`` are queues to publish to beside ``QUEUES``; this load does not consume them."""
        self._cluster = cluster
        self._queues = {**QUEUES, **more}
        self._pause = pause
        self.confirmed: set[str] = set()
        self.sent: dict[str, int] = defaultdict(int)
        self.shown: list[Shown] = []
        #: When the acknowledgement of each message was confirmed.
        self.settled: dict[str, float] = {}
        self.confirmations: list[Confirmation] = []
        self.reconnects = 0
        self._ended = threading.Event()
        self._finishing = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all clients."""
        for queue, protocol in self._queues.items():
            self._spawn(partial(self._publish, queue, protocol))
        for queue, protocol in CONSUMERS:
            self._spawn(partial(self._consume, queue, protocol))

    def stop(self) -> None:
        """Stop publishing; consumers end when their queues are empty."""
        self._finishing.set()
        for thread in self._threads:
            thread.join()

    def abort(self) -> None:
        """End all clients as soon as possible."""
        self._ended.set()
        self.stop()

    def forget_all_but(self, texts: set[str]) -> None:
        """Forget all other messages, after a restore of the database. No broker runs."""
        self.confirmed &= texts
        self.shown = [each for each in self.shown if each.text in texts]
        self.settled.clear()

    def first_confirmed_after(self, moment: float, other_than: Node | None) -> Confirmation | None:
        """Return the first push that another broker confirmed after this moment."""
        found = None
        for each in reversed(self.confirmations):
            if each.at <= moment:
                break
            if each.broker is not other_than:
                found = each
        return found

    def _spawn(self, task: Callable[[], None]) -> None:
        thread = threading.Thread(target=task, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _connected(self, queue: str, protocol: str, work: Callable[[Client, Node], bool]) -> None:
        """Call ``work`` with connections to the serving broker until it returns that it is done."""
        while not self._ended.is_set():
            for node in self._cluster.nodes:
                place = node.place(protocol)
                if place is None:
                    continue
                url = (
                    f"{protocol}://{place}" + {"phpmq": f"/{queue}", "kokaq": f"/default/{queue}", "sspq": ""}[protocol]
                )
                try:
                    with connect(url, connect_timeout=ANSWER, timeout=ANSWER) as client:
                        if protocol == "kokaq":
                            client.create_queue(exist_ok=True)
                        if work(client, node):
                            return
                except (ClientError, OSError):
                    self.reconnects += 1
            time.sleep(0.02)

    # Publishers

    def _publish(self, queue: str, protocol: str) -> None:
        numbers = count()

        def work(client: Client, node: Node) -> bool:
            while not self._finishing.is_set() and not self._ended.is_set():
                texts = [f"{queue} {next(numbers)}" for _ in range(3)]
                self.sent[queue] += len(texts)
                if client.publish_many(texts).confirmed:
                    self.confirmed.update(texts)
                    self.confirmations.append(Confirmation(time.monotonic(), node))
                time.sleep(self._pause)
            return True

        self._connected(queue, protocol, work)

    # Consumers

    def _consume(self, queue: str, protocol: str) -> None:
        def work(client: Client, node: Node) -> bool:
            while not self._ended.is_set():
                finishing = self._finishing.is_set()
                taken = 0
                for message in client.consume(idle=0.5 if finishing else 1.0):
                    taken += 1
                    text = message.text
                    self.shown.append(Shown(text, time.time(), node.folder.name))
                    message.ack()
                    if protocol == "kokaq":
                        self.settled[text] = time.time()
                if finishing and not taken:
                    return True
            return True

        self._connected(queue, protocol, work)
