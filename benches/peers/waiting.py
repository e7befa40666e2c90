"""W4: the cost of waiting messages: memory while they wait and after they are gone, and the time of a restart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benches.peers import generator
from benches.peers.contestants import BY_KEY, Contestant
from benches.peers.generator import GeneratorError
from benches.peers.servers.base import Running, running

#: Measures by name: title and unit.
MEASURES: Mapping[str, tuple[str, str]] = {
    "count": ("messages", "thousands"),
    "grown": ("memory grown", "MB"),
    "each": ("a message", "B"),
    "drained": ("grown after draining", "MB"),
    "restart": ("restart to first delivery", "s"),
}
#: Connections that fill a queue, and seconds after which a slow broker has enough.
FILLERS = 8
FILL_SECONDS = 40.0
SLOW_FILL_SECONDS = 3.0
#: Limit for draining, and rest before memory is measured, in seconds.
DRAIN_SECONDS = 900.0
REST_SECONDS = 1.0
MEGABYTE = 1e6
#: With fewer messages the cost of each is lost in the broker's own growth.
SIGNIFICANT = 500_000


@dataclass(frozen=True)
class Backlog:
    """A queue to fill and drain. ``drain`` is another protocol to drain over, as Penstock's queues permit."""

    contestant: str
    drain: str = ""
    queue: str = "waiting"
    restarted: bool = False
    #: Filled for a few seconds only: only the cost of a message can be compared.
    slow: bool = False

    @property
    def by(self) -> Contestant:
        return BY_KEY[self.contestant]


BACKLOGS = (
    Backlog("phpmq", restarted=True),
    Backlog("kokaq", drain="phpmq"),
    Backlog("sspq", drain="phpmq", queue="sspq"),
    Backlog("redis-list", restarted=True),
    Backlog("redis-stream", restarted=True),
    Backlog("rabbitmq-quorum", slow=True),
    Backlog("rabbitmq-classic", slow=True),
    Backlog("nats-debian", slow=True),
)


class Filling:
    """One backlog in one folder: filled, measured, drained, filled again and found after a restart."""

    def __init__(self, backlog: Backlog, load: Path, folder: Path, count: int) -> None:
        self._backlog = backlog
        self._load = load
        self._folder = folder
        self._count = count

    def measure(self, *, drain: bool) -> dict[str, float]:
        """Values of :data:`MEASURES`. Without ``drain`` a second filling is saved as well."""
        with running(self._backlog.by.server, self._folder) as found:
            before = found.process.anonymous_bytes()
            filled = self._fill(found)
            grown = self._rested(found) - before
            values = {"count": filled / 1000, "grown": grown / MEGABYTE}
            if filled >= SIGNIFICANT or not self._backlog.slow:
                values["each"] = grown / filled
            if drain:
                self._drain(found, filled)
                values["drained"] = (self._rested(found) - before) / MEGABYTE
                if self._backlog.restarted:
                    filled = self._fill(found)
        if self._backlog.restarted and filled >= self._count:
            values["restart"] = self._restart()
        return values

    def _rested(self, found: Running) -> int:
        time.sleep(REST_SECONDS)
        return found.process.anonymous_bytes()

    def _fill(self, found: Running) -> int:
        seconds = SLOW_FILL_SECONDS if self._backlog.slow else FILL_SECONDS
        protocol = self._backlog.by.protocol
        flags = {"producers": FILLERS, "count": self._count, "seconds": seconds, "queue": self._backlog.queue}
        if self._backlog.by.variant:
            flags["variant"] = self._backlog.by.variant
        return generator.run(self._load, protocol, found.ports[protocol], timeout=DRAIN_SECONDS, **flags).confirmed

    def _consume(self, found: Running, **flags: object) -> generator.Outcome:
        protocol = self._backlog.drain or self._backlog.by.protocol
        if self._backlog.by.variant:
            flags["variant"] = self._backlog.by.variant
        return generator.run(
            self._load, protocol, found.ports[protocol], consumers=1, queue=self._backlog.queue, **flags
        )

    def _drain(self, found: Running, count: int) -> None:
        drained = self._consume(found, expect=count, timeout=DRAIN_SECONDS)
        if drained.distinct != count:
            raise GeneratorError(f"{count} messages were confirmed, {drained.distinct} delivered")

    def _restart(self) -> float:
        with running(self._backlog.by.server, self._folder) as found:
            first = self._consume(found, expect=1, window=1, first=True, connect_seconds=DRAIN_SECONDS)
            return first.first_delivery - found.process.started
