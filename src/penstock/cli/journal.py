"""``penstock journal``: inspect, check and repair a journal."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import click

from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.displays import measuring, table
from penstock.cli.errors import FAILED, OK, REFUSED
from penstock.cli.event_dump import events, for_json, for_people, position_of, positions
from penstock.cli.journal_argument import journal_argument
from penstock.cli.journal_loss import accept_loss
from penstock.cli.journal_transfer import copy, init
from penstock.cli.output import amount, json_option, moment, print_json, say
from penstock.journal import Follower, Journal
from penstock.journal.contract import ExtentInfo, Repair, Verdict
from penstock.schema import Kind

EXIT_CODES = """\b
Exit codes:
  0  fine
  1  the journal is damaged, or the disk failed
  2  wrong use of the command
  3  refused: in use by a broker, made by a newer Penstock, or not a journal
"""


def _named(journal: Journal) -> dict[str, Any]:
    """The journal's name in JSON."""
    return {"folder" if os.path.isdir(journal.where) else "journal": journal.where}


def _checked(journal: Journal) -> Journal:
    """The journal. Raises JournalRefused if there is none."""
    journal.tools().check()
    return journal


@click.group("journal", epilog=EXIT_CODES)
def command() -> None:
    """Inspect, check, repair and move a journal.

    JOURNAL is the data folder of a broker, or the URL of a database: postgresql://USER@HOST/DATABASE. Keep the password
    out of the URL, which other users can see; use PGPASSWORD, or a file named by PGPASSFILE.

    verify, info and dump work while a broker runs, and change nothing.
    """


# -------------------------------------------------------------------------------------------------------------- verify


@command.command(
    epilog=f"""\b
Examples:
  penstock journal verify /var/lib/penstock
  penstock journal verify --json /var/lib/penstock | jq .problems

{EXIT_CODES}"""
)
@journal_argument
@json_option
def verify(journal: Journal, as_json: bool) -> int:
    """Read and check every byte of the journal.

    Reports each problem with its file and byte, and the positions that it loses. Works while a broker runs.
    """
    tools = _checked(journal).tools()
    with measuring("checking", tools.size()) as done:
        found = tools.verify(done)
    if as_json:
        print_json(_verdict_json(journal, found))
    else:
        _show_problems(journal, found)
    return FAILED if found.problems else OK


def _show_problems(journal: Journal, found: Verdict) -> None:
    for note in found.notes:
        say(f"note: {note}")
    if found.problems:
        rows = [(p.file, p.offset, p.text, positions(p.lost) if p.lost else "nothing") for p in found.problems]
        table(["file", "at byte", "what is wrong", "lost"], rows, title="Damage")
        say("A broker starts in spite of this." if found.startable else "A broker does not start on this.")
        if os.path.isdir(journal.where):
            say(f"To keep all that is sound, stop the broker and run: penstock journal repair {journal.where}")
        return
    say(f"{journal.where} is sound: {found.extents} segments, {amount(found.bytes)}, up to position {found.end - 1}.")


def _verdict_json(journal: Journal, found: Verdict) -> dict[str, Any]:
    return {
        **_named(journal),
        "sound": not found.problems,
        "startable": found.startable,
        "problems": [problem._asdict() for problem in found.problems],
        "notes": found.notes,
        "segments": found.extents,
        "blocks": found.blocks,
        "bytes": found.bytes,
        "end": found.end,
    }


# ---------------------------------------------------------------------------------------------------------------- info


@command.command(
    epilog=f"""\b
Examples:
  penstock journal info /var/lib/penstock
  penstock journal info --json /var/lib/penstock | jq .latest

{EXIT_CODES}"""
)
@journal_argument
@json_option
def info(journal: Journal, as_json: bool) -> None:
    """Show what a journal contains: identity, positions, times, segments, queues, checkpoints.

    This reads only the index; use verify to find damage inside segments.
    """
    found = _info(_checked(journal))
    if as_json:
        print_json(found)
        return
    plain = [(name, str(value)) for name, value in found.items() if not isinstance(value, list)]
    table(["", ""], plain, title=f"Journal in {journal.where}")
    for name in ("segments", "queues", "checkpoints"):
        if found[name]:
            rows = [tuple(row.values()) for row in found[name]]
            table(list(found[name][0]), rows, title=name.capitalize())


def _info(journal: Journal) -> dict[str, Any]:
    reader, facts = journal.follow(), journal.tools().info()
    tail = reader.tail()
    earliest = max(tail.floor, tail.start)
    counts, names = reader.counts(earliest, tail.committed, accept_loss=True), reader.catalogue().names
    return {
        "identity": f"{reader.identity:016x}",
        "created": moment(facts.created) if facts.created is not None else "",
        "epoch": tail.epoch,
        "durability": tail.durability.name.lower(),
        "start": tail.start,
        "earliest": earliest,
        "latest": tail.committed,
        "bytes": sum(extent.bytes for extent in facts.extents),
        "segments": list(map(_extent, facts.extents)),
        "queues": [
            {"number": number, "queue": str(name), "published": counts.get(number, 0)}
            for number, name in sorted(names.items())
        ],
        "checkpoints": [{"position": at, "bytes": size} for at, size in facts.checkpoints],
    }


