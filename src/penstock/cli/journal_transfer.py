"""``penstock journal init`` and ``copy``: create a journal, and copy one to another place."""

from __future__ import annotations

import click

from penstock.cli.displays import measuring
from penstock.cli.journal_argument import JournalType
from penstock.cli.output import amount, json_option, print_json, say
from penstock.journal import Journal
from penstock.journal.transfer import copy_journal

EXIT_CODES = """\b
Exit codes:
  0  done
  1  the journal is damaged, or the disk failed
  2  wrong use of the command
  3  refused: in use by a broker, not empty, no journal, made by a newer Penstock, or the database does not answer
"""


@click.command(
    epilog=f"""\b
Examples:
  penstock journal init postgresql://mq@db.example.com/penstock
  penstock journal init 'postgresql://mq@db.example.com/penstock?schema=orders'

{EXIT_CODES}"""
)
@click.argument("journal", metavar="JOURNAL", type=JournalType(new=True))
@json_option
def init(journal: Journal, as_json: bool) -> None:
    """Create an empty journal: a folder, or the tables in a database.

    A broker does that itself when it starts; use this to check beforehand that it can. An existing journal is not
    changed.
    """
    made = journal.tools().create()
    if as_json:
        print_json({"journal": journal.where, "made": made})
        return
    say(f"{journal.where} has a new journal." if made else f"{journal.where} has a journal: nothing was changed.")


@click.command(
    epilog=f"""\b
Examples:
  penstock journal copy /var/lib/penstock postgresql://mq@db.example.com/penstock
  penstock journal copy postgresql://mq@db.example.com/penstock /var/lib/penstock

{EXIT_CODES}"""
)
@click.argument("source", metavar="FROM", type=JournalType())
@click.argument("target", metavar="TO", type=JournalType(new=True))
@json_option
def copy(source: Journal, target: Journal, as_json: bool) -> None:
    """Copy the journal FROM a folder or a database TO a new folder or an empty schema of a database.

    The copy is the same journal, with its identity, positions, checkpoints, readers and tokens, so clients and Spark
    queries continue with it. Every block is checked. Brokers on both must be stopped. FROM is not changed; from then on
    start brokers on only one of the two. If it is interrupted, run it again: it resumes where it stopped.
    """
    done = copy_journal(source.transfer_source(), target.transfer_target(), measuring)
    facts = done.facts
    if as_json:
        named = {"from": source.where, "to": target.where, "identity": f"{facts.identity:016x}"}
        print_json({**named, "segments": done.extents, "bytes": done.bytes, "end": facts.head})
        return
    say(
        f"{target.where} has the journal now: {done.extents} segments, {amount(done.bytes)}, up to position"
        f" {facts.head - 1}.",
        f"Start brokers on it, and no longer on {source.where}.",
    )
