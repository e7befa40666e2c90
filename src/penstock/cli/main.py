"""The group that all commands belong to."""

from __future__ import annotations

import click

from penstock.cli.journal import journal


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  penstock journal info /var/lib/penstock
  penstock journal verify /var/lib/penstock && echo sound
""",
)
@click.version_option(package_name="penstock", prog_name="penstock", message="%(prog)s %(version)s")
def main() -> None:
    """Penstock, a durable message broker whose journal is the table that Spark reads."""


main.add_command(journal)
