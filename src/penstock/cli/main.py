"""The ``penstock`` command: its subcommands, its exit codes, and what becomes of errors."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from penstock import __version__
from penstock.cli.output import complain
from penstock.client.errors import BadURL, ClientError, NoMessage, Refused, Unsupported
from penstock.server.configuration import ConfigurationError

OK, FAILED, WRONG_USE, REFUSED, NOT_ENOUGH = 0, 1, 2, 3, 4
INTERRUPTED, READER_GONE = 130, 141

#: The commands in the order of the help, and the modules that have them. A module is read when its command is used.
COMMANDS = {
    "serve": "serve",
    "config": "config",
    "send": "send",
    "receive": "receive",
    "dead": "dead",
    "ping": "ping",
    "shovel": "shovel",
    "bench": "bench",
    "completion": "completion",
}


class Commands(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name: ``command`` in its module."""
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(f"penstock.cli.{COMMANDS[cmd_name]}").command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="penstock")
def penstock() -> None:
    """A durable message broker that speaks PHPMQ, SSPQ and Kokaq on one set of queues.

    \b
    Examples:
      penstock serve                                        start a broker; data in ./penstock-data
      penstock send phpmq://127.0.0.1/jobs hello            publish one message
      penstock receive phpmq://127.0.0.1/jobs               take it

    \b
    Exit codes of all commands:
      0    done; for serve: stopped cleanly
      1    failed: nobody there, connection lost, disk trouble
      2    wrong use: an option, an URL or a configuration that makes no sense
      3    refused by the broker; serve: the journal is in use, damaged or newer, or an address can't be listened on
      4    less was there than was asked for
      130  ended by Ctrl-C        141  whoever read our output has gone
    """


def main() -> NoReturn:
    """Run the command line, and end the process."""
    sys.exit(_run())


def _run() -> int:
    try:
        code = penstock.main(prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody hears what is left in the buffer
        return READER_GONE
    except (BadURL, Unsupported, ConfigurationError, ValueError) as error:
        return _fail(error, WRONG_USE)
    except (Refused, NoMessage) as error:
        return _fail(error, REFUSED)
    except (ClientError, OSError) as error:
        return _fail(error, FAILED)


def _fail(error: Exception, code: int) -> int:
    complain(str(error), *getattr(error, "__notes__", ()))
    return code
