"""Options of commands that call the HTTP API: they give the command an ``Api``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from penstock.cli.api import DEFAULT_URL, Api, Tls
from penstock.cli.errors import WRONG_USE, CommandError


def with_options(command: Any, *options: Any) -> Any:
    """A command with these options, in this order."""
    for each in reversed(options):
        command = each(command)
    return command


def api_options(command: Callable[..., Any]) -> Any:
    """Options for the API's address, the token and TLS. The command receives them as ``api``."""

    @wraps(command)
    def called(*, url: str, token: str | None, token_file: Path | None, **flags: Any) -> Any:
        tls = Tls(*(flags.pop(name) for name in Tls._fields))
        return command(api=Api(url, _token(token, token_file), tls), **flags)

    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return with_options(
        called,
        click.option(
            "--url",
            metavar="URL",
            envvar="PENSTOCK_URL",
            default=DEFAULT_URL,
            help=f"The broker's HTTP: http://HOST:PORT, https://HOST:PORT or http+unix:PATH; of several, with commas "
            f"between them, the one that serves. [default: {DEFAULT_URL}]",
        ),
        click.option("--token", metavar="TOKEN", envvar="PENSTOCK_TOKEN", help="Our token; better in $PENSTOCK_TOKEN."),
        click.option("--token-file", type=file, metavar="FILE", help="Read the token from this file."),
        click.option("--ca", type=file, metavar="FILE", help="Trust certificates of this authority (PEM)."),
        click.option("--certificate", type=file, metavar="FILE", help="Our own certificate (PEM)."),
        click.option("--key", type=file, metavar="FILE", help="Its key (PEM)."),
        click.option("--server-name", metavar="NAME", help="The name that the certificate must have."),
    )


def _token(token: str | None, token_file: Path | None) -> str:
    """The token, or an empty string. A file wins over the variable, as it was named."""
    if token_file is None:
        return (token or "").strip()
    found = token_file.read_text(errors="replace").strip()
    if not found:
        text = f"--token-file {token_file} is empty: it contains the token, and nothing else"
        raise CommandError(text, exit_code=WRONG_USE)
    return found
