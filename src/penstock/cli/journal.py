"""``penstock journal``: look into a data folder, check it, repair it."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.cli.event_dump import as_json, as_line, events, position_of
from penstock.cli.showing import amount, line, moment, positions, progress, show_json, table
from penstock.journal.errors import JournalDamaged, JournalRefused, LogError
from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.folder import NAME, load_folder, take_lock
from penstock.journal.files.follower import JournalReader
from penstock.journal.files.segment import is_segment
from penstock.journal.repair.plan import Plan, plan
from penstock.journal.repair.rewrite import carry_out
from penstock.journal.repair.survey import Survey, survey
from penstock.schema import Kind

OK, DAMAGED, WRONG_USE, REFUSED = range(4)

EXIT_CODES = """\b
Exit codes:
  0  fine
  1  the journal is damaged
  2  wrong use of the command
  3  refused: in use by a broker, made by a newer Penstock, or not a journal
"""

Command = TypeVar("Command", bound=Callable[..., Any])


def _folder_argument(command: Command) -> Command:
    kind = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.argument("folder", metavar="DIR", type=kind)(command)


def _json_option(command: Command) -> Command:
    return click.option("--json", "for_programs", is_flag=True, help="For programs: JSON instead of tables.")(command)


@contextmanager
def _told() -> Iterator[None]:
    """Errors become a line on standard error and the right exit code. A reader that goes away is no error."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes
        raise SystemExit(OK) from None
    except (LogError, OSError) as error:
        click.echo(f"penstock: {error}", err=True)
        raise SystemExit(DAMAGED if isinstance(error, JournalDamaged) else REFUSED) from None


def _check_is_journal(folder: Path) -> None:
    if not any(name == NAME or is_segment(name) for name in os.listdir(folder)):
        raise JournalRefused(f"{folder} is not a journal: it has neither {NAME} nor segments")


def _size(folder: Path) -> int:
    with suppress(OSError):  # a segment may be trimmed meanwhile, and this is for a progress bar only
        return sum(path.stat().st_size for path in folder.glob("*.seg"))
    return 0


@click.group(epilog=EXIT_CODES)
def journal() -> None:
    """Look into a data folder, check it, repair it.

    All but repair work while a broker runs, and change nothing.
    """


# -------------------------------------------------------------------------------------------------------------- verify


@journal.command(
    epilog=f"""\b
Examples:
  penstock journal verify /var/lib/penstock
  penstock journal verify --json /var/lib/penstock | jq .problems

{EXIT_CODES}"""
)
@_folder_argument
@_json_option
def verify(folder: Path, for_programs: bool) -> None:
    """Read and check every byte of the journal in DIR.

    Says what is wrong, in which file, at which byte, and which positions are lost by it. Works while a broker runs.
    """
    with _told():
        _check_is_journal(folder)
        with progress("checking", _size(folder)) as done:
            found = survey(RealDisk(folder, read_only=True), done)
        if for_programs:
            show_json(_survey_json(folder, found))
        else:
            _show_problems(folder, found)
    raise SystemExit(DAMAGED if found.problems else OK)


def _show_problems(folder: Path, found: Survey) -> None:
    for note in found.notes:
        line(f"note: {note}")
    if found.problems:
        rows = [(p.file, p.offset, p.text, positions(p.lost) if p.lost else "nothing") for p in found.problems]
        table("Damage", ["file", "at byte", "what is wrong", "lost"], rows)
        line("A broker starts in spite of this." if found.startable else "A broker does not start on this.")
        line(f"To keep all that is sound, stop the broker and run: penstock journal repair {folder}")
        return
    size = amount(sum(segment.size for segment in found.segments))
    line(f"{folder} is sound: {len(found.segments)} segments, {size}, up to position {found.end - 1}.")


