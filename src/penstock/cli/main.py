"""The ``penstock`` command: its subcommands, its exit codes, and what becomes of errors."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from penstock.cli.output import complain
from penstock.client.errors import BadURL, ClientError, NoMessage, Refused, Unsupported
from penstock.protocols import ProtocolError
from penstock.server.process.configuration import ConfigurationError

OK, FAILED, WRONG_USE, REFUSED, NOT_ENOUGH = 0, 1, 2, 3, 4
INTERRUPTED, READER_GONE = 130, 141

#: The commands in the order of the help, and where they are. A module is read when its command is used.
COMMANDS = {
    "up": "up:command",
    "serve": "serve:command",
    "config": "config:command",
    "send": "send:command",
    "receive": "receive:command",
    "dead": "dead:command",
    "ping": "ping:command",
    "shovel": "shovel:command",
    "bench": "bench:command",
    "readers": "readers:command",
    "writers": "writers:command",
    "journal": "journal:journal",
    "pipeline": "pipeline:pipeline",
    "completion": "completion:command",
}


class Commands(click.Group):
    """A group that imports a command when it is asked for, and turns errors into a line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(f"penstock.cli.{module}"), name)
        assert isinstance(found, click.Command)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What it returns is the exit code, and its errors have one."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody hears what is left in the buffer
            code = READER_GONE
        except (BadURL, Unsupported, ConfigurationError, ProtocolError, ValueError) as error:
            code = _fail(error, WRONG_USE)
        except (Refused, NoMessage) as error:
            code = _fail(error, REFUSED)
        except (ClientError, OSError) as error:
            code = _fail(error, FAILED)
        ctx.exit(code or OK)


def _fail(error: Exception, code: int) -> int:
    """Tell of an error; escaped, as it may repeat what a peer said."""
    complain(str(error), *getattr(error, "__notes__", ()))
    return code


@click.group(
    "penstock", cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="penstock", prog_name="penstock", message="%(prog)s %(version)s")
def main() -> None:
    """A durable message broker that speaks PHPMQ, SSPQ and Kokaq on one set of queues.

    \b
    Examples:
      penstock up --demo                                    see everything work, tables included
      penstock serve                                        start a broker; data in ./penstock-data
      penstock send phpmq://127.0.0.1/jobs hello            publish one message
      penstock receive phpmq://127.0.0.1/jobs               take it
      penstock journal verify ./penstock-data               is the journal sound?

    \b
    Exit codes of all commands:
      0    done; for serve: stopped cleanly
      1    failed: nobody there, connection lost, disk trouble
      2    wrong use: an option, a URL or a configuration that makes no sense
      3    refused by the broker; serve: the journal is in use, damaged or newer, or an address can't be listened on
      4    less was there than was asked for
      130  ended by Ctrl-C        141  whoever read our output has gone
    """
