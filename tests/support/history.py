"""Events of a real engine under random clients, and a simple reference implementation of ``insight``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.journal.files.disk import RealDisk
from penstock.journal.files.follower import JournalReader
from penstock.journal.views import arrow
from support.journals import open_folder
from support.workload import Workload

MINUTE = 60_000_000


def random_events(folder: Path, seed: int, steps: int) -> pa.Table:
    """The view ``events`` of a journal after this many commands of random clients."""
    engine = open_folder(RealDisk(str(folder)), now=1_750_000_000_000_000).engine
    clients = Workload(seed, engine.broker)
    for step in range(steps):
        if step % 20 == 0:
            clients.now += clients.random.choice((0, 15_000_000, 40_000_000, 200_000_000))
        clients.step()
        if step % 9 == 0 and clients.connections:
            _move(clients)
        engine.commit(clients.now)
    reader = JournalReader(str(folder))
    batches = list(arrow.read(reader, "events", reader.earliest))
    engine.log.close()
    return pa.Table.from_batches(batches)


def _move(clients: Workload) -> None:
    """Move some waiting messages to another queue."""
    random, queues = clients.random, list(clients.broker.queues.values())
    source, target = random.sample(queues, 2)
    waiting = [item.position for lane in source.ready.lanes.values() for item in lane]
    moved = random.sample(waiting, min(len(waiting), random.randrange(1, 4)))
    clients.broker.move(random.choice(clients.connections), source, clients.now, positions=moved, to=target)


def nearest_rank(values: list[int], percent: float) -> float | None:
    """A percentile of durations, in seconds."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1] / 1e6 if values else None


class Plain:
    """The reference: counts events by queue and step (in microseconds; a minute by default), one by one."""

    def __init__(self, events: pa.Table, unit: int = MINUTE) -> None:
        self._unit = unit
        self.sums: dict[tuple[str, str, int], defaultdict[str, int]] = {}
        self.reasons: defaultdict[tuple[str, str, int, str], int] = defaultdict(int)
        self.talkers: dict[tuple[str, str, int, str, str], list[int]] = {}
        self.in_queue: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
        self.to_acknowledge: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
        #: By message: when it was published, when it entered its queue, its queue, dead or not, in sight or purged.
        self._messages: dict[int, dict[str, Any]] = {}
        self._depth: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self.ends: dict[tuple[str, str, int], tuple[int, int, float | None]] = {}
        rows = [row for row in events.to_pylist() if row["queue"]]
        for row in rows:
            row["at"], row["delivered_at"] = _micros(row["at"]), _micros(row["delivered_at"])
        minute = rows[0]["at"] // unit
        for row in rows:
            while row["at"] // unit > minute:
                self._end_minute(minute, (minute + 1) * unit)
                minute += 1
            self._take(row)
        self._end_minute(minute, rows[-1]["at"])

    def _end_minute(self, minute: int, now: int) -> None:
        queues = {(each["namespace"], each["queue"]) for each in self._messages.values()}
        for queue in queues | {key[:2] for key in self.sums if key[2] == minute}:
            inside = [each for each in self._messages.values() if (each["namespace"], each["queue"]) == queue]
            waiting = [each["entered"] for each in inside if not each["dead"] and not each["purged"]]
            if waiting or (*queue, minute) in self.sums:
                oldest = (now - min(waiting)) / 1e6 if waiting else None
                self.ends[(*queue, minute)] = *self._depth[queue], oldest  # type: ignore[assignment]

    def _take(self, row: dict[str, Any]) -> None:
        queue = row["namespace"], row["queue"]
        key = (*queue, row["at"] // self._unit)
        sums = self.sums.setdefault(key, defaultdict(int))
        kind, message, at = row["kind"], self._messages.get(row["message"]), row["at"]
        if kind in ("published", "acknowledged", "popped", "dead", "redriven", "dropped"):
            sums[kind] += 1
        sums["bytes_in"] += row["payload_size"] or 0
        sums["redelivered"] += row["delivered_at"] is not None and row["deliveries"] > 1
        sums["returned"] += kind in ("returned", "requeued")
        sums["expired"] += kind in ("dead", "dropped") and row["reason"] == "expired"
        dead = message is not None and message["dead"]
        if kind == "published":
            fresh = {"namespace": queue[0], "queue": queue[1], "published": at, "entered": at}
            self._messages[row["message"]] = {**fresh, "dead": False, "purged": False}
            self._depth[queue][0] += 1
        elif kind == "redriven" and message is not None:
            source = message["namespace"], message["queue"]
            self._depth[source][dead] -= 1
            self.sums.setdefault((*source, key[2]), defaultdict(int))
            self._depth[queue][0] += 1
            message |= {"namespace": queue[0], "queue": queue[1], "entered": at, "dead": False, "purged": False}
        elif kind == "dead":
            self.reasons[(*key, row["reason"])] += 1
            if message is not None and not dead:
                self._depth[queue][0] -= 1
                self._depth[queue][1] += 1
                message |= {"dead": True, "purged": False}
        elif kind in ("acknowledged", "popped", "dropped"):
            if message is not None:
                self._depth[queue][1 if dead else 0] -= 1
            if kind != "dropped" and message is not None and not dead:
                self.in_queue[key].append((row["delivered_at"] or at) - message["published"])
            if kind == "acknowledged" and row["delivered_at"]:
                self.to_acknowledge[key].append(at - row["delivered_at"])
            self._messages.pop(row["message"], None)
        elif kind in ("purged", "dead_purged", "queue_deleted"):
            self._purge(kind, queue, row["count"] or 0, sums)
        self._talk(row, key, dead)

    def _purge(self, kind: str, queue: tuple[str, str], count: int, sums: defaultdict[str, int]) -> None:
        sums["purged"] += count
        self._depth[queue][kind == "dead_purged"] -= count
        if kind == "queue_deleted":
            self._depth[queue] = [0, 0]
        for each in self._messages.values():
            if (each["namespace"], each["queue"]) == queue:
                gone = kind == "queue_deleted" or each["dead"] is (kind == "dead_purged")
                each["purged"] = each["purged"] or gone

    def _talk(self, row: dict[str, Any], key: tuple[str, str, int], dead: bool) -> None:
        if row["kind"] in ("published", "acknowledged", "popped"):
            host = (row["peer"] or "").rpartition(":")[0] or (row["peer"] or "")
            talker = self.talkers.setdefault((*key, row["protocol"], host), [0, 0, 0])
            talker[0] += row["kind"] == "published"
            talker[1] += row["payload_size"] or 0
            talker[2] += row["kind"] != "published" and not dead

    def rows(self) -> Iterator[tuple[tuple[str, str, int], dict[str, int], tuple[int, int, float | None]]]:
        for key, end in self.ends.items():
            yield key, self.sums.get(key, defaultdict(int)), end


def _micros(value: Any) -> Any:
    return None if value is None else round(value.timestamp() * 1_000_000)