def _survey_json(folder: Path, found: Survey) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "sound": not found.problems,
        "startable": found.startable,
        "problems": [problem._asdict() for problem in found.problems],
        "notes": list(map(str, found.notes)),
        "segments": len(found.segments),
        "blocks": sum(segment.blocks for segment in found.segments),
        "bytes": sum(segment.size for segment in found.segments),
        "end": found.end,
    }


# ---------------------------------------------------------------------------------------------------------------- info


@journal.command(
    epilog=f"""\b
Examples:
  penstock journal info /var/lib/penstock
  penstock journal info --json /var/lib/penstock | jq .latest

{EXIT_CODES}"""
)
@_folder_argument
@_json_option
def info(folder: Path, for_programs: bool) -> None:
    """Say what is in DIR: identity, positions, times, segments, queues, checkpoints.

    Reads no more than that takes; damage inside of segments is not noticed. See verify.
    """
    with _told():
        _check_is_journal(folder)
        found = _info(folder)
        if for_programs:
            show_json(found)
            return
        plain = [(name, str(value)) for name, value in found.items() if not isinstance(value, list)]
        table(f"Journal in {folder}", ["", ""], plain)
        for name in ("segments", "queues", "checkpoints"):
            if found[name]:
                table(name.capitalize(), list(found[name][0]), [tuple(row.values()) for row in found[name]])


def _info(folder: Path) -> dict[str, Any]:
    disk = RealDisk(folder, read_only=True)
    reader = JournalReader(folder)
    tail, kept = reader.tail(), load_folder(disk)
    earliest = max(tail.floor, tail.start)
    segments = _segments(folder, reader)
    counts, names = reader.counts(earliest, tail.committed, accept_loss=True), reader.catalogue().names
    checkpoints = Checkpoints(disk, reader.identity)
    return {
        "identity": f"{reader.identity:016x}",
        "created": moment(kept.created) if kept else "",
        "epoch": tail.epoch,
        "durability": tail.durability.name.lower(),
        "start": tail.start,
        "earliest": earliest,
        "latest": tail.committed,
        "bytes": sum(segment["bytes"] for segment in segments),
        "segments": segments,
        "queues": [
            {"number": number, "queue": str(name), "published": counts.get(number, 0)}
            for number, name in sorted(names.items())
        ],
        "checkpoints": [{"position": at, "bytes": checkpoints.size(at)} for at in checkpoints.positions()],
    }


def _segments(folder: Path, reader: JournalReader) -> list[dict[str, Any]]:
    return [
        {
            "file": span.key[0],
            "first": span.first,
            "events": span.end - span.first,
            "from": moment(span.created),
            "bytes": (folder / span.key[0]).stat().st_size,
            "state": "growing" if span.footer is None else "finished",
        }
        for span in reader.spans()
    ]


# ---------------------------------------------------------------------------------------------------------------- dump


