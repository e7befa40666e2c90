"""Before something that can't be undone: a question on a terminal, ``--yes`` for programs."""

from __future__ import annotations

import sys

import click

from penstock.cli.errors import WRONG_USE, CommandError

yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")


def confirm(what: str, *, yes: bool, word: str = "") -> None:
    """Go on, or raise CommandError. ``word`` is to be typed where a plain yes would come too easily."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"{what}: confirm it with --yes", exit_code=WRONG_USE)
    if word:
        agreed = click.prompt(f"{what}\nType {word} to go on", default="", show_default=False, err=True) == word
    else:
        agreed = click.confirm(f"{what}. Go on?", err=True)
    if not agreed:
        raise CommandError("nothing was done")
