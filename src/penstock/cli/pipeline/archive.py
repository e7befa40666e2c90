"""``penstock pipeline archive``."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.pipeline.flags import BROKER, EXIT_CODES, LAKE, PATTERN, SPARK, STORE, STREAM, broker_of, options
from penstock.cli.pipeline.running import finish, started
from penstock.spark.pipelines.archive.payload_formats import DEFAULT_FORMAT, FORMATS
from penstock.spark.pipelines.archive.sinks import DEFAULT_KIND, SINKS

_TABLE = [
    click.option("--queue", metavar="NS/QUEUE", help="Only this queue. [default: all]"),
    PATTERN,
    click.option("--table", default="messages", help="The table's name. [default: messages]"),
    click.option(
        "--kind",
        type=click.Choice(list(SINKS)),
        help=f"The table's format. [default: that of the existing table; {DEFAULT_KIND} for a new one]",
    ),
]
_PAYLOADS = [
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default=DEFAULT_FORMAT,
        help=f"The format of payloads. [default: {DEFAULT_FORMAT}]",
    ),
    click.option(
        "--schema",
        default="",
        metavar="COLUMNS",
        help='"id long, name string", `infer` (JSON), or @FILE; for Avro, its schema.',
    ),
    click.option("--compact/--no-compact", default=True, help="Merge small files once an hour. [default]"),
    click.option("--max-bytes", default="256m", metavar="SIZE", help="Payloads of a batch. [default: 256m]"),
]


def sink_options() -> list[Any]:
    """The flags that belong to one kind of sink."""
    return [
        click.option(f"--{flag.name}", metavar=flag.metavar, help=f"{flag.help} Only with --kind {kind.name}.")
        for kind in SINKS.values()
        for flag in kind.flags
    ]


def sink_values(flags: dict[str, Any]) -> dict[str, str]:
    """Their values, as far as they are given."""
    names = [flag.name for kind in SINKS.values() for flag in kind.flags]
    return {name: value for name in names if (value := flags[name.replace("-", "_")]) is not None}


@click.command("archive", epilog=EXIT_CODES)
@options(LAKE, BROKER, STREAM, _TABLE, sink_options(), STORE, _PAYLOADS, SPARK)
def command(**flags: Any) -> int:
    """Archive published messages in tables, each message once.

    Tables are of Delta Lake, Iceberg, or plain Parquet; docs/pipelines.md shows how to read them. Payloads that do
    not fit the schema go to TABLE_quarantine, with the reason.

    \b
    Examples:
      penstock pipeline archive
      penstock pipeline archive --once --lake /data/lake --pattern "shop/*"
      penstock pipeline archive --queue shop/orders --table orders --format json --schema "id long, amount double"
      penstock pipeline archive --queue shop/orders --table orders --format json --schema infer
      penstock pipeline archive --kind iceberg --table everything --endpoint grpc://broker.example.com:8815
      penstock pipeline archive --lake s3://bucket/lake --store endpoint=https://s3.example.com --store secret=@FILE
    """
    from penstock.spark.pipelines.archive.main import run as run_archive  # noqa: PLC0415
    from penstock.spark.pipelines.archive.options import ArchiveOptions, lake_of  # noqa: PLC0415

    chosen = ArchiveOptions(
        queue=flags["queue"], pattern=flags["pattern"], table=flags["table"], kind=flags["kind"], format=flags["form"],
        schema=_text_or_file(flags["schema"]), compact=flags["compact"], max_bytes=flags["max_bytes"],
        store=flags["store"], catalogue=flags["catalogue"], state=flags["state"], sink=sink_values(flags),
    )  # fmt: skip
    lake_of(flags["lake"], chosen)
    broker = broker_of(flags)
    with started("archive", flags) as (spark, run):
        progress = run_archive(spark, broker, flags["lake"], chosen, run)
    return finish(progress, flags, f"{flags['lake']}/{flags['table']}")


def _text_or_file(text: str) -> str:
    if not text.startswith("@"):
        return text
    with open(text[1:], encoding="utf-8") as file:
        return file.read()
