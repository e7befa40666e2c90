"""``penstock compile``: compiles the modules that work for every message."""

from __future__ import annotations

import click

from penstock import compiled
from penstock.cli.errors import NOT_ENOUGH, OK
from penstock.cli.output import note
from penstock.compiled.build import compile_modules, is_compiled, remove


@click.command("compile", short_help="Compile what works for every message, with a C compiler.")
@click.option("--check", "only_check", is_flag=True, help="Only say whether Penstock runs compiled.")
@click.option("--remove", "only_remove", is_flag=True, help="Remove what was compiled for this Python.")
def command(only_check: bool, only_remove: bool) -> int:
    """Compile the modules that work for every message: a broker takes less of the processor then.

    It takes half a minute, a C compiler, and pip install 'penstock[compile]'. Processes that start afterwards use what
    was compiled, as long as the sources are the same. Without it, or with PENSTOCK_COMPILED=off, the sources run.

    \b
    Examples:
      penstock compile
      penstock compile --check
      penstock compile --remove

    Exit codes: 0 done, 1 it can't be compiled here, 2 wrong use, 4 with --check: it does not run compiled.
    """
    if only_check and only_remove:
        raise click.UsageError("--check and --remove exclude each other.")
    if only_check:
        click.echo(f"Penstock runs {compiled.state.value}")
        return OK if compiled.state is compiled.State.USED else NOT_ENOUGH
    if only_remove:
        note("removed: the sources run from now on" if remove() else "nothing was compiled for this Python")
        return OK
    if is_compiled():
        note("compiled already, and up to date")
        return OK
    compile_modules()
    note(f"{len(compiled.MODULES)} modules compiled: processes that start from now on use them")
    return OK
