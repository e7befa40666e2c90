"""Whether everybody says the same: the clients' own counts, the journal, and the tables that Spark has made of it.

The journal is asked over Flight for its raw events, and counted here with Arrow. The tables are read as any program
would read them. Neither way goes through Spark or the pipelines.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.flight as fl

from penstock.cli.up.traffic import ClientCounts
from penstock.flight.calls import Range, Read

#: What the table of queues counts, that is a kind of event too.
KINDS = ("published", "acknowledged", "popped", "dead")
MINUTE = 60_000_000


class Comparison(NamedTuple):
    """One number, from two sides. They must be the same."""

    what: str
    queue: str
    expected: int
    found: int

    @property
    def agrees(self) -> bool:
        """Whether they are."""
        return self.expected == self.found


class JournalEvents(NamedTuple):
    """The journal's events, and where they begin."""

    events: pa.Table
    earliest: int

    @property
    def since(self) -> int:
        """The first minute that is there as a whole: all of them, unless retention has removed some."""
        if self.earliest <= 1 or not self.events.num_rows:
            return 0
        first = pc.min(self.events["at"]).cast(pa.int64()).as_py()
        return (int(first) // MINUTE + 1) * MINUTE


def history(endpoint: str) -> JournalEvents:
    """Everything that the journal has."""
    with fl.FlightClient(endpoint) as client:
        (answer,) = client.do_action(fl.Action("status", b'{"type": "status"}'))
        status = msgspec.json.decode(answer.body.to_pybytes(), type=Range)
        wanted = Read(view="events", columns=["message", "kind", "at", "namespace", "queue", "reason"])
        return JournalEvents(client.do_get(fl.Ticket(msgspec.json.encode(wanted))).read_all(), status.earliest)


def compare(counts: ClientCounts, journal: JournalEvents, lake: Path) -> list[Comparison]:
    """All numbers that must agree: this run's by its clients, and everybody's by the journal."""
    archived = _table(lake / "messages", ["namespace", "queue", "position", "payload"])
    ours = archived.filter(pc.match_substring(archived["payload"], f'"run": "{counts.run}"'.encode()))
    kept = archived.filter(pc.greater_equal(archived["position"], journal.earliest))
    return (
        _run_lines(counts, ours, journal.events) + _archive_lines(kept, journal.events) + _insight_lines(journal, lake)
    )


def _run_lines(counts: ClientCounts, archived: pa.Table, events: pa.Table) -> list[Comparison]:
    """What the clients did, against the archive, and against the events of the messages that the archive has."""
    events = events.filter(pc.is_in(events["message"], archived["position"].combine_chunks()))
    sides = [
        ("sent", counts.published, _by_queue(archived)),
        ("acknowledged", counts.acknowledged, _by_queue(events.filter(pc.equal(events["kind"], "acknowledged")))),
        ("popped", counts.popped, _by_queue(events.filter(pc.equal(events["kind"], "popped")))),
    ]
    dead = events.filter(pc.equal(events["kind"], "dead"))
    for reason in sorted({reason for _, reason in counts.dead}):
        expected = Counter({queue: count for (queue, why), count in counts.dead.items() if why == reason})
        sides.append((f"dead: {reason}", expected, _by_queue(dead.filter(pc.equal(dead["reason"], reason)))))
    return [
        Comparison(f"this run, {what}", queue, expected[queue], found[queue])
        for what, expected, found in sides
        for queue in sorted(expected | found)
    ]


def _archive_lines(archived: pa.Table, events: pa.Table) -> list[Comparison]:
    published = _by_queue(events.filter(pc.equal(events["kind"], "published")))
    rows = _by_queue(archived)
    distinct = len(pc.unique(archived["position"]))
    lines = [Comparison("archived", queue, published[queue], rows[queue]) for queue in sorted(published | rows)]
    return [*lines, Comparison("distinct positions", "(all)", published.total(), distinct)]


def _insight_lines(journal: JournalEvents, lake: Path) -> list[Comparison]:
    events = _since(journal.events, "at", journal.since)
    table = _since(
        _table(lake / "insight" / "queues", ["namespace", "queue", "minute", *KINDS]), "minute", journal.since
    )
    lines: list[Comparison] = []
    for kind in KINDS:
        expected = _by_queue(events.filter(pc.equal(events["kind"], kind)))
        found = _summed(table, kind)
        lines += [Comparison(kind, queue, expected[queue], found[queue]) for queue in sorted(expected | found)]
    dead = events.filter(pc.equal(events["kind"], "dead"))
    letters = _minutes(lake, "dead_letters", ["reason", "messages"], journal.since)
    for reason in sorted(set(dead["reason"].to_pylist()) | set(letters["reason"].to_pylist())):
        expected = _by_queue(dead.filter(pc.equal(dead["reason"], reason)))
        found = _summed(letters.filter(pc.equal(letters["reason"], reason)), "messages")
        lines += [
            Comparison(f"dead: {reason}", queue, expected[queue], found[queue]) for queue in sorted(expected | found)
        ]
    return lines


def sample(lake: Path, run: str, count: int = 5) -> list[dict[str, Any]]:
    """Some rows of the archive, of this run."""
    table = _table(lake / "messages", ["position", "published_at", "protocol", "namespace", "queue", "payload"])
    ours = table.filter(pc.match_substring(table["payload"], f'"run": "{run}"'.encode()))
    step = max(1, ours.num_rows // count)
    chosen = pa.array(range(0, ours.num_rows, step)[:count], pa.int64())
    rows: list[dict[str, Any]] = ours.sort_by("position").take(chosen).to_pylist()
    return rows


def _table(folder: Path, columns: list[str]) -> pa.Table:
    """A table of the lake; without any rows before the first batch has come."""
    nothing = pa.table({name: pa.array([], _TYPES.get(name, pa.int64())) for name in columns})
    if not folder.exists():
        return nothing
    if (folder / "_delta_log").exists():
        from deltalake import DeltaTable  # noqa: PLC0415 - a lake of an earlier version does without it

        return DeltaTable(folder).to_pyarrow_table(columns=columns)
    # Before its first commit a table of Delta's is files alone, and one of them may be half written.
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
    """A table of insight, from a time on."""
    table = _table(lake / "insight" / name, ["namespace", "queue", "minute", *columns])
    return _since(table, "minute", since)


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
