"""One story: clients work while faults happen one after the other; at the end every message is accounted for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from failover import streams
from failover.cluster import Cluster, Node, wait_until
from failover.faults import COLD, FAULTS, LARGE, Fault
from failover.load import Confirmation, Load
from failover.streams import Streams
from penstock.client import connect
from penstock.journal import open_journal
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views import arrow
from penstock.journal.views.selection import Queues
from support.brokers import FREE
from support.figures import added

#: Seconds by which a consumer may read a message, sent before its settlement, after the settlement's timestamp: the
#: machine is busy.
SLACK = 0.5
#: The names of the kinds of events that end a message.
ENDS = ("acknowledged", "popped", "dropped")
WAITING = "waiting"
#: The queue that is never consumed.
KEPT = (WAITING, "in", streams.COPIED)


def _is_of_load(name: QueueName) -> bool:
    return name.queue not in (WAITING, streams.COPIED, COLD, LARGE)


class Figures(NamedTuple):
    """Counts of a story. ``lost``: confirmed or shown, but missing. ``came_back``: shown after it was settled."""

    rounds: int = 0
    take_overs: int = 0
    confirmed: int = 0
    published: int = 0
    shown: int = 0
    settled: int = 0
    lost: int = 0
    doubled: int = 0
    came_back: int = 0
    left: int = 0
    spark: int = 0


class Story:
    """A cluster and its clients. ``times`` lists the seconds of each take-over after a kill."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        faults: Sequence[Fault] = FAULTS,
        lease: float = 3.0,
        waiting: int = 0,
        spark: bool = False,
    ) -> None:
        """``waiting`` messages are there from the beginning and are never consumed."""
        self.folder = folder
        self.figures = Figures()
        self.wrong: list[str] = []
        self.times: list[float] = []
        self._random = Random(seed)
        self._faults = [fault for fault in faults if not (spark and fault.forgets)]  # Spark stops at data loss
        self._coming: list[Fault] = []
        self._waiting = waiting
        self._cluster = Cluster(folder, lease=lease, flight={"address": FREE} if spark else "off")
        self._streams = Streams(self._cluster, folder / "spark") if spark else None
        self._load = Load(self._cluster, streams.QUEUES if spark else {})

    def run(self, rounds: int) -> Iterator[str]:
        """Run this many faults, reporting each round; then check the counts."""
        try:
            self._cluster.start()
            self._fill()
            self._load.start()
            self._wait_for_confirmation(time.monotonic(), None)
            if self._streams is not None:
                self._streams.start()
            for number in range(rounds):
                yield f"round {number}: {self._round()}"
            self._load.stop()
            if self._streams is not None:
                self._streams.finish()
            self._check()
        finally:
            self._load.abort()
            if self._streams is not None:
                self._streams.stop()
            self._cluster.stop()

    def _fill(self) -> None:
        """Publish the messages that wait."""
        place = self._cluster.wait_for_owner().place("kokaq")
        with connect(f"kokaq://{place}/default/{WAITING}") as client:
            client.create_queue(exist_ok=True)
            client.publish_many(b"waiting %d" % number for number in range(self._waiting))
        if self._streams is not None:
            with connect(f"kokaq://{place}/default/{streams.COPIED}") as client:
                client.create_queue(exist_ok=True)

    def _round(self) -> str:
        fault = self._next_fault()
        owner = self._cluster.wait_for_owner()
        began = fault.do(self._cluster, owner, self._random)
        if fault.forgets:
            self._load.forget_all_but({row["payload"].decode() for row in self._sent()})
            self._cluster.begin()
        confirmed = self._wait_for_confirmation(began, owner if fault.takes_over else None)
        if fault.promotes:
            self._cluster.restore_standby()
        self._cluster.restore()
        if self._streams is not None:
            self._streams.keep_up()
        self._wait_for_confirmation(time.monotonic(), None)
        self._count(rounds=1, take_overs=int(confirmed.broker is not owner))
        if fault.takes_over:
            self.times.append(confirmed.at - began)
        return f"{fault.name}, confirmed again after {confirmed.at - began:.2f} s by {confirmed.broker.folder.name}"

    def _next_fault(self) -> Fault:
        """Return each fault once, in random order, and then again."""
        if not self._coming:
            self._coming = self._random.sample(self._faults, len(self._faults))
        return self._coming.pop()

    def _wait_for_confirmation(self, moment: float, other_than: Node | None) -> Confirmation:
        def found() -> Confirmation | None:
            return self._load.first_confirmed_after(moment, other_than)

        confirmed: Confirmation = wait_until(found, "nothing is confirmed any more")
        return confirmed

    def _count(self, **more: int) -> None:
        self.figures = added(self.figures, Figures(**more))

    # Counting

    def _check(self) -> None:
        """Check that the journal contains every promised message once, and none was shown after its end."""
        load = self._load
        positions = self._positions()
        for text in sorted((load.confirmed | {each.text for each in load.shown}) - positions.keys()):
            self._wrong("lost", f"{text} was promised but is not in the journal")
        ends = self._ends()
        for text, position in positions.items():
            if position not in ends and text.partition(" ")[0] not in KEPT:
                self._wrong("left", f"{text} was neither consumed nor left in its queue")
        for each in load.shown:
            ended = ends.get(positions.get(each.text, 0), float("inf"))
            if each.at > min(ended, load.settled.get(each.text, float("inf"))) + SLACK:
                self._wrong("came_back", f"{each.text} was shown by {each.broker} after it was settled")
        waiting = self._published(lambda name: name.queue == WAITING, ["position"])
        if len(waiting) != self._waiting:
            self._wrong("lost", f"{len(waiting)} messages are waiting instead of {self._waiting}")
        counts = {"confirmed": len(load.confirmed), "published": len(positions), "shown": len(load.shown)}
        self._count(**counts, settled=len(ends))

    def _positions(self) -> dict[str, int]:
        """Return the positions of the messages clients sent, and check that Spark has seen those of its queues."""
        rows = self._sent()
        found: dict[str, int] = {}
        for row in rows:
            text = row["payload"].decode()
            if found.setdefault(text, row["position"]) != row["position"]:
                self._wrong("doubled", f"{text} is at {found[text]} and {row['position']}")
        if self._streams is not None:
            incoming, consumed = (
                [(at, text.encode()) for text, at in found.items() if text.startswith(f"{queue} ")]
                for queue in streams.QUEUES
            )
            copies = self._published(lambda name: name.queue == streams.COPIED, ["payload"])
            for each in self._streams.check(incoming, consumed, [row["payload"] for row in copies]):
                self._wrong("spark", each)
        return found

    def _sent(self) -> list[dict[str, Any]]:
        """Read the clients' messages from the journal."""
        return self._published(_is_of_load, ["position", "payload"])

    def _wrong(self, what: str, text: str) -> None:
        self._count(**{what: 1})
        if len(self.wrong) < 20:
            self.wrong.append(f"{what}: {text}")

    def _ends(self) -> dict[int, float]:
        """Return the times at which messages ended, by position."""
        rows = self._rows("events", _is_of_load, ["kind", "at", "message"])
        return {row["message"]: row["at"].timestamp() for row in rows if row["kind"] in ENDS}

    def _published(self, chosen: Callable[[QueueName], bool], columns: list[str]) -> list[dict[str, Any]]:
        return self._rows("messages", chosen, columns)

    def _rows(self, view: str, queues: Queues, columns: list[str]) -> list[dict[str, Any]]:
        follower = open_journal(self._cluster.url()).follow()
        try:
            batches = arrow.read(follower, view, follower.earliest, queues=queues, columns=columns)
            return [dict(row) for batch in batches for row in batch.to_pylist()]
        finally:
            follower.close()
