"""``penstock pipeline``: ready-made Spark pipelines, a module each with its flags.

flags       the flags that several pipelines share
running     Spark's session, signals, and the result
progress    the display of a running pipeline
"""

from __future__ import annotations

import click

from penstock.cli.errors import CommandGroup
from penstock.cli.pipeline import archive, decode, init, insight, replay, submit_file
from penstock.cli.pipeline.flags import EXIT_CODES


@click.group(
    "pipeline",
    cls=CommandGroup,
    epilog=EXIT_CODES,
)
def command() -> None:
    """Ready-made Spark pipelines. docs/pipelines.md describes their tables.

    \b
    Examples:
      penstock pipeline archive --once                       all queues into ./penstock-lake, and stop
      penstock pipeline insight                              tables and a report of all queues, until Ctrl-C
      penstock pipeline replay --to default/jobs --where "queue = 'jobs'"
      penstock pipeline decode capture.pcap                  a table of frames
      penstock pipeline init my-project                      a project for `spark-pipelines run`
    """


for module in (archive, insight, replay, decode, init, submit_file):
    command.add_command(module.command)
