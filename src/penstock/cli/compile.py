"""``penstock compile``: compiles the modules on every message's path."""

from __future__ import annotations

import click

from penstock import compiled
from penstock.cli.errors import NOT_ENOUGH, OK
from penstock.cli.output import json_option, note, print_json
from penstock.compiled.build import compile_modules, is_compiled, remove


@click.command("compile")
@click.option("--check", "only_check", is_flag=True, help="Only report whether Penstock runs compiled.")
@click.option("--remove", "only_remove", is_flag=True, help="Remove the modules compiled for this Python.")
@json_option
def command(only_check: bool, only_remove: bool, as_json: bool) -> int:
    """Compile the code that runs for every message, so that a broker needs less CPU time.

    This takes half a minute, a C compiler, and pip install 'penstock[compile]'. Processes that start afterwards use the
    compiled modules as long as the sources are the same. Without them, or with PENSTOCK_COMPILED=off, the sources run.

    \b
    Examples:
      penstock compile
      penstock compile --check
      penstock compile --remove

    Exit codes: 0 done, 1 it cannot be compiled here, 2 wrong use, 4 with --check: it does not run compiled.
    """
    if only_check and only_remove:
        raise click.UsageError("--check and --remove exclude each other.")
    if only_check:
        return _check(as_json)
    if only_remove:
        folders = remove()
        text = "removed: the sources run from now on" if folders else "nothing was compiled for this Python"
        _say({"removed": folders}, text, as_json)
        return OK
    made = not is_compiled() and compile_modules()
    count = len(compiled.MODULES)
    text = f"{count} modules compiled: processes that start from now on use them"
    _say({"modules": count, "made": made}, text if made else "compiled already, and up to date", as_json)
    return OK


def _check(as_json: bool) -> int:
    used = compiled.state is compiled.State.USED
    if as_json:
        print_json({"compiled": used, "runs": compiled.state.value})
    else:
        click.echo(f"Penstock runs {compiled.state.value}")
    return OK if used else NOT_ENOUGH


def _say(value: dict[str, object], text: str, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        note(text)
