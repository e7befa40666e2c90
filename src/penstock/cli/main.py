"""The ``penstock`` command and the table of its subcommands."""

from __future__ import annotations

import gc
import importlib

import click

from penstock import compiled
from penstock.cli.errors import CommandGroup

#: The commands in the order of the help. Each is ``command`` in the module of its name, which is read when it is used.
COMMANDS = (
    "up",
    "serve",
    "config",
    "send",
    "receive",
    "ping",
    "shovel",
    "bench",
    "status",
    "top",
    "queues",
    "queue",
    "messages",
    "dead",
    "connections",
    "readers",
    "writers",
    "jobs",
    "sql",
    "backup",
    "restore",
    "drain",
    "token",
    "definitions",
    "journal",
    "pipeline",
    "compile",
    "completion",
)


class Commands(CommandGroup):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(f"penstock.cli.{cmd_name}").command
        gc.enable()  # which it was not while all of this was read: see ``entry``
        assert isinstance(found, click.Command)
        return found


@click.group(
    "penstock", cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(
    package_name="penstock", prog_name="penstock", message=f"%(prog)s %(version)s ({compiled.state.value})"
)
def main() -> None:
    """A durable message broker that speaks PHPMQ, SSPQ and Kokaq on one set of queues.

    \b
    Examples:
      penstock up --demo                                    see everything work, tables included
      penstock serve                                        start a broker; data in ./penstock-data
      penstock send phpmq://127.0.0.1/jobs hello            publish one message
      penstock receive phpmq://127.0.0.1/jobs               take it
      penstock status                                       how is it? over HTTP, with a token
      penstock journal verify ./penstock-data               is the journal sound?

    \b
    Exit codes of all commands:
      0    done; for serve: stopped cleanly
      1    failed: no broker there, connection lost, disk trouble
      2    wrong use: an option, a URL or a configuration that makes no sense
      3    refused by the broker; serve: the journal is in use, damaged or newer, or an address can't be listened on
      4    less was there than was asked for
      5    serve: the database has lost commits, or has no journal any more; an operator has to decide
      130  ended by Ctrl-C        141  whoever read our output has gone
    """
