"""``penstock top``: the queues of a broker as they change, on a screen of their own or as plain text."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from penstock.admin.resources.common import Order, Page
from penstock.admin.resources.operations import Overview
from penstock.admin.resources.queues import QueueSort, QueuesQuery, QueueSummary
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.displays import table, table_of
from penstock.cli.errors import CommandError
from penstock.cli.output import escape, json_option, print_json, say
from penstock.cli.queue_rows import COLUMNS, filter_options, row

#: Queues requested if no screen limits their number, and the most that are requested.
USUAL = 20
MOST = 500
#: Columns that a narrow terminal drops, in this order, unless the rows are sorted by them; and cells left for names.
LEFT_OUT: dict[str, QueueSort] = {
    "DELAYED": "delayed", "OUT/S": "delivered", "CONSUMERS": "consumers", "IN/S": "published", "OLDEST": "oldest",
    "DONE/S": "settled", "OUT": "out",
}  # fmt: skip
NAME_CELLS = 24
#: Lines of the screen between the texts and the queues: two empty ones and the column names.
BETWEEN = 3
KEYS: dict[str, QueueSort] = {
    "n": "name", "r": "ready", "o": "out", "l": "delayed", "d": "dead", "c": "consumers", "a": "oldest",
    "i": "published", "u": "delivered", "s": "settled",
}  # fmt: skip
HELP = "n name  r ready  o out  l delayed  d dead  c consumers  a age  i in/s  u out/s  s done/s   x reverse   q quit"


class Snapshot(NamedTuple):
    """The broker at one moment."""

    overview: Overview
    queues: Page[QueueSummary]


@click.command("top")
@partial(filter_options, default_sort="ready")
@click.option(
    "--every", type=click.FloatRange(0.5, 3600), default=2.0, metavar="S", help="Update interval. [default: 2]"
)
@click.option(
    "--limit", type=click.IntRange(1, MOST), metavar="N", help="Queues to show. [default: all that fit, or 20]"
)
@click.option("--once", is_flag=True, help="Print one snapshot as plain text.")
@api_options
@json_option
def command(as_json: bool, query: QueuesQuery, every: float, limit: int | None, once: bool, api: Api) -> None:
    """Watch the queues that match PATTERN and their rates, those with the most ready messages first.

    On a terminal this is a screen with keys to sort by, and q to quit. Elsewhere, and with --once, it is plain text.

    \b
    Examples:
      penstock top
      penstock top "shop/*" --sort dead
      penstock top --once
      penstock top --every 10 --json >> queues.json

    Exit codes: 0 left with q, or --once; 1 the broker is unreachable, 2 wrong use, 3 refused, 130 Ctrl-C.
    """
    if sys.stdin.isatty() and sys.stdout.isatty() and not (once or as_json):
        Screen(api, query, every, limit).run()
        return
    query = msgspec.structs.replace(query, limit=limit or USUAL)
    _print(api, query, as_json=as_json)
    while not once:
        time.sleep(every)
        _print(api, query, as_json=as_json)


def snapshot(api: Api, query: QueuesQuery) -> Snapshot:
    """Request both. Raises CommandError."""
    return Snapshot(api.ask("overview", Overview), api.ask("queues", Page[QueueSummary], query=query))


def _print(api: Api, query: QueuesQuery, *, as_json: bool) -> None:
    found = snapshot(api, query)
    if as_json:
        queues = msgspec.to_builtins(found.queues.items)
        print_json(
            {
                "at": datetime.now(UTC).isoformat(),
                "totals": msgspec.to_builtins(found.overview.totals),
                "queues": queues,
            }
        )
        return
    say(*heading(found))
    rows = [row(each) for each in found.queues.items]
    table(*(fitting(rows, Console().width, query.sort) if sys.stdout.isatty() else (COLUMNS, rows)))
    sys.stdout.flush()


def fitting(
    rows: Sequence[Sequence[object]], width: int, sort: QueueSort = "name"
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """The columns and rows that fit beside the names of the queues."""
    cells = {
        name: max(cell_len(name), *(cell_len(escape(str(row[at]))) for row in rows), 0)
        for at, name in enumerate(COLUMNS)
    }
    cells[COLUMNS[0]] = min(cells[COLUMNS[0]], NAME_CELLS)
    for name in (each for each, by in LEFT_OUT.items() if by != sort):
        if sum(cells.values()) + 2 * len(cells) <= width:
            break
        del cells[name]
    return tuple(cells), [tuple(row[COLUMNS.index(name)] for name in cells) for row in rows]


def heading(found: Snapshot) -> list[str]:
    """The broker in two lines."""
    overview, totals, rates = found.overview, found.overview.totals, found.overview.totals.rates
    state = "takes messages" if overview.ready else f"takes NO messages: {'; '.join(overview.reasons)}"
    connections = "" if overview.connections is None else f"  {overview.connections} connections"
    return [
        f"{overview.name}  {datetime.now(UTC):%H:%M:%S} UTC  {state}{connections}",
        f"{found.queues.total} queues: {totals.ready} ready, {totals.out} out, {totals.delayed} delayed, "
        f"{totals.dead} dead; {rates.published:.1f}/s in, {rates.delivered:.1f}/s out, {rates.settled:.1f}/s done",
    ]


class Screen:
    """A terminal filled with queues until the user quits."""

    def __init__(self, api: Api, query: QueuesQuery, every: float, limit: int | None) -> None:
        self._api = api
        self._query = query
        self._every = every
        self._limit = limit
        self._found: Snapshot | None = None

    def run(self) -> None:
        """Run until q is pressed, also while the broker is away."""
        self._refresh(Console().height)  # a wrong token is reported before the screen is taken over
        with Live(screen=True, auto_refresh=False) as live, _single_keys():
            while True:
                live.update(self._shown(live.console), refresh=True)
                key = _key(self._every)
                if key == "q":
                    return
                self._press(key)
                try:
                    self._refresh(live.console.height)
                except CommandError as error:
                    live.update(Group(Text(escape(f"{error}"), "bold red"), self._shown(live.console)), refresh=True)
                    time.sleep(min(self._every, 1))

    def _refresh(self, height: int) -> None:
        fits = self._limit or min(max(height, 1), MOST)
        self._found = snapshot(self._api, msgspec.structs.replace(self._query, limit=fits))

    def _press(self, key: str) -> None:
        if key == "x":
            order: Order = "ascending" if self._query.order == "descending" else "descending"
            self._query = msgspec.structs.replace(self._query, order=order)
        elif key in KEYS:
            by = KEYS[key]
            usual: Order = "ascending" if by in ("name", "oldest") else "descending"
            self._query = msgspec.structs.replace(self._query, sort=by, order=usual)

    def _shown(self, console: Console) -> Group:
        """As many queues as fit between the texts, which wrap on a narrow terminal."""
        assert self._found is not None
        texts = [Text(escape(each)) for each in heading(self._found)]
        foot = Text(f"by {self._query.sort}, {self._query.order}   {HELP}", "dim")
        taken = sum(len(each.wrap(console, console.width)) for each in (*texts, foot)) + BETWEEN
        queues = self._found.queues.items[: max(console.height - taken, 1)]
        columns, rows = fitting([row(each) for each in queues], console.width, self._query.sort)
        shown = table_of(columns, rows)
        shown.columns[0].overflow = "ellipsis"  # names are cut where there is no space, figures never
        for column in shown.columns[1:]:
            column.no_wrap = True
        return Group(*texts, Text(), shown, Text(), foot)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Read keys as they are pressed, without echo."""
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _key(seconds: float) -> str:
    """The next key, or an empty string after some seconds."""
    file = sys.stdin.fileno()
    ready, _, _ = select.select([file], [], [], seconds)
    if not ready:
        return ""
    return os.read(file, 1).decode(errors="replace") or "q"  # the terminal is gone
