"""``penstock writers``: whose chunks the broker remembers, so that none counts twice."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from penstock.cli.output import json_option, note, tell
from penstock.cli.readers import NOBODY, OK, ask, endpoint_options, show_table
from penstock.flight import calls
from penstock.flight.requests import Writer

COLUMNS = ("WRITER", "OWNER", "EPOCH", "PARTITIONS", "SEEN")


@click.group("writers", short_help="Whose chunks are remembered, so that none counts twice.")
def command() -> None:
    """Writers through the Flight endpoint (Spark, mostly) whose chunks the broker remembers, so that none counts twice.

    Who may administer all queues sees and drops all of them, everybody else its own.

    \b
    Examples:
      penstock writers list
      penstock writers list --json
      penstock writers drop query-5f0c
      penstock writers list --endpoint grpc+tls://mq.example.com:8815 --ca ca.pem --token-file token

    Exit codes: 0 done, 1 nobody there, 2 wrong use, 3 refused by the access rules, 4 there is no such writer.
    """


@command.command("list", short_help="Show the writers.")
@endpoint_options
@json_option
def list_writers(as_json: bool, **where: Any) -> None:
    """Show the writers: to whom each belongs, its newest epoch, and how many partitions of that have written.

    SEEN: seconds since its last chunk. Without access rules a writer belongs to nobody.

    \b
    Examples:
      penstock writers list
      penstock writers list --json
    """
    found: list[Writer] = ask(calls.Writers(), list[Writer], **where)
    if as_json:
        for writer in found:
            tell(msgspec.to_builtins(writer))
    elif not found:
        note("no writer is remembered")
    else:
        show_table(COLUMNS, map(_row, found))


@command.command("drop", short_help="Forget a writer.")
@click.argument("writer", metavar="NAME")
@endpoint_options
@json_option
def drop(writer: str, as_json: bool, **where: Any) -> int:
    """Forget a writer, and free its name. What it has published stays.

    For writers that will not come back: one that repeats a chunk after that publishes it twice.

    \b
    Examples:
      penstock writers drop query-5f0c
    """
    known = ask(calls.EndWriter(writer=writer), bool, **where)
    if as_json:
        tell({"writer": writer, "known": known})
    else:
        note(f"{writer} is forgotten" if known else f"there is no writer {writer}")
    return OK if known else NOBODY


def _row(writer: Writer) -> tuple[str, ...]:
    seen = f"{max(time.time() - writer.at / 1e6, 0):.0f}" if writer.at else "-"
    return (writer.writer, writer.owner or "-", str(writer.epoch), str(writer.partitions), seen)
