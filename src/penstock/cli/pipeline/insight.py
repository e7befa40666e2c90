"""``penstock pipeline insight``."""

from __future__ import annotations

import os
from typing import Any

import click

from penstock.cli.pipeline.flags import BROKER, EXIT_CODES, LAKE, PATTERN, SPARK, STREAM, broker_of, options
from penstock.cli.pipeline.running import finish, started

_REPORT = [
    PATTERN,
    click.option("--delay", type=click.FloatRange(0), default=2.0, metavar="MIN",
                 help="A minute is closed this many minutes after its end. [default: 2]"),
    click.option("--report-every", type=click.FloatRange(0), default=30.0, metavar="S", help="[default: 30]"),
    click.option(
        "--report-hours", type=click.FloatRange(0, min_open=True), default=24.0, metavar="H", help="[default: 24]"
    ),
]  # fmt: skip


@click.command("insight", epilog=EXIT_CODES)
@options(LAKE, BROKER, STREAM, _REPORT, SPARK)
def command(**flags: Any) -> int:
    """Tables of each queue's activity by minute, and a report with plots: DIR/insight/report.html.

    \b
    Examples:
      penstock pipeline insight
      penstock pipeline insight --once --lake /data/lake
      penstock pipeline insight --pattern "shop/*" --report-hours 6
    """
    from penstock.spark.pipelines.insight.main import InsightOptions  # noqa: PLC0415
    from penstock.spark.pipelines.insight.main import run as run_insight  # noqa: PLC0415

    chosen = InsightOptions(
        pattern=flags["pattern"], delay=int(flags["delay"] * 60_000_000),
        report_seconds=flags["report_every"], report_hours=flags["report_hours"],
    )  # fmt: skip
    broker = broker_of(flags)
    with started("insight", flags) as (spark, run):
        progress = run_insight(spark, broker, flags["lake"], chosen, run)
    report = f"{flags['lake']}/insight/report.html"
    return finish(progress, flags, *([report] if os.path.exists(report) else []))
