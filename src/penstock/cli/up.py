"""``penstock up``: a broker, and Spark pipelines that turn what flows through it into tables, with one command."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from penstock.cli.displays import table
from penstock.cli.errors import FAILED, INTERRUPTED, OK, REFUSED, WRONG_USE, CommandError
from penstock.cli.login_link import LoginLink, create_login_link
from penstock.cli.output import json_option, note, print_json, say
from penstock.demo.processes import ProcessFailed
from penstock.demo.stack import OWN_POSTGRESQL, Stack, StackOptions
from penstock.protocols import protocols

#: Extras that the command needs, by a module of each.
EXTRAS = {"pyspark": "spark", "pyarrow": "flight"}


def listener_options(command: Any) -> Any:
    """An option for the listener of each protocol."""
    for protocol in reversed(protocols().values()):
        text = f"Speak {protocol.title} here. [default: {protocol.default_address}]"
        add = click.option(f"--{protocol.name}", default=protocol.default_address, metavar="ADDR", help=text)
        command = add(command)
    return command


@click.command("up")
@click.option("--data", default="./penstock-data", metavar="DIR", help="The broker's data. [default: ./penstock-data]")
@click.option("--lake", default="./penstock-lake", metavar="DIR", help="The tables. [default: ./penstock-lake]")
@click.option(
    "--journal",
    metavar="URL",
    help="A database for the journal. With --demo also `postgresql`: start a PostgreSQL with a standby and two "
    "brokers, and kill one of each. [default: files in the data folder]",
)
@listener_options
@click.option("--flight", default="127.0.0.1:8815", metavar="ADDR", help="Arrow Flight. [default: 127.0.0.1:8815]")
@click.option("--http", default="127.0.0.1:9180", metavar="ADDR", help="API and console. [default: 127.0.0.1:9180]")
@click.option(
    "--every", default=2.0, type=click.FloatRange(0.1, 3600), metavar="S", help="Seconds between batches. [default: 2]"
)
@click.option("--demo", is_flag=True, help="Send sample traffic, show the tables it becomes, check them, and end.")
@json_option
def command(**flags: Any) -> int:
    """Run a broker with all protocols, and the pipelines archive and insight on local Spark.

    Everything that flows through the queues becomes tables in the lake, and a report in
    LAKE/insight/report.html. Ctrl-C stops everything in order; the next start continues where it stopped.

    For production, run the parts separately: `penstock serve`, and `penstock pipeline` on your own Spark.

    \b
    Examples:
      penstock up
      penstock up --demo
      penstock up --demo --journal postgresql
      penstock up --data /var/lib/penstock --lake /srv/lake --every 30

    Exit codes: 0 done, or stopped; 1 failed, or the demo's numbers do not agree; 2 wrong use; 3 something did not
    start; 130 Ctrl-C during the demo.
    """
    wanted = EXTRAS | ({"psycopg": "postgresql"} if flags["journal"] else {})
    missing = [extra for module, extra in wanted.items() if find_spec(module) is None]
    if missing:
        hint = f"pip install 'penstock[{','.join(missing)}]'"
        raise CommandError("Spark, Arrow or psycopg is not installed", hint, exit_code=REFUSED)
    own_postgresql = flags["journal"] == OWN_POSTGRESQL
    if own_postgresql and not flags["demo"]:
        hint = "name your own, as in --journal postgresql://mq@db.example.com/penstock"
        raise CommandError("--journal postgresql is for --demo, which removes it at the end", hint, exit_code=WRONG_USE)
    # A new journal needs a new lake.
    lake = f"{flags['lake']}-{secrets.token_hex(3)}" if own_postgresql else flags["lake"]
    options = StackOptions(
        data=flags["data"],
        lake=Path(lake).absolute(),
        journal=flags["journal"],
        listeners={name: flags[name] for name in (*protocols(), "flight")},
        http=flags["http"],
        batch_seconds=flags["every"],
    )
    return _run(options, demo=flags["demo"], as_json=flags["as_json"])


def _run(options: StackOptions, *, demo: bool, as_json: bool) -> int:
    """Run until a signal comes or the demo is over. Returns the exit code."""
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())

    def report(step: str) -> None:
        if not as_json:
            note(step)

    stack, login = Stack(options, report), None
    try:
        stack.start()
        if demo:
            return _demo(stack, report, interrupted, as_json=as_json)
        address = stack.broker.addresses.get("http")
        login = create_login_link(address, stack.token_file) if address else None
        _show_addresses(stack, login, as_json=as_json)
        while not interrupted.wait(0.5):
            stack.check()
        return OK
    except ProcessFailed as error:
        notes = getattr(error, "__notes__", ())
        raise CommandError(str(error), *notes, exit_code=FAILED if stack.ready else REFUSED) from None
    finally:
        if stack.ready:
            report("stopping")
        if login is not None:
            login.revoke()
        stack.stop()


def _demo(stack: Stack, report: Any, interrupted: threading.Event, *, as_json: bool) -> int:
    from penstock.demo.run import run_demo  # noqa: PLC0415 - needs pyarrow

    outcome = run_demo(stack, report, interrupted)
    if outcome is None:
        return INTERRUPTED
    counts = outcome.comparisons
    if as_json:
        print_json({"run": outcome.run, "agree": not outcome.wrong, "counts": [each._asdict() for each in counts]})
        return FAILED if outcome.wrong else OK
    rows = []
    for row in outcome.sample:
        when = row["published_at"].strftime("%H:%M:%S.%f")[:-3]
        payload = row["payload"].decode("utf-8", "backslashreplace")
        rows.append((row["position"], when, row["protocol"], f"{row['namespace']}/{row['queue']}", payload))
    names = ("position", "published_at", "protocol", "queue", "payload")
    table(names, rows, title=f"archive: some messages of run {outcome.run}")
    marks = {True: Text("✓", "green"), False: Text("✗", "bold red")}
    compared = [(each.what, each.queue, each.expected, each.found, marks[each.agrees]) for each in counts]
    names = ("count of", "queue", "expected", "in the tables", "")
    table(names, compared, title="clients and journal, against the tables")
    note(f"{outcome.wrong} of {len(counts)} counts do not agree: see ✗" if outcome.wrong else "every count agrees")
    return FAILED if outcome.wrong else OK


def _show_addresses(stack: Stack, login: LoginLink | None, *, as_json: bool) -> None:
    """Print the addresses and folders, and commands to try."""
    addresses, options, spark = stack.broker.addresses, stack.options, stack.pipelines.spark
    if as_json:
        console = {"console": login.link} if login else {}
        print_json({"addresses": addresses, **console, "lake": str(options.lake), "spark": spark, "pid": os.getpid()})
        return
    inside = options.lake.is_relative_to(Path.cwd())
    lake, here = str(options.lake.relative_to(Path.cwd()) if inside else options.lake), _command_folder()
    listed = "   ".join(f"{name} {where}" for name, where in addresses.items())
    say(
        "",
        f"broker     {listed}",
        f"           data in {options.data}",
        f"pipelines  archive and insight, on Spark {spark}, every {options.batch_seconds:g} s",
        f"           tables in {lake}, report in {lake}/insight/report.html",
        "",
        *_console_lines(addresses, login),
        "Try, in another terminal:",
        f"  {here}penstock send phpmq://{addresses['phpmq']}/jobs hello world",
        f"  {here}penstock receive kokaq://{addresses['kokaq']}/default/jobs --count 1",
        f'  {here}python -c "{_reading_line(lake)}"',
        "",
        "Ctrl-C stops everything.",
    )


def _console_lines(addresses: dict[str, str], login: LoginLink | None) -> list[str]:
    if login is not None:
        return ["Inspect and control it in a browser; this link logs in until Ctrl-C:", f"  {login.link}", ""]
    if "http" in addresses:
        return ["Inspect and control it in a browser, with an admin token:", f"  {addresses['http']}/", ""]
    return []


def _reading_line(lake: str) -> str:
    """A line of Python that shows the archive, in its format."""
    folder = Path(lake, "messages")
    if folder.exists() and not (folder / "_delta_log").exists():
        return f"import pandas; print(pandas.read_parquet('{lake}/messages'))"
    return f"import deltalake; print(deltalake.DeltaTable('{lake}/messages').to_pandas())"


def _command_folder() -> str:
    """The folder of our commands, as a prefix of their names; empty if it is on the PATH."""
    folder = Path(sys.executable).parent
    found = shutil.which("penstock")
    return "" if found and Path(found).parent == folder else f"{os.path.relpath(folder)}/"
