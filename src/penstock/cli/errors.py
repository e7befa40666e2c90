"""Errors become one line on standard error and an exit code. Commands raise; only this module catches."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from typing_extensions import override

from penstock.cli.output import print_error

OK, FAILED, WRONG_USE, REFUSED, NOT_ENOUGH, UNDECIDED = 0, 1, 2, 3, 4, 5
INTERRUPTED, READER_GONE = 130, 141

#: The exit code of each error, or of its nearest base. By name, so that a command imports only what it needs.
CODES = {
    "builtins.OSError": FAILED,
    "builtins.ValueError": WRONG_USE,
    "penstock.bench.run.BenchError": FAILED,
    "penstock.client.errors.BadURL": WRONG_USE,
    "penstock.client.errors.Unsupported": WRONG_USE,
    "penstock.client.errors.Refused": REFUSED,
    "penstock.client.errors.NoMessage": REFUSED,
    "penstock.client.errors.ClientError": FAILED,
    "penstock.compiled.build.CompileError": FAILED,
    "penstock.demo.processes.ProcessFailed": FAILED,
    "penstock.journal.errors.DecisionNeeded": UNDECIDED,
    "penstock.journal.errors.JournalDamaged": FAILED,
    "penstock.journal.errors.LogError": REFUSED,
    "penstock.protocols.ProtocolError": WRONG_USE,
    "penstock.server.options.configuration.ConfigurationError": WRONG_USE,
    "penstock.spark.errors.BadOption": WRONG_USE,
    "penstock.spark.errors.Denied": REFUSED,
    "penstock.spark.errors.Refused": REFUSED,
    "penstock.spark.errors.NoQueue": REFUSED,
    "penstock.spark.errors.SourceError": FAILED,
    "penstock.spark.lake.disk.LakeError": REFUSED,
}
#: The extras that install modules which a broker alone does not need.
EXTRAS = {"pyspark": "spark", "pandas": "spark", "fastavro": "spark", "jinja2": "spark", "pyarrow": "flight"}


class CommandError(Exception):
    """An error that only the command knows: its line, more lines below it, and the exit code."""

    def __init__(self, text: str, *more: str, exit_code: int = FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        for each in more:
            self.add_note(each)


class CommandGroup(click.Group):
    """A group of commands that return their exit code; errors become one line and an exit code."""

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except (click.exceptions.Exit, click.ClickException):
            raise  # click prints these with the usage of the command
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest of the buffer has no reader
            code = READER_GONE
        except Exception as error:
            code = _report(error)
        ctx.exit(code or OK)


def _report(error: Exception) -> int:
    """Print an error, escaped since it may quote a peer. Unexpected errors are raised again."""
    code = code_of(error)
    if code is None or isinstance(error, click.ClickException | click.exceptions.Exit):
        raise error
    print_error(_text(error), *getattr(error, "__notes__", ()))
    return code


def code_of(error: Exception) -> int | None:
    """The exit code of an error; None for an unexpected one."""
    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, ImportError):
        return FAILED if _extra(error) else None
    names = (f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__)
    return next((CODES[name] for name in names if name in CODES), None)


def _text(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"this needs {error.name}, which is not installed: pip install 'penstock[{_extra(error)}]'"
    return str(error)


def _extra(error: ImportError) -> str | None:
    return EXTRAS.get((error.name or "").partition(".")[0])
