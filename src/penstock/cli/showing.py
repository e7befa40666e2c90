"""How anything gets to a terminal: nothing that came from a peer reaches it unescaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from penstock.journal.contract import GAP


def escape(value: str | bytes) -> str:
    r"""Text of printable characters only: others, and bytes that are no text, as \n, \x1b or \u202e."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in value)


def moment(microseconds: int) -> str:
    """A time for people and for programs: UTC, ISO 8601. Times that no calendar has are shown as numbers."""
    try:
        at = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
    except (ValueError, OverflowError, OSError):
        return str(microseconds)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def amount(size: int) -> str:
    """Bytes, readable."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def positions(lost: tuple[int, int]) -> str:
    """A range of positions in words."""
    first, end = lost
    if end - first >= GAP:
        return f"all positions from {first} on"  # how many that were is not known
    return f"position {first}" if end - first == 1 else f"positions {first} to {end - 1} ({end - first} events)"


def console() -> Console:
    """Where tables and lines go. Wide enough where nobody looks, so that nothing is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: bool = False) -> None:
    """Show a table. Numbers stand right, and everything but the first column if ``right``; every cell is escaped."""
    shown = Table(title=Text(escape(title)), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for index, name in enumerate(columns):
        number = bool(rows) and all(isinstance(row[index], int) for row in rows)
        shown.add_column(name, justify="right" if number or (right and index) else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(escape(str(cell))) for cell in row))
    console().print(shown)
    console().print()


def line(text: str, style: str = "") -> None:
    """Show one line, escaped, however long it is."""
    console().print(Text(escape(text), style=style), soft_wrap=True)


def show_json(value: Any) -> None:
    """One line of JSON. Its strings are ASCII, so it is safe for a terminal too."""
    sys.stdout.write(json.dumps(value) + "\n")


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal. Tell it how many bytes were done since the last time."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda size: bar.advance(task, size)
