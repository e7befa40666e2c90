"""``penstock writers``: whose chunks the broker remembers, so that none counts twice."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.endpoint import ask, endpoint_options, forgotten, seconds_since, show_all
from penstock.cli.output import json_option
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
    show_all(found, COLUMNS, _row, as_json=as_json, nothing="no writer is remembered")


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
    return forgotten("writer", writer, known, as_json=as_json)


def _row(writer: Writer) -> tuple[str, ...]:
    seen = seconds_since(writer.at) if writer.at else "-"
    return (writer.writer, writer.owner or "-", str(writer.epoch), str(writer.partitions), seen)