def _extent(extent: ExtentInfo) -> dict[str, Any]:
    return {
        "file": extent.name,
        "first": extent.first,
        "events": extent.events,
        "from": moment(extent.created),
        "bytes": extent.bytes,
        "state": "finished" if extent.finished else "growing",
    }


# ---------------------------------------------------------------------------------------------------------------- dump


@command.command(
    epilog=f"""\b
Examples:
  penstock journal dump /var/lib/penstock --limit 20
  penstock journal dump /var/lib/penstock --queue 'shop/*' --kind dead --kind dropped
  penstock journal dump /var/lib/penstock --from 2026-03-01T12:00:00Z --to 2026-03-01T13:00:00Z
  penstock journal dump /var/lib/penstock --json --payload | jq -r '.payload // empty | @base64d'

{EXIT_CODES}"""
)
@journal_argument
@json_option
@click.option("--queue", metavar="PATTERN", help="Only of queues like NAMESPACE/QUEUE: * is anything, ? one character.")
@click.option("--from", "start", default="earliest", metavar="WHERE", help="A position, a time, earliest or latest.")
@click.option("--to", "stop", default="latest", metavar="WHERE", help="The same; that event is not shown.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice([kind.name.lower() for kind in Kind]))
@click.option("--payload", is_flag=True, help="Include payloads: escaped, or in Base64 in JSON.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most this many events.")
def dump(
    journal: Journal,
    as_json: bool,
    queue: str | None,
    start: str,
    stop: str,
    kinds: tuple[str, ...],
    payload: bool,
    limit: int | None,
) -> None:
    """Show events of the journal, one per line.

    Times are UTC unless they say otherwise. Bytes that are not printable are shown escaped.
    """
    reader = _checked(journal).follow()
    low, high = _where(reader, "--from", start), _where(reader, "--to", stop)
    wanted = frozenset(Kind[kind.upper()] for kind in kinds)
    shown = events(reader, low, max(low, min(high, reader.latest)), pattern=queue, kinds=wanted, payload=payload)
    for count, event in enumerate(shown, 1):
        if as_json:
            print_json(for_json(event))
        else:
            say(for_people(event))
        if count == limit:
            break


def _where(reader: Follower, option: str, text: str) -> int:
    try:
        return position_of(reader, text)
    except ValueError:
        wanted = "a position, a time such as 2026-03-01T12:00:00Z, earliest or latest"
        raise click.BadParameter(f"{text!r} is not {wanted}", param_hint=option) from None


# -------------------------------------------------------------------------------------------------------------- repair


@command.command(
    epilog=f"""\b
Examples:
  penstock journal repair /var/lib/penstock
  penstock journal repair --yes --json /var/lib/penstock

{EXIT_CODES}"""
)
@journal_argument
@json_option
@yes_option
def repair(journal: Journal, as_json: bool, yes: bool) -> int:
    """Make a damaged journal usable again; the broker must be stopped.

    Everything sound is kept, and every loss is reported. Damaged files stay beside the new ones as NAME.damaged. If it
    is interrupted, run it again.

    Messages whose acknowledgement is lost come back; messages that are lost are counted as dropped.
    """
    tools = _checked(journal).tools()
    with ExitStack() as stack:
        with measuring("checking", tools.size()) as done:
            todo = stack.enter_context(tools.repair(done))
        if not todo.idle:
            if not as_json:
                _show_plan(todo)
            confirm(f"This repairs {journal.where}", yes=yes, declined=REFUSED)
        with measuring("repairing", tools.size()) as done:
            kept = todo.carry_out(done)
        after = todo.check()
    if as_json:
        print_json(_repair_json(journal, todo, kept, after))
    else:
        say("Nothing had to be changed." if todo.idle else f"Repaired. Kept aside: {', '.join(kept) or 'nothing'}.")
        _show_problems(journal, after)
    return FAILED if after.problems else OK


def _repair_json(journal: Journal, todo: Repair, kept: list[str], after: Verdict) -> dict[str, Any]:
    return {
        **_named(journal),
        "changed": not todo.idle,
        "lost": todo.lost,
        "kept": kept,
        "sound": not after.problems,
    }


def _show_plan(todo: Repair) -> None:
    rows = [(p.file, p.offset, p.text) for p in todo.found.problems]
    table(["file", "at byte", "what is wrong"], rows, title="Damage")
    for lost in todo.lost:
        say(f"Lost: {positions(lost)}.")
    if not todo.lost:
        say("No event is lost.")
    for line in todo.plan():
        say(line)


for subcommand in (init, copy, accept_loss):
    command.add_command(subcommand)
