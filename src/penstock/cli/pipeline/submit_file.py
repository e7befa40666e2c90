"""``penstock pipeline submit-file``."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.output import json_option, print_json, say


@click.command("submit-file", epilog="Exit codes: 0 done, 2 wrong use.")
@json_option
def command(as_json: bool) -> int:
    """Print the path of the file for spark-submit, which runs these pipelines on a cluster.

    \b
    Examples:
      penstock pipeline submit-file
      spark-submit --master spark://host:7077 "$(penstock pipeline submit-file)" archive --once --lake /shared/lake
    """
    file = str(Path(__file__).parents[1] / "submit" / "pipeline.py")
    if as_json:
        print_json({"file": file})
    else:
        say(file)
    return 0
