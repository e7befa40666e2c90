"""All that reaches a terminal. What came from a peer is escaped, so that a terminal obeys nobody but its owner."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from penstock.server.logs import printable

T = TypeVar("T")

#: A file has no width, so a table in it is as wide as it needs to be.
WIDE = 200

#: ``--json``, for every command.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line, for programs.")


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no colours for numbers."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = WIDE
    return made


def say(*lines: str) -> None:
    """Lines for people, on standard output."""
    for line in lines:
        print(printable(line))


def note(*lines: str) -> None:
    """Lines for people, on standard error, where they are in nobody's way."""
    for line in lines:
        print(printable(line), file=sys.stderr)


def complain(*lines: str) -> None:
    """What went wrong, on standard error."""
    for at, line in enumerate(lines):
        note(f"penstock: {line}" if not at else f"  {line}")


def tell(value: Any) -> None:
    """One JSON value on a line of its own. ASCII only, so safe on any terminal."""
    print(json.dumps(value, default=str), flush=True)


def table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table for people. Columns after the first are numbers, to the right."""
    made = Table(title=Text(title), title_justify="left", title_style="bold")
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if at else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    console().print(made, soft_wrap=False)


def progress(*, hidden: bool = False) -> Progress:
    """A progress bar on standard error, if that is a terminal."""
    err = console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn()]
    return Progress(*columns, console=err, transient=True, disable=hidden or not err.is_terminal)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop where that is installed."""
    try:
        from uvloop import new_event_loop  # noqa: PLC0415
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
