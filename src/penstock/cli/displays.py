"""Tables and progress bars on a terminal, by rich. What came from a peer is escaped before it gets there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from penstock.cli.output import escape


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None, right: bool = False,
    headings: bool = True,
) -> None:  # fmt: skip
    """Print a table of ``table_of``. Without a terminal it is wide, so that nothing is truncated."""
    shown = table_of(columns, rows, right=right)
    shown.show_header = headings
    shown.title = None if title is None else Text(escape(title))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(shown)
    if title is not None:
        console.print()


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: bool = False) -> Table:
    """A table. Numbers are right-aligned, with ``right`` all but the first column; every cell is escaped.

    A cell that is a ``Text`` of rich is shown unchanged.
    """
    made = Table(title_justify="left", title_style="bold", box=None, pad_edge=False)
    for index, name in enumerate(columns):
        number = bool(rows) and all(isinstance(row[index], int) for row in rows)
        made.add_column(name, justify="right" if number or (right and index) else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(escape(str(cell))) for cell in row))
    return made


def counting(*, hidden: bool = False) -> Progress:
    """A bar that counts messages, on standard error, if that is a terminal."""
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn()]
    return _bar(*columns, hidden=hidden)


@contextmanager
def measuring(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of bytes, on standard error, if that is a terminal. Call it with the bytes done since the last call."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with _bar(*columns) as bar:
        task = bar.add_task(title, total=total)
        yield lambda size: bar.advance(task, size)


def _bar(*columns: Any, hidden: bool = False) -> Progress:
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal)
