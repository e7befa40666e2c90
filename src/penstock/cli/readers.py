"""``penstock readers``: readers of the journal, and how far behind they are."""

from __future__ import annotations

import click

from penstock.admin.resources.common import Page
from penstock.admin.resources.peers import NamesQuery, Reader
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.output import age, json_option
from penstock.cli.pages import ListRange, forget_name, page_options, pages, show_pages

COLUMNS = ("READER", "VIEW", "OF", "POSITION", "BEHIND", "SECONDS", "LOST", "LEASED", "PIN", "SEEN", "OWNER")


@click.group("readers")
def command() -> None:
    """Clients that read the journal through the Flight endpoint (Spark streams, mostly), and how far behind they are.

    This takes a token with a right on all queues.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
      penstock readers forget nightly-export

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused by the access rules, 4 no such reader.
    """


@command.command("list", short_help="Show all readers.")
@page_options
@api_options
@json_option
def list_readers(as_json: bool, want: ListRange, api: Api) -> None:
    """Show all readers: what each reads, its position, the rows behind it and the age of the oldest, and its leases.

    LOST: positions that it has read and the journal has lost since, as after a restore.
    PIN: retention waits for this reader, within the broker's limits. SEEN: its last report.
    OWNER: the identity that the name belongs to; none without access rules.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
    """
    found = pages(api, "readers", Page[Reader], query=NamesQuery(), want=want)
    show_pages(found, COLUMNS, _row, as_json=as_json, nothing="there are no readers")


@command.command("forget", short_help="Drop a reader.")
@click.argument("reader", metavar="NAME")
@api_options
@json_option
def forget(reader: str, as_json: bool, api: Api) -> int:
    """Drop a reader: retention waits for it no longer, and what it has leased goes back to the queues.

    For readers that will not come back. One that does continues from its own position.

    \b
    Examples:
      penstock readers forget nightly-export
    """
    return forget_name(api, "reader", reader, as_json=as_json)


def _row(reader: Reader) -> tuple[object, ...]:
    lost = f"{reader.lost_from} to {reader.position - 1}" if reader.lost_from else "-"
    lag = (reader.position, reader.lag_rows, f"{reader.lag_seconds:.1f}", lost, reader.leased)
    seen = f"{age(reader.heard_at)} ago"
    return (reader.name, reader.view, reader.where, *lag, "yes" if reader.pin else "no", seen, reader.owner or "-")
