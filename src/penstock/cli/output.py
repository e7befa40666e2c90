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

from penstock.cli.showing import escape

T = TypeVar("T")

#: ``--json``, for every command.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line, for programs.")


def say(*lines: str) -> None:
    """Lines for people, on standard output."""
    for line in lines:
        print(escape(line))


def note(*lines: str) -> None:
    """Lines for people, on standard error, where they are in nobody's way."""
    for line in lines:
        print(escape(line), file=sys.stderr)


def complain(*lines: str) -> None:
    """What went wrong, on standard error."""
    for at, line in enumerate(lines):
        note(f"penstock: {line}" if not at else f"  {line}")


def tell(value: Any) -> None:
    """One JSON value on a line of its own. ASCII only, so safe on any terminal."""
    print(json.dumps(value, default=str), flush=True)


def counting(*, hidden: bool = False) -> Progress:
    """A progress bar on standard error, if that is a terminal."""
    err = Console(stderr=True)
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
