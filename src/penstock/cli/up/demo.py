"""``penstock up --demo``: traffic goes in through three protocols, comes out as tables, and every count must agree."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from rich.text import Text

from penstock.cli.displays import table
from penstock.cli.errors import FAILED, INTERRUPTED, OK
from penstock.cli.output import note, print_json
from penstock.cli.up.agreement import Comparison, compare, history, sample
from penstock.cli.up.traffic import Addresses, ClientCounts, run

if TYPE_CHECKING:
    from penstock.cli.up import Processes

#: Seconds that the tables may take to have everything. It is there to tell of a pipeline that stands still.
PATIENCE = 300.0
#: Seconds between two looks.
LOOK_EVERY = 1.0


def demo(up: Processes) -> int:
    """Send, wait for the tables, show and check them. Returns the exit code."""
    addresses = up.broker.addresses
    counts = ClientCounts(uuid4().hex[:8])
    try:
        run(Addresses(**{name: addresses[name] for name in ("phpmq", "sspq", "kokaq")}), counts, up.report, up.losses)
    except InterruptedError:
        return INTERRUPTED
    up.note("waiting for the tables")
    lines = _wait_for_tables(up, counts)
    if up.interrupted:
        return INTERRUPTED
    wrong = [line for line in lines if not line.agrees]
    if up.as_json:
        print_json({"run": counts.run, "agree": not wrong, "counts": [line._asdict() for line in lines]})
    else:
        _show(up.lake, counts, lines)
        note("every count agrees" if not wrong else f"{len(wrong)} of {len(lines)} counts do not agree: see ✗")
    return FAILED if wrong else OK


def _wait_for_tables(up: Processes, counts: ClientCounts) -> list[Comparison]:
    """Until the counts agree; or as they are, when it takes too long or somebody wants it to end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        lines = compare(counts, history(up.broker.addresses["flight"]), up.lake)
        if all(line.agrees for line in lines) or up.interrupted or time.monotonic() > deadline:
            return lines
        up.check()
        time.sleep(LOOK_EVERY)


def _show(lake: Path, counts: ClientCounts, lines: list[Comparison]) -> None:
    rows = []
    for row in sample(lake, counts.run):
        when = row["published_at"].strftime("%H:%M:%S.%f")[:-3]
        payload = row["payload"].decode("utf-8", "backslashreplace")
        rows.append((row["position"], when, row["protocol"], f"{row['namespace']}/{row['queue']}", payload))
    names = ("position", "published_at", "protocol", "queue", "payload")
    table(names, rows, title=f"archive: some messages of run {counts.run}")
    marks = {True: Text("✓", "green"), False: Text("✗", "bold red")}
    compared = [(line.what, line.queue, line.expected, line.found, marks[line.agrees]) for line in lines]
    names = ("count of", "queue", "expected", "in the tables", "")
    table(names, compared, title="clients and journal, against the tables")
