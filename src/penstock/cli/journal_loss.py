"""``penstock journal accept-loss``: an operator's decision to continue without lost events."""

from __future__ import annotations

from contextlib import closing

import click

from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.errors import REFUSED
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
@click.option("--data", metavar="DIR", help="Instead, make the broker with this data folder forget its journal.")
@yes_option
@json_option
def accept_loss(journal: Journal, data: str | None, yes: bool, as_json: bool) -> None:
    """Continue from a journal's current state although later events are lost. All brokers on it must be stopped.

    Do this after restoring a database or data folder by other means than `penstock restore`, or when brokers exit with
    code 5 because the database has lost commits that cannot be recovered. Existing events do not change. New positions
    are higher than any that may have been used, and readers that have read lost events learn which.

    With --data the journal is not touched: a broker whose database was emptied, or contains another journal now, starts
    with what is there.
    """
    if data is None:
        confirm(f"This gives up events later than the state of {journal.where}", yes=yes, declined=REFUSED)
        accepted = journal.tools().accept_loss()
        if as_json:
            print_json({"journal": journal.where, **accepted._asdict()})
            return
        say(
            f"{journal.where} continues without the events after position {accepted.end - 1}: the next position is"
            f" {accepted.resumes} or higher.",
            "Start the brokers.",
        )
        return
    confirm(f"The broker with {data} forgets its journal", yes=yes, declined=REFUSED)
    with closing(LocalFolder(data)):
        identity = forget_known(data)
    if as_json:
        print_json({"data": data, "forgotten": identity})
        return
    say(f"{data} knew no journal." if identity is None else f"{data} has forgotten journal {identity}.")
