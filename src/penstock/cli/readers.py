"""``penstock readers``: who reads the journal, and how far behind they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from penstock.admin.resources.common import Page
from penstock.admin.resources.peers import NamesQuery, Reader
from penstock.cli.api import Api
from penstock.cli.endpoint import ask, endpoint_options, forget_name, over_flight
from penstock.cli.output import age, json_option
from penstock.cli.pages import page_options, pages, show_pages, wanted
from penstock.endpoint.readers_and_writers import ReaderRow
from penstock.flight import calls

COLUMNS = ("READER", "VIEW", "OF", "POSITION", "BEHIND", "SECONDS", "LOST", "LEASED", "PIN", "SEEN", "OWNER")


@click.group("readers", short_help="Who reads the journal, and how far behind they are.")
def command() -> None:
    """Who reads the journal through the Flight endpoint (Spark streams, mostly), and how far behind they are.

    Asked over HTTP, which takes a right for all queues; or with --endpoint over Flight, where everybody has their own.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
      penstock readers forget nightly-export
      penstock readers list --endpoint grpc+tls://mq.example.com:8815 --ca ca.pem --token-file token

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused by the access rules, 4 no such reader.
    """


@command.command("list", short_help="Show all readers.")
@page_options
@endpoint_options
@json_option
def list_readers(as_json: bool, limit: int | None, everything: bool, cursor: str, **where: Any) -> None:
    """Show all readers: what each reads, its position, the rows behind it and the age of the oldest, and its leases.

    LOST: positions that it has read, and that the journal has lost since: it was restored, for instance.
    PIN: retention waits for this reader, as far as the broker's limits allow. SEEN: when it last said so.
    OWNER: the identity that the name belongs to; without access rules, none.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
    """
    want = wanted(limit=limit, everything=everything, cursor=cursor)
    flight = over_flight(where)
    if flight is not None:
        rows: list[ReaderRow] = ask(calls.Readers(), list[ReaderRow], **flight)
        found = iter([Page[Reader](items=[_as_resource(each) for each in rows], total=len(rows))])
    else:
        found = pages(Api.of(**where), "readers", Page[Reader], query=NamesQuery(), want=want)
    show_pages(found, COLUMNS, _row, as_json=as_json, nothing="there are no readers")


@command.command("forget", short_help="Drop a reader.")
@click.argument("reader", metavar="NAME")
@endpoint_options
@json_option
def forget(reader: str, as_json: bool, **where: Any) -> int:
    """Drop a reader: retention waits for it no longer, and what it has leased goes back to the queues.

    For readers that will not come back. One that does is simply there again, from where it stands. Over Flight, who may
    administer all queues drops any, everybody else its own.

    \b
    Examples:
      penstock readers forget nightly-export
    """
    return forget_name("reader", "forget-reader", reader, calls.ForgetReader(reader=reader), where, as_json=as_json)


def _as_resource(row: ReaderRow) -> Reader:
    return Reader(
        name=row.reader,
        view=row.view,
        where=row.where,
        position=row.position,
        lag_rows=row.lag_rows,
        lag_seconds=row.lag_seconds,
        lost_from=row.lost_from,
        pin=row.pin,
        peer=row.peer,
        heard_at=datetime.fromtimestamp(row.at / 1e6, UTC),
        leased=row.leased,
        owner=row.owner,
    )


def _row(reader: Reader) -> tuple[object, ...]:
    lost = f"{reader.lost_from} to {reader.position - 1}" if reader.lost_from else "-"
    lag = (reader.position, reader.lag_rows, f"{reader.lag_seconds:.1f}", lost, reader.leased)
    seen = f"{age(reader.heard_at)} ago"
    return (reader.name, reader.view, reader.where, *lag, "yes" if reader.pin else "no", seen, reader.owner or "-")
