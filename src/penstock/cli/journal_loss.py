"""``penstock journal accept-loss``: an operator's decision to go on without events that are lost."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from penstock.cli.errors import REFUSED, CommandError
from penstock.cli.journal_argument import journal_argument
from penstock.cli.output import json_option, print_json, say
from penstock.journal import Journal, forget_known
from penstock.server.process.local_folder import LocalFolder

EXIT_CODES = """\b
Exit codes:
  0  done
  1  the disk failed
  2  wrong use of the command
  3  refused: in use by a broker, damaged, no journal, or the database does not answer
"""


@click.command(
    "accept-loss",
    epilog=f"""\b
Examples:
  penstock journal accept-loss postgresql://mq@db.example.com/penstock
  penstock journal accept-loss /var/lib/penstock
  penstock journal accept-loss postgresql://mq@db.example.com/penstock --data /var/lib/penstock

{EXIT_CODES}""",
)
@journal_argument
@click.option("--data", metavar="DIR", help="Instead, have the broker with this data folder forget what it knows.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def accept_loss(journal: Journal, data: str | None, yes: bool, as_json: bool) -> None:
    """Go on from the state that a journal is in, although later events are lost. All brokers on it must be stopped.

    Do this after a database or a data folder was restored from a backup or a snapshot by other means than `penstock
    restore`, or when brokers have ended with exit code 5, since a database has lost commits, and nobody can bring these
    back. Nothing that is there is changed. Positions go on higher than any that can have been used, and readers that
    have read what is lost are told so.

    With --data the journal is not touched: a broker whose database was emptied, or has another journal now, begins with
    what is there.
    """
    if data is None:
        _ask(f"Give up what came after the state that {journal.where} is in?", yes=yes)
        accepted = journal.tools().accept_loss()
        if as_json:
            print_json({"journal": journal.where, **accepted._asdict()})
            return
        say(
            f"{journal.where} goes on without what came after position {accepted.end - 1}: the next position is"
            f" {accepted.resumes} or higher.",
            "Start the brokers.",
        )
        return
    _ask(f"Have the broker with {data} forget which journal it knows?", yes=yes)
    with closing(LocalFolder(data)):
        identity = forget_known(data)
    if as_json:
        print_json({"data": data, "forgotten": identity})
        return
    say(f"{data} knows no journal any more." if identity is None else f"{data} has forgotten journal {identity}.")


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to confirm on: pass --yes to accept the loss")
    if not click.confirm(question, err=True):
        raise CommandError("nothing was changed", exit_code=REFUSED)
