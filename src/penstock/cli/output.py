"""What reaches a terminal: lines and JSON. What came from a peer is escaped before it does.

Tables and progress are in :mod:`penstock.cli.displays`, whose library a broker need not wait for when it starts.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

T = TypeVar("T")

#: ``--json``, for every command.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line, for programs.")


# --------------------------------------------------------------------------------------------------------------- lines


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


def tell_resource(value: msgspec.Struct) -> None:
    """The same for what the HTTP API has answered, digit by digit."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    print(re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text), flush=True)


# -------------------------------------------------------------------------------------------------------------- values


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


def when(at: datetime | None) -> str:
    """The same to the second, from what the HTTP API tells; a dash for never."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(at: datetime | None) -> str:
    """How long ago this was, for people; a dash for never."""
    if at is None:
        return "-"
    seconds = max((datetime.now(UTC) - at).total_seconds(), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


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


# -------------------------------------------------------------------------------------------------------------- running


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop where that is installed."""
    try:
        from uvloop import new_event_loop  # noqa: PLC0415
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
