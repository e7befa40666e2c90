"""Confirm what can't be undone: a question on a terminal, ``--yes`` for programs."""

from __future__ import annotations

import sys

import click

from penstock.cli.errors import FAILED, WRONG_USE, CommandError

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(what: str, *, yes: bool, word: str = "", declined: int = FAILED) -> None:
    """Return if the user agrees; else raise CommandError, with the exit code ``declined`` after a no.

    ``word`` must be typed where a plain yes would be too easy.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"{what}: confirm it with --yes", exit_code=WRONG_USE)
    if word:
        agreed = click.prompt(f"{what}\nType {word} to continue", default="", show_default=False, err=True) == word
    else:
        agreed = click.confirm(f"{what}. Go on?", err=True)
    if not agreed:
        raise CommandError("nothing was changed", exit_code=declined)
