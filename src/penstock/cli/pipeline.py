"""``penstock pipeline``: ready-made Spark pipelines. Spark is started when one runs, not before."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.errors import INTERRUPTED, CommandGroup
from penstock.cli.output import json_option, note, print_json, say
from penstock.cli.pipeline_progress import ProgressDisplay, ending, progress_display, values
from penstock.protocols import having

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl

DEFAULT_LAKE = "penstock-lake"

_EXIT_CODES = "Exit codes: 0 done, 1 failed (run it again to go on), 2 wrong use, 3 refused, 130 ended by Ctrl-C."


@click.group("pipeline", cls=CommandGroup, short_help="Ready-made Spark pipelines: archive, insight, replay, decode.")
def command() -> None:
    """Ready-made Spark pipelines. docs/pipelines.md has the tables that they make.

    \b
    Examples:
      penstock pipeline archive --once                       all queues into ./penstock-lake, and stop
      penstock pipeline insight                              tables and a report of what queues do, until Ctrl-C
      penstock pipeline replay --to default/jobs --where "queue = 'jobs'"
      penstock pipeline decode capture.pcap                  a table of frames
      penstock pipeline init my-project                      a project for `spark-pipelines run`

    Exit codes: 0 done, 1 failed (run it again to go on), 2 wrong use, 3 refused, 130 ended by Ctrl-C.
    """


def _options(*groups: list[Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed([each for group in groups for each in group]):
            function = option(function)
        return function

    return decorate


def _pairs(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The values of an option that is KEY=VALUE, and may be repeated."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{option.opts[0]} is KEY=VALUE, not {text!r}", ctx, option)
        found[name] = value
    return found


_SPARK = [
    click.option("--master", metavar="URL", help="Spark's master. [default: local[*], or that of spark-submit]"),
    click.option(
        "--conf",
        "confs",
        multiple=True,
        callback=_pairs,
        metavar="KEY=VALUE",
        help="A setting of Spark. May be repeated.",
    ),
    json_option,
]
_LAKE = [
    click.option(
        "--lake", default=DEFAULT_LAKE, metavar="DIR", help=f"The folder for tables. [default: {DEFAULT_LAKE}]"
    )
]
_STORE = [
    click.option("--store", multiple=True, callback=_pairs, metavar="KEY=VALUE",
                 help="For s3://…: endpoint, region, key, secret, session; @FILE is read. [default: AWS_… variables]"),
    click.option("--catalogue", multiple=True, callback=_pairs, metavar="KEY=VALUE",
                 help="Iceberg's catalogue, in pyiceberg's words, and name, namespace. [default: SQLite in the lake]"),
    click.option("--state", metavar="DIR", help="For what is the pipeline's own. [default: the lake; for s3://…, "
                 "./penstock-state]"),
]  # fmt: skip
_BROKER = [
    click.option("--endpoint", metavar="URL", help="The broker's Flight endpoint. [default: grpc://127.0.0.1:8815]"),
    click.option("--token", envvar="PENSTOCK_TOKEN", metavar="TOKEN", help="As the broker's access rules say."),
    click.option("--tls-ca", metavar="FILE", help="Certificates to trust; the endpoint is grpc+tls://…"),
    click.option("--option", "more", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="For the data source."),
]
_STREAM = [
    click.option("--once", is_flag=True, help="Stop when all that is there now was worked off."),
    click.option(
        "--every", type=click.FloatRange(0), default=5.0, metavar="S", help="A batch each S seconds. [default: 5]"
    ),
]


def _broker(flags: dict[str, Any]) -> BrokerSource:
    from penstock.spark.pipelines.run import BrokerSource  # noqa: PLC0415

    given = {"endpoint": flags["endpoint"], "token": flags["token"], "tlsCa": flags["tls_ca"]}
    broker = BrokerSource({**{name: value for name, value in given.items() if value}, **flags["more"]})
    broker.reach()
    return broker


@contextmanager
def _session(name: str, flags: dict[str, Any], shown: ProgressDisplay) -> Iterator[SparkSession]:
    """A session, ended at the end: Spark's own process must not outlive us."""
    from penstock.spark.session import session  # noqa: PLC0415

    logging.getLogger("SQLQueryContextLogger").disabled = True  # it prints every error as a page of JSON
    shown.begin("starting Spark …")
    if os.environ.get("LC_ALL", "") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"  # else Java can't make folders for queues whose names are not ASCII
    with _quiet():
        spark = session(f"penstock {name}", flags["master"] or _submitted() or "local[*]", flags["confs"])
    try:
        yield spark
    finally:
        spark.stop()


