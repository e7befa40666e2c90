"""``penstock pipeline init``."""

from __future__ import annotations

import os

import click

from penstock.cli.output import json_option, print_json, say


@click.command("init", epilog="Exit codes: 0 done, 2 wrong use, 3 the folder is not empty.")
@click.argument("folder", metavar="DIR")
@click.option("--endpoint", default="grpc://127.0.0.1:8815", metavar="URL", help="[default: grpc://127.0.0.1:8815]")
@json_option
def command(folder: str, endpoint: str, as_json: bool) -> int:
    """Create a Declarative Pipelines project in DIR, whose streaming tables read from the broker.

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
