"""``penstock sql``: SQL over the queues and the journal."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.admin.resources.sql import (
    LEAST_SQL_MEMORY,
    MOST_FILE_ROWS,
    MOST_SQL_MEMORY,
    MOST_SQL_ROWS,
    SQL_MEMORY,
    SQL_ROWS,
    SQL_SECONDS,
    SqlAnswer,
    SqlExport,
    SqlQuery,
)
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.displays import table
from penstock.cli.errors import WRONG_USE, CommandError
from penstock.cli.output import escape, json_option, note, print_json

FORMATS = {".csv": "csv", ".parquet": "parquet"}
MIB = 2**20


@click.command("sql")
@click.argument("query")
@api_options
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Write FILE.csv or FILE.parquet instead, with up to {MOST_FILE_ROWS:,} rows.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, MOST_FILE_ROWS),
    metavar="N",
    help=f"Maximum of rows. [default: {SQL_ROWS:,}]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, SQL_SECONDS, min_open=True),
    default=10.0,
    metavar="S",
    help="Stop the query after this time. [default: 10]",
)
@click.option(
    "--memory", type=click.IntRange(LEAST_SQL_MEMORY // MIB, MOST_SQL_MEMORY // MIB), default=SQL_MEMORY // MIB,
    metavar="MIB", help=f"Stop the query when it needs more. [default: {SQL_MEMORY // MIB}]",
)  # fmt: skip
def command(
    query: str, as_json: bool, as_csv: bool, output: Path | None, rows: int | None, seconds: float, memory: int,
    api: Api,
) -> None:  # fmt: skip
    """Query in SQL what is in the queues (live, queues), and what was (messages, events, readers, audit).

    QUERY is one SELECT, or - to read it from standard input. It cannot change anything, and sees only what the token
    may view. docs/sql.md describes the tables.

    \b
    Examples:
      penstock sql "select queue, count(*), min(published_at) from live where state = 'dead' group by queue"
      penstock sql "describe live"
      penstock sql "select namespace, queue, ready from queues" --json
      penstock sql "select * from messages where queue = 'jobs'" --output jobs.parquet --seconds 60

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, a query that is wrong or takes too long, 3 refused.
    """
    text = sys.stdin.read() if query == "-" else query
    limits: dict[str, Any] = {"query": text, "seconds": seconds, "memory_bytes": memory * MIB}
    if output is not None:
        _export(api, output, as_json or as_csv, limits | ({"rows": rows} if rows else {}))
        return
    if rows is not None and rows > MOST_SQL_ROWS:
        raise CommandError(f"--rows is {MOST_SQL_ROWS} at most; --output FILE takes more", exit_code=WRONG_USE)
    if as_json and as_csv:
        raise CommandError("--json and --csv are one or the other", exit_code=WRONG_USE)
    answer = api.ask("sql", SqlAnswer, body=_checked(limits | {"rows": rows or SQL_ROWS}, SqlQuery))
    _show(answer, as_json=as_json, as_csv=as_csv)


def _checked(values: dict[str, Any], kind: Any) -> Any:
    """Convert to the API's type. Raises CommandError for invalid values."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"the query is invalid: {error}", exit_code=WRONG_USE) from None


def _export(api: Api, output: Path, printed: bool, limits: dict[str, Any]) -> None:
    if printed:
        raise CommandError("--output writes a file; --json and --csv print", exit_code=WRONG_USE)
    form = FORMATS.get(output.suffix.lower())
    if form is None:
        raise CommandError(
            f"--output {output} ends with .csv or .parquet: the name sets the format", exit_code=WRONG_USE
        )
    data = api.raw("sql-export", body=_checked(limits | {"format": form}, SqlExport))
    output.write_bytes(data)
    more = "; there are more rows: --rows N" if api.headers.get("penstock-truncated") == "true" else ""
    note(f"{output}: {len(data)} bytes{more}")


def _show(answer: SqlAnswer, *, as_json: bool, as_csv: bool) -> None:
    names = [column.name for column in answer.columns]
    if as_json:
        for row in answer.rows:
            print_json(dict(zip(names, row, strict=True)))
    elif as_csv:
        shown = escape if sys.stdout.isatty() else str
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(shown, names))
        writer.writerows([shown(_cell(value)) for value in row] for row in answer.rows)
    else:
        table(names, [[value if isinstance(value, int) else _cell(value) for value in row] for row in answer.rows])
    if answer.truncated:
        note(f"there are more rows than these {len(answer.rows)}: --rows N shows more")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
