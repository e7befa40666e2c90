"""Output: lines and JSON. Text from peers is escaped before it reaches a terminal.

Tables and progress are in :mod:`penstock.cli.displays`, whose library would slow down the start of a broker.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

#: ``--json``, for every command.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line, for programs.")


# --------------------------------------------------------------------------------------------------------------- lines


def say(*lines: str) -> None:
    """Print lines for people on standard output."""
    for line in lines:
        print(escape(line))


def note(*lines: str) -> None:
    """Print lines for people on standard error."""
    for line in lines:
        print(escape(line), file=sys.stderr)


def print_error(*lines: str) -> None:
    """Print an error on standard error."""
    for at, line in enumerate(lines):
        note(f"penstock: {line}" if not at else f"  {line}")


def print_json(value: Any) -> None:
    """Print one JSON value on its own line. ASCII only, so safe on any terminal."""
    print(json.dumps(value, default=str), flush=True)


def print_done(value: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Report what a command did: as JSON, or as a line on standard error."""
    if as_json:
        print_json(value)
    else:
        note(text)


def print_resource(value: msgspec.Struct) -> None:
    """Print an answer of the HTTP API as JSON, keeping every digit."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    print(re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text), flush=True)


# -------------------------------------------------------------------------------------------------------------- values


def escape(value: str | bytes) -> str:
    r"""Escape unprintable characters, and bytes that are not UTF-8, as \n, \x1b or \u202e."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in value)


def moment(microseconds: int) -> str:
    """A time as ISO 8601 in UTC; as a number if it is outside the calendar."""
    try:
        at = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
    except (ValueError, OverflowError, OSError):
        return str(microseconds)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def when(at: datetime | None) -> str:
    """A time of the HTTP API as ISO 8601 to the second; a dash for never."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(at: datetime | None) -> str:
    """How long ago it was, for people; a dash for never."""
    if at is None:
        return "-"
    seconds = max((datetime.now(UTC) - at).total_seconds(), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def amount(size: int) -> str:
    """A size for people."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"