@journal.command(
    epilog=f"""\b
Examples:
  penstock journal dump /var/lib/penstock --limit 20
  penstock journal dump /var/lib/penstock --queue 'shop/*' --kind dead --kind dropped
  penstock journal dump /var/lib/penstock --from 2026-03-01T12:00:00Z --to 2026-03-01T13:00:00Z
  penstock journal dump /var/lib/penstock --json --payload | jq -r '.payload // empty | @base64d'

{EXIT_CODES}"""
)
@_folder_argument
@_json_option
@click.option("--queue", metavar="PATTERN", help="Only of queues like NAMESPACE/QUEUE; * and ? stand for anything.")
@click.option("--from", "start", default="earliest", metavar="WHERE", help="A position, a time, earliest or latest.")
@click.option("--to", "stop", default="latest", metavar="WHERE", help="The same; the event there is not shown.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice([kind.name.lower() for kind in Kind]))
@click.option("--payload", is_flag=True, help="With the messages themselves: escaped, or in Base64 in JSON.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many events.")
def dump(
    folder: Path,
    for_programs: bool,
    queue: str | None,
    start: str,
    stop: str,
    kinds: tuple[str, ...],
    payload: bool,
    limit: int | None,
) -> None:
    """Show events of the journal in DIR, one per line.

    Times are UTC unless they say otherwise. Bytes that are not printable are shown escaped.
    """
    with _told():
        _check_is_journal(folder)
        reader = JournalReader(folder)
        low, high = _where(reader, "--from", start), _where(reader, "--to", stop)
        matches = (lambda name: fnmatch.fnmatchcase(name, queue)) if queue else None
        wanted = frozenset(Kind[kind.upper()] for kind in kinds)
        shown = events(reader, low, max(low, min(high, reader.latest)), queue=matches, kinds=wanted, payload=payload)
        for count, event in enumerate(shown, 1):
            if for_programs:
                show_json(as_json(event))
            else:
                click.echo(as_line(event))
            if count == limit:
                break


def _where(reader: JournalReader, option: str, text: str) -> int:
    try:
        return position_of(reader, text)
    except ValueError:
        wanted = "a position, a time such as 2026-03-01T12:00:00Z, earliest or latest"
        raise click.BadParameter(f"{text!r} is not {wanted}", param_hint=option) from None


# -------------------------------------------------------------------------------------------------------------- repair


@journal.command(
    epilog=f"""\b
Examples:
  penstock journal repair /var/lib/penstock
  penstock journal repair --yes --json /var/lib/penstock

{EXIT_CODES}"""
)
@_folder_argument
@_json_option
@click.option("--yes", is_flag=True, help="Don't ask.")
def repair(folder: Path, for_programs: bool, yes: bool) -> None:
    """Make a damaged journal in DIR usable again; the broker must be stopped.

    Everything that is sound is kept, and it says exactly what is lost. Damaged files are kept beside the new ones as
    NAME.damaged. If it is interrupted, run it again.

    Messages whose acknowledgement is lost come back; messages that are lost are counted as dropped.
    """
    with _told():
        _check_is_journal(folder)
        disk = RealDisk(folder)
        lock = take_lock(disk)
        try:
            with progress("checking", _size(folder)) as done:
                found = survey(disk, done)
            todo = plan(disk, found)
            if not todo.idle:
                if not for_programs:
                    _show_plan(found, todo)
                _ask(folder, yes=yes)
            with progress("repairing", _size(folder)) as done:
                kept = [] if todo.idle else carry_out(disk, todo, done)
            after = found if todo.idle else survey(disk)
        finally:
            lock.close()
        if for_programs:
            show_json(_repair_json(folder, todo, kept, after))
        else:
            line(
                "Nothing had to be changed." if todo.idle else f"Repaired. Kept aside: {', '.join(kept) or 'nothing'}."
            )
            _show_problems(folder, after)
    raise SystemExit(DAMAGED if after.problems else OK)


def _repair_json(folder: Path, todo: Plan, kept: list[str], after: Survey) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "changed": not todo.idle,
        "lost": todo.lost,
        "kept": kept,
        "sound": not after.problems,
    }


def _show_plan(found: Survey, todo: Plan) -> None:
    table("Damage", ["file", "at byte", "what is wrong"], [(p.file, p.offset, p.text) for p in found.problems])
    for lost in todo.lost:
        line(f"Lost: {positions(lost)}.", style="bold")
    if not todo.lost:
        line("No event is lost.")
    if todo.new:
        line(f"To be written: {', '.join(new.name for new in todo.new)}")
    for old, new in todo.renamed:
        line(f"To get its name back: {old} is {new}")
    if todo.strays or todo.copied or todo.moved:
        line(f"To be kept aside: {', '.join([*todo.strays, *todo.copied, *todo.moved])}")


def _ask(folder: Path, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: say --yes to repair")
    if not click.confirm(f"Repair {folder}?", err=True):
        line("Nothing was changed.")
        raise SystemExit(REFUSED)
