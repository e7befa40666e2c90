"""``penstock definitions``: namespaces, queues and their rules as one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.admin.resources.common import Change
from penstock.admin.resources.operations import DefinitionsQuery, Imported, ImportQuery
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.displays import table
from penstock.cli.errors import WRONG_USE, CommandError
from penstock.cli.output import json_option, note, print_json, say

MEDIA = {".toml": "application/toml", ".json": "application/json"}


@click.group("definitions")
def command() -> None:
    """Export and import namespaces, queues with their rules, and limits as one file.

    \b
    Examples:
      penstock definitions export --output shop.toml
      penstock definitions import shop.toml --dry-run
      penstock definitions import shop.toml --yes

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, or an invalid file; 3 refused.
    """


@command.command("export", short_help="Write the definitions of a broker.")
@click.option(
    "--format", "form", type=click.Choice(["toml", "json"]), help="[default: that of the file's name, or toml]"
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Not to standard output.",
)
@api_options
@json_option
def export(form: Any, output: Path | None, as_json: bool, api: Api) -> None:
    """Write the definitions of a broker to a file, or to standard output.

    \b
    Examples:
      penstock definitions export > shop.toml
      penstock definitions export --output shop.json
      penstock definitions export --json | jq .queues
    """
    if form is None:
        form = "json" if as_json or (output is not None and output.suffix == ".json") else "toml"
    query = DefinitionsQuery(format=form)
    found = api.raw("definitions", query=query)
    if output is None:
        _print(found)
        return
    output.write_bytes(found)
    note(f"the definitions are in {output}")


@command.command("import", short_help="Apply definitions from a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--remove", is_flag=True, help="Delete empty queues and namespaces that the file does not contain.")
@yes_option
@api_options
@json_option
def import_file(file: Path, dry_run: bool, remove: bool, yes: bool, as_json: bool, api: Api) -> None:
    """Apply the definitions in FILE (.toml or .json). The differences are shown first; limits are only compared.

    \b
    Examples:
      penstock definitions import shop.toml --dry-run
      penstock definitions import shop.toml
      penstock definitions import shop.toml --remove --yes
    """
    media = MEDIA.get(file.suffix)
    if media is None:
        raise CommandError(f"{file} is named neither .toml nor .json", exit_code=WRONG_USE)
    data, headers = file.read_bytes(), {"content-type": media}
    query = ImportQuery(dry_run=True, remove=remove)
    imported = msgspec.json.decode(
        api.raw("import-definitions", query=query, body=data, headers=headers), type=Imported
    )
    if not as_json:
        _show(imported.changes)
    if not dry_run and imported.changes:
        confirm(f"{len(imported.changes)} changes will be made", yes=yes)
        query = ImportQuery(remove=remove)
        answer = api.raw("import-definitions", query=query, body=data, headers=headers)
        imported = msgspec.json.decode(answer, type=Imported)
    if as_json:
        print_json(msgspec.to_builtins(imported))
    elif imported.changes:
        note("done" if imported.applied else "nothing was changed: this was a dry run")


def _show(changes: list[Change]) -> None:
    if not changes:
        say("nothing is different")
        return
    rows = [(each.action, each.what, each.name, _difference(each), each.note) for each in changes]
    table(("", "", "NAME", "DIFFERENCE", ""), rows)


def _difference(change: Change) -> str:
    before, after = change.before, change.after
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in after if before.get(name) != after[name]]
        return ", ".join(f"{name}: {before.get(name)} → {after[name]}" for name in names)
    return "" if change.action != "change" else f"{before} → {after}"


def _print(found: bytes) -> None:
    """Print the bytes unchanged, so that they can be imported again; on a terminal escaped."""
    if sys.stdout.isatty():
        say(*found.decode().splitlines())
    else:
        click.echo(found, nl=not found.endswith(b"\n"))
