"""``penstock writers``: writers whose chunks the broker remembers, so that none counts twice."""

from __future__ import annotations

import click

from penstock.admin.resources.common import Page
from penstock.admin.resources.peers import NamesQuery, Writer
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.output import age, json_option
from penstock.cli.pages import ListRange, forget_name, page_options, pages, show_pages

COLUMNS = ("WRITER", "OWNER", "EPOCH", "PARTITIONS", "SEEN")


@click.group("writers")
def command() -> None:
    """Writers through the Flight endpoint (Spark, mostly) whose chunks the broker remembers, so that none counts twice.

    This requires a token with a right on all queues.

    \b
    Examples:
      penstock writers list
      penstock writers list --json
      penstock writers drop query-5f0c

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused by the access rules, 4 no such writer.
    """


@command.command("list", short_help="Show the writers.")
@page_options
@api_options
@json_option
def list_writers(as_json: bool, want: ListRange, api: Api) -> None:
    """Show the writers: each one's owner, newest epoch, and the number of partitions that have written in it.

    SEEN: the time of its last chunk. Without access rules a writer has no owner.

    \b
    Examples:
      penstock writers list
      penstock writers list --json
    """
    found = pages(api, "writers", Page[Writer], query=NamesQuery(), want=want)
    show_pages(found, COLUMNS, _row, as_json=as_json, nothing="no writer is remembered")


@command.command("drop", short_help="Forget a writer.")
@click.argument("writer", metavar="NAME")
@api_options
@json_option
def drop(writer: str, as_json: bool, api: Api) -> int:
    """Forget a writer, and free its name. What it has published stays.

    Use this for writers that will not come back: a writer that repeats a chunk afterwards publishes it twice.

    \b
    Examples:
      penstock writers drop query-5f0c
    """
    return forget_name(api, "writer", writer, as_json=as_json)


def _row(writer: Writer) -> tuple[object, ...]:
    seen = f"{age(writer.written_at)} ago" if writer.written_at else "-"
    return (writer.name, writer.owner or "-", writer.epoch, writer.partitions, seen)