def _submitted() -> str | None:
    """The master of spark-submit, if it started us."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    SparkContext._ensure_initialized()  # the settings of spark-submit are in the JVM that it started
    return SparkConf().get("spark.master")


@contextmanager
def _quiet() -> Iterator[None]:
    """Spark greets at length while it starts, before any of its settings has a say."""
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextmanager
def _running(flags: dict[str, Any], shown: ProgressDisplay) -> Iterator[RunControl]:
    """How to run: Ctrl-C and SIGTERM stop it cleanly, and progress is shown."""
    from penstock.spark.pipelines.run import RunControl  # noqa: PLC0415

    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield RunControl(once=flags.get("once", True), seconds=flags.get("every", 5.0), stop=stop, tell=shown.show)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _started(name: str, flags: dict[str, Any]) -> Iterator[tuple[SparkSession, RunControl]]:
    """Spark, and how to run something on it. How far both are is shown."""
    shows = progress_display(flags["as_json"])
    with shows as shown, _session(name, flags, shown) as spark, _running(flags, shown) as run:
        yield spark, run


def _end(progress: PipelineProgress, flags: dict[str, Any], *lines: str) -> int:
    """Report how it ended. A stream stopped by a signal has succeeded."""
    once = flags.get("once", True)
    if flags["as_json"]:
        print_json(values(progress))
    else:
        note(ending(progress, once=once))
        say(*lines)
    return 0 if progress.done or not once else INTERRUPTED


@command.command("archive", epilog=_EXIT_CODES)
@_options(_LAKE, _BROKER, _STREAM)
@click.option("--queue", metavar="NS/QUEUE", help="Only this queue. [default: all]")
@click.option("--pattern", metavar="NS/QUEUE", help="Only queues like this: * is anything, ? one character.")
@click.option("--table", default="messages", help="The table's name. [default: messages]")
@click.option(
    "--kind",
    type=click.Choice(["delta", "iceberg", "parquet"]),
    help="The table's format. [default: what the table is; delta if it is new]",
)
@_options(_STORE)
@click.option("--format", "form", type=click.Choice(["raw", "text", "json", "csv", "avro"]), default="raw",
              help="What payloads are. [default: raw]")  # fmt: skip
@click.option("--schema", default="", metavar="COLUMNS",
              help='"id long, name string", `infer` (JSON), or @FILE; for Avro, its schema.')  # fmt: skip
@click.option("--compact/--no-compact", default=True, help="Put small files together, once an hour. [default]")
@click.option("--max-bytes", default="256m", metavar="SIZE", help="Payloads of a batch. [default: 256m]")
@_options(_SPARK)
def archive(**flags: Any) -> int:
    """Keep what was published in tables, each message once.

    Tables are of Delta Lake, Iceberg, or plain Parquet; docs/pipelines.md has the lines that read them. Payloads
    that do not fit the schema go to TABLE_quarantine, with the reason.

    \b
    Examples:
      penstock pipeline archive
      penstock pipeline archive --once --lake /data/lake --pattern "shop/*"
      penstock pipeline archive --queue shop/orders --table orders --format json --schema "id long, amount double"
      penstock pipeline archive --queue shop/orders --table orders --format json --schema infer
      penstock pipeline archive --kind iceberg --table everything --endpoint grpc://broker.example.com:8815
      penstock pipeline archive --lake s3://bucket/lake --store endpoint=https://s3.example.com --store secret=@FILE
    """
    from penstock.spark.pipelines.archive import main as archive_main  # noqa: PLC0415
    from penstock.spark.pipelines.archive.options import ArchiveOptions, lake_of  # noqa: PLC0415

    options = ArchiveOptions(
        queue=flags["queue"], pattern=flags["pattern"], table=flags["table"], kind=flags["kind"], format=flags["form"],
        schema=_text_or_file(flags["schema"]), compact=flags["compact"], max_bytes=flags["max_bytes"],
        store=flags["store"], catalogue=flags["catalogue"], state=flags["state"],
    )  # fmt: skip
    lake_of(flags["lake"], options)
    broker = _broker(flags)
    with _started("archive", flags) as (spark, run):
        progress = archive_main.run(spark, broker, flags["lake"], options, run)
    return _end(progress, flags, f"{flags['lake']}/{flags['table']}")


def _text_or_file(text: str) -> str:
    if not text.startswith("@"):
        return text
    with open(text[1:], encoding="utf-8") as file:
        return file.read()


@command.command("insight", epilog=_EXIT_CODES)
@_options(_LAKE, _BROKER, _STREAM)
@click.option("--pattern", metavar="NS/QUEUE", help="Only queues like this: * is anything, ? one character.")
@click.option("--delay", type=click.FloatRange(0), default=2.0, metavar="MIN",
              help="A minute is closed so many minutes after its end. [default: 2]")  # fmt: skip
@click.option("--report-every", type=click.FloatRange(0), default=30.0, metavar="S", help="[default: 30]")
@click.option(
    "--report-hours", type=click.FloatRange(0, min_open=True), default=24.0, metavar="H", help="[default: 24]"
)
@_options(_SPARK)
def insight(**flags: Any) -> int:
    """Tables of what each queue did in each minute, and a report with plots: DIR/insight/report.html.

    \b
    Examples:
      penstock pipeline insight
      penstock pipeline insight --once --lake /data/lake
      penstock pipeline insight --pattern "shop/*" --report-hours 6
    """
    from penstock.spark.pipelines.insight import main as insight_main  # noqa: PLC0415

    options = insight_main.InsightOptions(
        pattern=flags["pattern"], delay=int(flags["delay"] * 60_000_000),
        report_seconds=flags["report_every"], report_hours=flags["report_hours"],
    )  # fmt: skip
    broker = _broker(flags)
    with _started("insight", flags) as (spark, run):
        progress = insight_main.run(spark, broker, flags["lake"], options, run)
    report = f"{flags['lake']}/insight/report.html"
    return _end(progress, flags, *([report] if os.path.exists(report) else []))


@command.command("replay", epilog=_EXIT_CODES)
@_options(_LAKE, _BROKER)
@click.option(
    "--name", default="replay", help="A replay that was interrupted goes on under its name. [default: replay]"
)
@click.option(
    "--from", "source", type=click.Choice(["archive", "journal"]), default="archive", help="[default: archive]"
)
@click.option("--table", default="messages", help="Of the archive. [default: messages]")
@_options(_STORE)
@click.option("--queue", metavar="NS/QUEUE", help="Only messages of this queue.")
@click.option("--where", metavar="SQL", help="Only these: a condition on the table's columns.")
@click.option("--from-time", metavar="TIME", help="Published then or later (ISO 8601).")
@click.option("--to-time", metavar="TIME", help="Published before that.")
@click.option("--from-position", type=int, metavar="N")
@click.option("--to-position", type=int, metavar="N", help="Not included.")
@click.option("--to", metavar="NS/QUEUE", help="The queue they go to. [default: the one they were in]")
@click.option("--create", is_flag=True, help="Create the queue if it is not there.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N messages a second.")
@_options(_SPARK)
def replay(**flags: Any) -> int:
    """Send messages of the archive, or of the broker's journal, into a queue: in their order, each once.

    Interrupted, it is run again with the same name and options, and goes on. Payload, priority and correlation ID go
    along; a time to live does not, as it may be over.

    \b
    Examples:
      penstock pipeline replay --to default/again --create
      penstock pipeline replay --name monday --queue shop/orders --from-time 2026-01-05 --to-time 2026-01-06
      penstock pipeline replay --name big --table orders --where "value.country = 'CH'" --to shop/review --rate 50
      penstock pipeline replay --name tail --from journal --from-position 1000 --to shop/copy
    """
    from penstock.spark.pipelines.archive.options import ArchiveOptions  # noqa: PLC0415
    from penstock.spark.pipelines.replay import Replay, ReplayChoice, chunk_rows  # noqa: PLC0415

    places = ArchiveOptions(store=flags["store"], catalogue=flags["catalogue"], state=flags["state"])
    choice = ReplayChoice(
        table=flags["table"] if flags["source"] == "archive" else "", queue=flags["queue"], where=flags["where"],
        from_time=flags["from_time"], to_time=flags["to_time"], from_position=flags["from_position"],
        to_position=flags["to_position"], to=flags["to"], create=flags["create"], chunk_rows=chunk_rows(flags["rate"]),
    )  # fmt: skip
    broker = _broker(flags)
    with _started("replay", flags) as (spark, run):
        progress = Replay(spark, broker, flags["lake"], flags["name"], places).run(choice, flags["rate"], run)
    return _end(progress, flags)


@command.command("decode", epilog=_EXIT_CODES)
@click.argument("files", nargs=-1, required=True)
@click.option("--output", default=f"{DEFAULT_LAKE}/frames", metavar="DIR", help="[default: penstock-lake/frames]")
@click.option(
    "--protocol",
    type=click.Choice([each.name for each in having("capture")]),
    help="[default: what the first bytes tell]",
)
@click.option(
    "--direction", type=click.Choice(["to_server", "to_client"]), help="Of plain captures. [default: as above]"
)
@click.option(
    "--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="Only these ports, of packet captures."
)
@click.option("--payloads", is_flag=True, help="Keep the payloads, too.")
@_options(_SPARK)
def decode(files: tuple[str, ...], **flags: Any) -> int:
    """Turn captures of PHPMQ, SSPQ and Kokaq into a table of frames, with offsets and errors.

    FILES are paths, folders or patterns: pcap, pcapng, or plain files with the bytes of one direction of a connection.
    The table is replaced.

    \b
    Examples:
      penstock pipeline decode capture.pcap
      penstock pipeline decode "captures/*.pcap" --port 9100 --payloads --output frames
      penstock pipeline decode client.bin --protocol sspq --direction to_server
    """
    from penstock.spark.pipelines.decode import main as decoding  # noqa: PLC0415

    found = decoding.find_files(files)
    captures = decoding.Captures(flags["protocol"], flags["direction"], frozenset(flags["ports"]), flags["payloads"])
    with _started("decode", flags) as (spark, run):
        done = decoding.run(spark, found, captures, flags["output"], run)
    if flags["as_json"]:
        result = {"files": len(found), "frames": done.frames, "errors": done.errors}
        print_json({**result, "seconds": round(done.seconds, 3), "done": done.whole})
    elif done.whole:
        note(f"{done.frames:,} frames and {done.errors:,} errors in {len(found):,} files, {done.seconds:.1f} s")
        say(flags["output"])
    else:
        note(f"interrupted: {flags['output']} is as it was before")
    return 0 if done.whole else INTERRUPTED


@command.command("init", epilog="Exit codes: 0 done, 2 wrong use, 3 the folder is not empty.")
@click.argument("folder", metavar="DIR")
@click.option("--endpoint", default="grpc://127.0.0.1:8815", metavar="URL", help="[default: grpc://127.0.0.1:8815]")
@json_option
def init(folder: str, endpoint: str, as_json: bool) -> int:
    """Make a Declarative Pipelines project in DIR, whose streaming tables read from the broker.

    \b
    Examples:
      penstock pipeline init my-project
      cd my-project && spark-pipelines run
    """
    from penstock.spark import values  # noqa: PLC0415
    from penstock.spark.pipelines.project import create  # noqa: PLC0415

    try:
        lines = list(create(folder, values.endpoint(endpoint)))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--endpoint") from None
    if as_json:
        print_json({"folder": os.path.abspath(folder)})
    else:
        say(*lines)
    return 0


@command.command("submit-file", epilog="Exit codes: 0 done, 2 wrong use.")
@json_option
def submit_file(as_json: bool) -> int:
    """Print the file that spark-submit runs, to use a cluster's own way of starting things.

    \b
    Examples:
      penstock pipeline submit-file
      spark-submit --master spark://host:7077 "$(penstock pipeline submit-file)" archive --once --lake /shared/lake
    """
    file = str(Path(__file__).with_name("submit") / "pipeline.py")
    if as_json:
        print_json({"file": file})
    else:
        say(file)
    return 0
