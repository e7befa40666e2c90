"""``penstock connections``: connected clients and what they hold."""

from __future__ import annotations

from typing import Any

import click

from penstock.admin.resources.common import Done, Order, Page
from penstock.admin.resources.peers import ConnectionDetail, ConnectionsQuery, ConnectionSummary
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.output import age, amount, json_option, print_done
from penstock.cli.pages import ListRange, page_options, pages, show_one, show_pages

COLUMNS = ("ID", "PROTOCOL", "PEER", "WHO", "SINCE", "OUT", "CONSUMERS", "INPUT", "OUTPUT", "THROTTLED")


@click.group("connections")
def command() -> None:
    """List, show and close connections of clients over the three protocols.

    \b
    Examples:
      penstock connections list
      penstock connections list --queue shop/orders
      penstock connections show 17
      penstock connections close 17 --yes

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused, 4 no such connection.
    """


@command.command("list", short_help="List connections.")
@click.option("--protocol", metavar="NAME", default="", help="Only those of this protocol.")
@click.option("--contains", metavar="TEXT", default="", help="Only those with this text in address, subject or user.")
@click.option("--throttled", is_flag=True, help="Only throttled ones.")
@click.option("--queue", metavar="NS/QUEUE", default="", help="Only consumers of this queue.")
@click.option(
    "--sort",
    type=click.Choice(["id", "out", "input_bytes", "output_bytes"]),
    default="id",
    help="Sort by this column.",
)
@page_options
@api_options
@json_option
def list_connections(
    as_json: bool, protocol: str, contains: str, throttled: bool, queue: str, sort: Any, want: ListRange, api: Api,
) -> None:  # fmt: skip
    """List connections: messages that are OUT, bytes that the broker buffers for them, and why they are throttled.

    WHO is the subject of a certificate, or the user at the other end of a Unix-domain socket.

    \b
    Examples:
      penstock connections list
      penstock connections list --throttled
      penstock connections list --sort out --limit 10 --json
    """
    order: Order = "ascending" if sort == "id" else "descending"
    query = ConnectionsQuery(
        protocol=protocol, contains=contains, throttled=throttled, queue=queue, sort=sort, order=order
    )
    found = pages(api, "connections", Page[ConnectionSummary], query=query, want=want)
    show_pages(found, COLUMNS, _row, as_json=as_json, nothing="no client is connected")


@command.command("show", short_help="Show one connection.")
@click.argument("connection", metavar="ID", type=int)
@api_options
@json_option
def show(connection: int, as_json: bool, api: Api) -> None:
    """Show one connection and the queues that it consumes.

    \b
    Examples:
      penstock connections show 17
    """
    found = api.ask("connection", ConnectionDetail, str(connection))
    rows: list[tuple[str, object]] = list(zip((name.lower() for name in COLUMNS), _row(found), strict=True))
    for each in found.subscriptions:
        what = "dead letters" if each.dead else f"window {each.window}" if each.window else "one message at a time"
        rows.append(("consumes", f"{each.queue}: {what}"))
    show_one(found, rows, as_json=as_json)


@command.command("close", short_help="Close a connection.")
@click.argument("connection", metavar="ID", type=int)
@yes_option
@api_options
@json_option
def close(connection: int, yes: bool, as_json: bool, api: Api) -> None:
    """Close a connection. Its messages return to their queues.

    \b
    Examples:
      penstock connections close 17
      penstock connections close 17 --yes
    """
    confirm(f"This closes connection {connection} and returns its messages to their queues", yes=yes)
    done = api.ask("close-connection", Done, str(connection))
    text = f"connection {connection} is closed"
    print_done({"connection": connection, "closed": done.done}, text, as_json=as_json)


def _row(each: ConnectionSummary) -> tuple[object, ...]:
    who = each.subject or each.user or "-"
    peer = f"{each.peer} (TLS)" if each.tls else each.peer
    held = (amount(each.input_bytes), amount(each.output_bytes), each.throttled or "-")
    return (each.id, each.protocol, peer, who, age(each.since), each.out, each.consumers, *held)
