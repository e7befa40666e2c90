"""Compare the clients' own counts, the journal, and the tables that Spark has made of it.

The journal's raw events come over Flight and are counted here with Arrow. The tables are read as any program would
read them. Neither way goes through Spark or the pipelines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.flight as fl

from penstock.demo.traffic import ClientCounts
from penstock.flight.calls import Range, Read

#: Kinds of events that the table of queues counts.
KINDS = ("published", "acknowledged", "popped", "dead")
#: What is counted, and the counts by queue: expected, and found in the tables.
Sides = tuple[str, Counter[str], Counter[str]]
MINUTE = 60_000_000


class Comparison(NamedTuple):
    """One count from two sides, which must be equal."""

    what: str
    queue: str
    expected: int
    found: int

    @property
    def agrees(self) -> bool:
        """Whether they are equal."""
        return self.expected == self.found


class JournalEvents(NamedTuple):
    """The journal's events, and the first position that retention has left."""

    events: pa.Table
    earliest: int

    @property
    def since(self) -> int:
        """The first complete minute, in microseconds; 0 unless retention has removed some."""
        if self.earliest <= 1 or not self.events.num_rows:
            return 0
        first = pc.min(self.events["at"]).cast(pa.int64()).as_py()
        return (int(first) // MINUTE + 1) * MINUTE


def history(endpoint: str) -> JournalEvents:
    """All events of the journal behind a Flight endpoint."""
    with fl.FlightClient(endpoint) as client:
        (answer,) = client.do_action(fl.Action("status", b'{"type": "status"}'))
        status = msgspec.json.decode(answer.body.to_pybytes(), type=Range)
        wanted = Read(view="events", columns=["message", "kind", "at", "namespace", "queue", "reason"])
        return JournalEvents(client.do_get(fl.Ticket(msgspec.json.encode(wanted))).read_all(), status.earliest)


def compare(counts: ClientCounts, journal: JournalEvents, lake: Path) -> list[Comparison]:
    """All counts that must agree: this run's by its clients, and the whole lake's by the journal."""
    archived = _table(lake / "messages", ["namespace", "queue", "position", "payload"])
    ours = archived.filter(pc.match_substring(archived["payload"], f'"run": "{counts.run}"'.encode()))
    kept = archived.filter(pc.greater_equal(archived["position"], journal.earliest))
    sides = [*_run(counts, ours, journal.events), *_archive(kept, journal.events), *_insight(journal, lake)]
    return [
        Comparison(what, queue, expected[queue], found[queue])
        for what, expected, found in sides
        for queue in sorted(expected | found)
    ]


def _run(counts: ClientCounts, archived: pa.Table, events: pa.Table) -> Iterator[Sides]:
    """The clients' counts, against the archive and the events of the archived messages."""
    events = events.filter(pc.is_in(events["message"], archived["position"].combine_chunks()))
    yield "this run, sent", counts.published, _by_queue(archived)
    yield "this run, acknowledged", counts.acknowledged, _by_queue(_where(events, "kind", "acknowledged"))
    yield "this run, popped", counts.popped, _by_queue(_where(events, "kind", "popped"))
    dead = _where(events, "kind", "dead")
    for reason in sorted({reason for _, reason in counts.dead}):
        expected = Counter({queue: count for (queue, why), count in counts.dead.items() if why == reason})
        yield f"this run, dead: {reason}", expected, _by_queue(_where(dead, "reason", reason))


def _archive(archived: pa.Table, events: pa.Table) -> Iterator[Sides]:
    published = _by_queue(_where(events, "kind", "published"))
    yield "archived", published, _by_queue(archived)
    distinct = len(pc.unique(archived["position"]))
    yield "distinct positions", Counter({"(all)": published.total()}), Counter({"(all)": distinct})


def _insight(journal: JournalEvents, lake: Path) -> Iterator[Sides]:
    events = _since(journal.events, "at", journal.since)
    queues = _minutes(lake, "queues", [*KINDS], journal.since)
    for kind in KINDS:
        yield kind, _by_queue(_where(events, "kind", kind)), _summed(queues, kind)
    dead = _where(events, "kind", "dead")
    letters = _minutes(lake, "dead_letters", ["reason", "messages"], journal.since)
    for reason in sorted(set(dead["reason"].to_pylist()) | set(letters["reason"].to_pylist())):
        found = _summed(_where(letters, "reason", reason), "messages")
        yield f"dead: {reason}", _by_queue(_where(dead, "reason", reason)), found


def sample(lake: Path, run: str, count: int = 5) -> list[dict[str, Any]]:
    """Some of this run's rows in the archive."""
    table = _table(lake / "messages", ["position", "published_at", "protocol", "namespace", "queue", "payload"])
    ours = table.filter(pc.match_substring(table["payload"], f'"run": "{run}"'.encode()))
    step = max(1, ours.num_rows // count)
    chosen = pa.array(range(0, ours.num_rows, step)[:count], pa.int64())
    rows: list[dict[str, Any]] = ours.sort_by("position").take(chosen).to_pylist()
    return rows


def _table(folder: Path, columns: list[str]) -> pa.Table:
    """A table of the lake; empty before the first batch."""
    nothing = pa.table({name: pa.array([], _TYPES.get(name, pa.int64())) for name in columns})
    if not folder.exists():
        return nothing
    if (folder / "_delta_log").exists():
        from deltalake import DeltaTable  # noqa: PLC0415 - other formats do without it

        return DeltaTable(folder).to_pyarrow_table(columns=columns)
    # Before its first commit a Delta table is only files, and one of them may be half written.
    found = ds.dataset(folder, format="parquet", partitioning="hive", exclude_invalid_files=True)
    return found.to_table(columns=columns) if found.files else nothing


_TYPES = {
    "namespace": pa.string(),
    "queue": pa.string(),
    "reason": pa.string(),
    "payload": pa.binary(),
    "minute": pa.timestamp("us", tz="UTC"),
}


def _minutes(lake: Path, name: str, columns: list[str], since: int) -> pa.Table:
    """A table of insight from a minute on."""
    table = _table(lake / "insight" / name, ["namespace", "queue", "minute", *columns])
    return _since(table, "minute", since)


def _where(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value))


def _since(table: pa.Table, column: str, time: int) -> pa.Table:
    return table.filter(pc.greater_equal(table[column].cast(pa.int64()), time))


def _names(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["namespace"].cast(pa.string()), table["queue"].cast(pa.string()), "/")


def _by_queue(table: pa.Table) -> Counter[str]:
    return Counter({each["values"]: each["counts"] for each in pc.value_counts(_names(table)).to_pylist()})


def _summed(table: pa.Table, column: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in zip(_names(table).to_pylist(), table[column].to_pylist(), strict=True):
        found[name] += count or 0
    return Counter({name: count for name, count in found.items() if count})
