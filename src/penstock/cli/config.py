"""``penstock config``: check and show the broker's configuration."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from typing import Any

import click
from msgspec import to_builtins

from penstock.cli.errors import OK, WRONG_USE
from penstock.cli.output import json_option, note, print_json, say
from penstock.cli.serve import flags_of, options
from penstock.journal.passwords import without_passwords
from penstock.server.options.configuration import ConfigurationError, Layers, layers
from penstock.server.options.option_tree import OptionPath, flat


@click.group("config")
def command() -> None:
    """Check and show the broker's configuration.

    \b
    Examples:
      penstock config check /etc/penstock.toml
      penstock config show --config /etc/penstock.toml
      PENSTOCK_LIMITS_CONNECTIONS=50 penstock config show --json
      penstock config token
    """


@command.command("check", short_help="Check a file.")
@click.argument("file", required=False)
@json_option
def check(file: str | None, as_json: bool) -> int:
    """Check FILE (else $PENSTOCK_CONFIG), with the PENSTOCK_… variables over it. Nothing is opened or started.

    Certificates are not read and addresses not tried: the broker does that when it starts.

    \b
    Examples:
      penstock config check penstock.toml
      penstock config check penstock.toml --json

    Exit codes: 0 valid, 2 invalid; the message says where and why.
    """
    try:
        found = layers(file, os.environ, {})
        found.options()
    except ConfigurationError as error:
        if not as_json:
            raise
        print_json({"ok": False, "error": str(error), "more": getattr(error, "__notes__", [])})
        return WRONG_USE
    where = file or os.environ.get("PENSTOCK_CONFIG") or "defaults and environment"
    if as_json:
        print_json({"ok": True, "error": None, "unknown": [each.facts() for each in found.variables.unknown]})
    else:
        note(*map(str, found.variables.unknown))
        say(f"{where}: good")
    return OK


@command.command("show", short_help="Show every option and where its value comes from.")
@options
@json_option
def show(config: str | None, as_json: bool, **given: Any) -> None:
    """Show every option as `penstock serve` with the same flags would use it, and where each value comes from.

    A password in a URL is shown as ***.

    \b
    Examples:
      penstock config show
      penstock config show --config penstock.toml --durability os
      penstock config show --json | jq .options.limits

    Exit codes: 0, or 2 for an invalid configuration.
    """
    found = layers(config, os.environ, flags_of(given))
    result = found.options()
    note(*map(str, found.variables.unknown))
    if as_json:
        origins = {str(path): found.origin(path) for path, _ in flat(result)}
        print_json({"options": _shown(to_builtins(result)), "origins": origins})
        return
    rows = [(str(path), json.dumps(_shown(to_builtins(value))), _origin(found, path)) for path, value in flat(result)]
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    say(*(f"{path:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip() for path, value, origin in rows))


@command.command("token", short_help="Generate a token and its hash for an access rule.")
@json_option
def token(as_json: bool) -> None:
    """Generate a token for a client of the Flight endpoint, such as Spark, and its SHA-256 for an access rule.

    The broker's configuration contains only the hash, which does not reveal the token. This command stores nothing.

    \b
    Examples:
      penstock config token
      penstock config token --json

    Exit codes: 0.
    """
    made = secrets.token_urlsafe(32)
    digest = hashlib.sha256(made.encode()).hexdigest()
    if as_json:
        print_json({"token": made, "token_sha256": digest})
    else:
        say(f"token         {made}", f"token_sha256  {digest}")


def _shown(value: Any) -> Any:
    """Options without the passwords in URLs."""
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_shown, value))
    return without_passwords(value) if isinstance(value, str) else value


def _origin(found: Layers, path: OptionPath) -> str:
    """Where a value comes from; empty for a default, as most are and would hide the others."""
    origin = found.origin(path)
    return "" if origin == "default" else f"# {origin}"
