"""Clients of all three protocols that go on whatever happens, and write down what they were told.

A message is a number with the name of its queue. A number is sent once: where nobody knows whether it came in, the next
one is taken. ``confirmed`` and ``shown`` are promises: they must be in the journal.
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

#: Queues, and the protocol that publishes to each. SSPQ's is the one that its listener names.
QUEUES = {"jobs": "kokaq", "tasks": "phpmq", "sspq": "sspq"}
#: Who consumes which queue: other protocols too.
CONSUMERS = (("jobs", "phpmq"), ("jobs", "kokaq"), ("tasks", "kokaq"), ("sspq", "sspq"))
#: Seconds that a client waits for an answer before it tries elsewhere.
ANSWER = 2.0


class Shown(NamedTuple):
    """A message was handed to a consumer."""

    text: str
    at: float
    broker: str


class Confirmation(NamedTuple):
    """The broker has confirmed a push."""

    at: float
    broker: Node


class Load:
    """Threads, one for each client. ``stop`` ends them; ``drain`` consumes what is left."""

    def __init__(self, cluster: Cluster, more: Mapping[str, str], *, pause: float = 0.02) -> None:
        """``more`` are queues that are published to beside ``QUEUES``, and consumed by somebody else."""
        self._cluster = cluster
        self._queues = {**QUEUES, **more}
        self._pause = pause
        self.confirmed: set[str] = set()
        self.sent: dict[str, int] = defaultdict(int)
        self.shown: list[Shown] = []
        #: Messages whose acknowledgement was confirmed, and when.
        self.settled: dict[str, float] = {}
        self.confirmations: list[Confirmation] = []
        self.reconnects = 0
        self._ended = threading.Event()
        self._finishing = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin."""
        for queue, protocol in self._queues.items():
            self._spawn(partial(self._publish, queue, protocol))
        for queue, protocol in CONSUMERS:
            self._spawn(partial(self._consume, queue, protocol))

    def stop(self) -> None:
        """No more messages; consumers go on until their queues are empty, and end."""
        self._finishing.set()
        for thread in self._threads:
            thread.join()

    def abort(self) -> None:
        """End everybody as soon as possible."""
        self._ended.set()
        self.stop()

    def forget_all_but(self, texts: set[str]) -> None:
        """The database was put back, and has these messages. No broker runs."""
        self.confirmed &= texts
        self.shown = [each for each in self.shown if each.text in texts]
        self.settled.clear()

    def first_confirmed_after(self, moment: float, other_than: Node | None) -> Confirmation | None:
        """The first push that was confirmed after a moment, at another broker."""
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
        """Work with a connection to whoever serves, again and again, until the work says that it is done."""
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
