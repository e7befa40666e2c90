"""``penstock token``: tokens for HTTP and Flight, and their rights."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from penstock.admin.resources.access import NewToken, Right, TokenMade, TokenSummary
from penstock.admin.resources.common import Done, Page, PageQuery
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.output import json_option, note, print_done, print_json, when
from penstock.cli.pages import ListRange, page_options, pages, show_pages

COLUMNS = ("ID", "NAME", "MAY", "WHERE", "MADE", "BY", "EXPIRES")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """Seconds of a number with a unit."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None or not int(found[1]):
        raise click.BadParameter(f"{text!r} is not a duration: write it as 30m, 12h or 90d")
    return float(int(found[1]) * UNITS[found[2]])


@click.group("token")
def command() -> None:
    """Create, list and revoke tokens for the HTTP API, the console and Flight. The broker keeps only their hashes.

    Rights over HTTP: view sees, operate also publishes, purges and redrives, admin also creates queues and tokens.

    \b
    Examples:
      penstock token create dashboard --may view
      penstock token create shop-team --may operate --where "shop/*" --expires 90d
      penstock token list
      penstock token revoke 3f9c --yes

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused, 4 no such token.
    """


@command.command("create", short_help="Create a token, which is shown only once.")
@click.argument("name")
@click.option(
    "--may", multiple=True, type=click.Choice(get_args(Right)), help="A right; may be repeated. [default: view]"
)
@click.option("--where", "patterns", multiple=True, metavar="PATTERN", help="The queues; may be repeated. [default: *]")
@click.option("--expires", type=duration, metavar="DURATION", help="After 30m, 12h or 90d. [default: never]")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it to a new, private file.")
@api_options
@json_option
def create(
    name: str, may: tuple[Any, ...], patterns: tuple[str, ...], expires: float | None, output: Path | None,
    as_json: bool, api: Api,
) -> None:  # fmt: skip
    """Create a token for NAME, and print it: it cannot be shown again.

    \b
    Examples:
      penstock token create dashboard
      penstock token create backup-job --may admin --output backup.token
      penstock token create shop-team --may operate --where "shop/*" --expires 90d
    """
    request = NewToken(name=name, may=list(may) or ["view"], where=list(patterns) or ["*"], expires_in_seconds=expires)
    file = None if output is None else os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        created = api.ask("create-token", TokenMade, body=request)
        if file is not None:
            os.write(file, f"{created.token}\n".encode())
    except BaseException:
        if output is not None:
            output.unlink(missing_ok=True)
        raise
    finally:
        if file is not None:
            os.close(file)
    _show_created(created, output, as_json=as_json)


@command.command("list", short_help="List the tokens, without their secrets.")
@page_options
@api_options
@json_option
def list_tokens(as_json: bool, want: ListRange, api: Api) -> None:
    """List the tokens, the oldest first. The broker does not keep the tokens themselves.

    \b
    Examples:
      penstock token list
      penstock token list --json | jq -r 'select(.expired) | .id'
    """
    found = pages(api, "tokens", Page[TokenSummary], query=PageQuery(), want=want)
    show_pages(found, COLUMNS, _row, as_json=as_json, nothing="no tokens were made")


@command.command("revoke", short_help="Revoke a token at once.")
@click.argument("token_id", metavar="ID")
@yes_option
@api_options
@json_option
def revoke(token_id: str, yes: bool, as_json: bool, api: Api) -> None:
    """Revoke a token by its ID in `penstock token list`, at once and for all its users.

    \b
    Examples:
      penstock token revoke 3f9c
      penstock token revoke 3f9c --yes
    """
    confirm(f"This revokes the token {token_id} and locks out its users at once", yes=yes)
    done = api.ask("revoke-token", Done, token_id)
    print_done({"token": token_id, "revoked": done.done}, f"the token {token_id} is revoked", as_json=as_json)


def _show_created(made: TokenMade, output: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(made if output is None else made.summary))
        return
    if output is None:
        print(made.token)
    place = f"in {output}" if output is not None else "shown this once"
    summary = made.summary
    rights = f"{', '.join(summary.may)} on {', '.join(summary.where)}"
    note(f"the token {summary.id} of {summary.name}, {place}: {rights}, expires {_expires(summary)}")


def _expires(token: TokenSummary) -> str:
    return "never" if token.expires_at is None else when(token.expires_at) + (" (expired)" if token.expired else "")


def _row(token: TokenSummary) -> tuple[object, ...]:
    rights = (", ".join(token.may), ", ".join(token.where))
    return (token.id, token.name, *rights, when(token.created_at), token.created_by, _expires(token))
