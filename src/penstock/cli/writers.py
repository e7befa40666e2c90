"""``penstock writers``: whose chunks the broker remembers, so that none counts twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from penstock.admin.resources.common import Page
from penstock.admin.resources.peers import NamesQuery, Writer
from penstock.cli.api import Api
from penstock.cli.endpoint import ask, endpoint_options, forget_name, over_flight
from penstock.cli.output import age, json_option
from penstock.cli.pages import page_options, pages, show_pages, wanted
from penstock.endpoint.readers_and_writers import WriterRow
from penstock.flight import calls

COLUMNS = ("WRITER", "OWNER", "EPOCH", "PARTITIONS", "SEEN")


@click.group("writers", short_help="Whose chunks are remembered, so that none counts twice.")
def command() -> None:
    """Writers through the Flight endpoint (Spark, mostly) whose chunks the broker remembers, so that none counts twice.

    Asked over HTTP, which takes a right for all queues; or with --endpoint over Flight, where who may administer all
    queues sees and drops all of them, and everybody else its own.

    \b
    Examples:
      penstock writers list
      penstock writers list --json
      penstock writers drop query-5f0c
      penstock writers list --endpoint grpc+tls://mq.example.com:8815 --ca ca.pem --token-file token

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused by the access rules, 4 no such writer.
    """


@command.command("list", short_help="Show the writers.")
@page_options
@endpoint_options
@json_option
def list_writers(as_json: bool, limit: int | None, everything: bool, cursor: str, **where: Any) -> None:
    """Show the writers: to whom each belongs, its newest epoch, and how many partitions of that have written.

    SEEN: when its last chunk came. Without access rules a writer has no owner.

    \b
    Examples:
      penstock writers list
      penstock writers list --json
    """
    want = wanted(limit=limit, everything=everything, cursor=cursor)
    flight = over_flight(where)
    if flight is not None:
        rows: list[WriterRow] = ask(calls.Writers(), list[WriterRow], **flight)
        found = iter([Page[Writer](items=[_as_resource(each) for each in rows], total=len(rows))])
    else:
        found = pages(Api.of(**where), "writers", Page[Writer], query=NamesQuery(), want=want)
    show_pages(found, COLUMNS, _row, as_json=as_json, nothing="no writer is remembered")


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
    return forget_name("writer", "forget-writer", writer, calls.EndWriter(writer=writer), where, as_json=as_json)


def _as_resource(row: WriterRow) -> Writer:
    written = datetime.fromtimestamp(row.at / 1e6, UTC) if row.at else None
    return Writer(name=row.writer, owner=row.owner, epoch=row.epoch, partitions=row.partitions, written_at=written)


def _row(writer: Writer) -> tuple[object, ...]:
    seen = f"{age(writer.written_at)} ago" if writer.written_at else "-"
    return (writer.name, writer.owner or "-", writer.epoch, writer.partitions, seen)
