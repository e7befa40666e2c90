"""``penstock pipeline replay``."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.pipeline.flags import BROKER, EXIT_CODES, LAKE, SPARK, STORE, broker_of, options
from penstock.cli.pipeline.running import finish, started

_SOURCE = [
    click.option("--name", default="replay", help="An interrupted replay continues under its name. [default: replay]"),
    click.option(
        "--from", "source", type=click.Choice(["archive", "journal"]), default="archive", help="[default: archive]"
    ),
    click.option("--table", default="messages", help="Of the archive. [default: messages]"),
]
_MESSAGES = [
    click.option("--queue", metavar="NS/QUEUE", help="Only messages of this queue."),
    click.option("--where", metavar="SQL", help="Only these: a condition on the table's columns."),
    click.option("--from-time", metavar="TIME", help="Published then or later (ISO 8601)."),
    click.option("--to-time", metavar="TIME", help="Published before that."),
    click.option("--from-position", type=int, metavar="N"),
    click.option("--to-position", type=int, metavar="N", help="Not included."),
    click.option("--to", metavar="NS/QUEUE", help="The target queue. [default: the one they were in]"),
    click.option("--create", is_flag=True, help="Create the target queue if it does not exist."),
    click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N",
                 help="At most N messages a second."),
]  # fmt: skip


@click.command("replay", epilog=EXIT_CODES)
@options(LAKE, BROKER, _SOURCE, STORE, _MESSAGES, SPARK)
def command(**flags: Any) -> int:
    """Send messages of the archive, or of the broker's journal, into a queue: in their order, each once.

    Run an interrupted replay again with the same name and options, and it continues. Payload, priority and
    correlation ID are kept; a time to live is not, as it may be over.

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
    broker = broker_of(flags)
    with started("replay", flags) as (spark, run):
        progress = Replay(spark, broker, flags["lake"], flags["name"], places).run(choice, flags["rate"], run)
    return finish(progress, flags)
