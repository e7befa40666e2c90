"""``penstock readers``: who reads the journal through the Flight endpoint, and how far behind they are."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.endpoint import ask, endpoint_options, forgotten, seconds_since, show_all
from penstock.cli.output import json_option
from penstock.flight import calls
from penstock.flight.requests import Reader

COLUMNS = ("READER", "VIEW", "OF", "POSITION", "BEHIND", "SECONDS", "LEASED", "PIN", "SEEN", "OWNER")


@click.group("readers", short_help="Who reads the journal, and how far behind they are.")
def command() -> None:
    """Who reads the journal through the Flight endpoint (Spark streams, mostly), and how far behind they are.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
      penstock readers forget nightly-export
      penstock readers list --endpoint grpc+tls://mq.example.com:8815 --ca ca.pem --token-file token

    Exit codes: 0 done, 1 nobody there, 2 wrong use, 3 refused by the access rules, 4 there is no such reader.
    """


@command.command("list", short_help="Show all readers.")
@endpoint_options
@json_option
def list_readers(as_json: bool, **where: Any) -> None:
    """Show all readers: what each reads, its position, the rows behind it and the age of the oldest, and its leases.

    PIN: retention waits for this reader, as far as the broker's limits allow. SEEN: seconds since it last said so.
    OWNER: the identity that the name belongs to; nobody's without access rules.

    \b
    Examples:
      penstock readers list
      penstock readers list --json
    """
    found: list[Reader] = ask(calls.Readers(), list[Reader], **where)
    show_all(found, COLUMNS, _row, as_json=as_json, nothing="nobody has said that they read")


@command.command("forget", short_help="Drop a reader.")
@click.argument("reader", metavar="NAME")
@endpoint_options
@json_option
def forget(reader: str, as_json: bool, **where: Any) -> int:
    """Drop a reader: retention waits for it no longer, and what it has leased goes back to the queues.

    For readers that will not come back. One that does is simply there again, from where it stands. Who may administer
    all queues drops any, everybody else its own.

    \b
    Examples:
      penstock readers forget nightly-export
    """
    known = ask(calls.ForgetReader(reader=reader), bool, **where)
    return forgotten("reader", reader, known, as_json=as_json)


def _row(reader: Reader) -> tuple[str, ...]:
    where = (reader.reader, reader.view, reader.where)
    lag = (str(reader.position), str(reader.lag_rows), f"{reader.lag_seconds:.1f}", str(reader.leased))
    return (*where, *lag, "yes" if reader.pin else "no", seconds_since(reader.at), reader.owner or "-")
