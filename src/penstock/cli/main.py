"""The ``penstock`` command and the table of its subcommands."""

from __future__ import annotations

import gc
import importlib

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from penstock import compiled
from penstock.cli.errors import CommandGroup

#: The commands in the order of the help, with its line for each. A command is ``command`` in the module of its name,
#: which is imported when it is used: the help without importing them all takes a tenth of the time.
COMMANDS = {
    "up": "Run a broker and the pipelines that turn its traffic into tables.",
    "serve": "Run the broker.",
    "config": "Check and show the broker's configuration.",
    "send": "Publish messages.",
    "receive": "Take messages.",
    "ping": "Check that a broker answers.",
    "shovel": "Move messages from one broker or queue to another.",
    "bench": "Measure a broker.",
    "status": "Show the state of a broker.",
    "top": "Watch the queues as they change.",
    "queues": "List the queues of a broker.",
    "queue": "Create, configure, pause, purge or delete a queue.",
    "messages": "Browse, search, publish, move and delete messages.",
    "dead": "Look at dead letters, or redrive them.",
    "connections": "List connected clients and what they hold.",
    "readers": "List readers of the journal and their lag.",
    "writers": "List writers whose chunks are remembered, so that none counts twice.",
    "jobs": "List and control the broker's background jobs.",
    "sql": "Query queues and journal in SQL.",
    "backup": "Back up the journal while the broker runs.",
    "restore": "Restore a backup to a data folder or a database.",
    "drain": "Empty the queues before a broker is stopped.",
    "token": "Manage tokens for HTTP and Flight.",
    "definitions": "Export and import namespaces, queues and rules.",
    "journal": "Inspect, check, repair and move a journal.",
    "pipeline": "Run Spark pipelines: archive, insight, replay, decode.",
    "compile": "Compile hot modules with a C compiler.",
    "completion": "Print a script for shell completion.",
}


class Commands(CommandGroup):
    """A group that imports a command when it is used."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(f"penstock.cli.{cmd_name}").command
        gc.enable()  # ``entry`` disabled it while modules are imported
        assert isinstance(found, click.Command)
        return found

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


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
      penstock status                                       its state, over HTTP with a token
      penstock journal verify ./penstock-data               check the journal

    \b
    Exit codes of all commands:
      0    done; for serve: stopped cleanly
      1    failed: no broker there, connection lost, disk trouble
      2    wrong use: an invalid option, URL or configuration
      3    refused by the broker; serve: the journal is in use, damaged or newer, or an address can't be listened on
      4    fewer than requested, or not found
      5    serve: the database has lost commits, or no longer has a journal; an operator must decide
      130  ended by Ctrl-C        141  the reader of our output is gone
    """
