"""``penstock up --demo``: traffic goes in through three protocols, comes out as tables, and every count must agree."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.output import note, tell
from penstock.cli.showing import escape
from penstock.cli.up.agreement import Line, compare, history, sample
from penstock.cli.up.traffic import Addresses, Books, run

if TYPE_CHECKING:
    from penstock.cli.up import House

OK, FAILED, INTERRUPTED = 0, 1, 130
#: Seconds that the tables may take to have everything. It is there to tell of a pipeline that stands still.
PATIENCE = 300.0
#: Seconds between two looks.
LOOK_EVERY = 1.0


def demo(house: House) -> int:
    """Send, wait for the tables, show and check them. Returns the exit code."""
    addresses = house.broker.addresses
    books = Books(uuid4().hex[:8])
    try:
        run(Addresses(**{name: addresses[name] for name in ("phpmq", "sspq", "kokaq")}), books, house.told)
    except InterruptedError:
        return INTERRUPTED
    house.note("waiting for the tables")
    lines = _wait_for_tables(house, books)
    if house.interrupted:
        return INTERRUPTED
    wrong = [line for line in lines if not line.agrees]
    if house.as_json:
        tell({"run": books.run, "agree": not wrong, "counts": [line._asdict() for line in lines]})
    else:
        _show(house.lake, books, lines)
        note("every count agrees" if not wrong else f"{len(wrong)} of {len(lines)} counts do not agree: see ✗")
    return FAILED if wrong else OK


def _wait_for_tables(house: House, books: Books) -> list[Line]:
    """Until the counts agree; or as they are, when it takes too long or somebody wants it to end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        lines = compare(books, history(house.broker.addresses["flight"]), house.lake)
        if all(line.agrees for line in lines) or house.interrupted or time.monotonic() > deadline:
            return lines
        house.check()
        time.sleep(LOOK_EVERY)


def _show(lake: Path, books: Books, lines: list[Line]) -> None:
    console = Console()
    rows = Table(title=f"archive: some messages of run {books.run}", title_justify="left")
    for name in ("position", "published_at", "protocol", "queue", "payload"):
        rows.add_column(name, justify="right" if name == "position" else "left", no_wrap=name != "payload")
    for row in sample(lake, books.run):
        name = f"{row['namespace']}/{row['queue']}"
        when = row["published_at"].strftime("%H:%M:%S.%f")[:-3]
        payload = escape(row["payload"].decode("utf-8", "backslashreplace"))
        rows.add_row(str(row["position"]), when, row["protocol"], Text(escape(name)), Text(payload))
    console.print(rows)
    counts = Table(title="clients and journal, against the tables", title_justify="left")
    for name in ("count of", "queue", "expected", "in the tables", ""):
        counts.add_column(name, justify="right" if name in ("expected", "in the tables") else "left")
    for line in lines:
        mark = Text("✓", "green") if line.agrees else Text("✗", "bold red")
        counts.add_row(line.what, Text(escape(line.queue)), f"{line.expected:,}", f"{line.found:,}", mark)
    console.print(counts)
