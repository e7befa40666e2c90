"""``penstock serve``: the process, from the first line of its log to the last, and its exit code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock import compiled
from penstock.journal.errors import DecisionNeeded, JournalRefused, LogError
from penstock.server.admin.tokens import TokensUnreadable
from penstock.server.logs import LibraryLog, Logger
from penstock.server.network.listeners import ListenError
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.options.environment import Variables
from penstock.server.process.life import Life
from penstock.server.system.allocator import return_freed_memory
from penstock.server.system.collector import collect_rarely

#: Exit codes: see ``penstock serve --help``. After ``UNDECIDED`` an operator must act before the broker can start.
OK, FAILED, WRONG_USE, REFUSED, UNDECIDED = 0, 1, 2, 3, 5


def serve(options: BrokerOptions, variables: Variables | None = None) -> int:
    """Run a broker until a signal ends it. Returns the exit code. ``variables`` come from the environment."""
    return_freed_memory()
    collect_rarely()
    log = Logger(level=options.log.level, as_json={"auto": None, "text": False, "json": True}[options.log.format])
    logging.basicConfig(handlers=[LibraryLog(log)])
    for unknown in variables.unknown if variables else ():
        log.warning("an environment variable names no option and is ignored", **unknown.facts())
    if variables and variables.services:
        log.debug("environment variables of a service are ignored", variables=" ".join(variables.services))
    if compiled.state in {compiled.State.STALE, compiled.State.BROKEN}:
        log.warning("the broker does not run compiled", reason=compiled.state.value)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return _exit_code(runner.run(_live(options, log)), log)
    except JournalRefused as error:
        log.error("the journal cannot be opened", reason=str(error))
        return REFUSED
    except TokensUnreadable as error:
        log.error("the tokens cannot be read", reason=str(error))
        return REFUSED
    except ListenError as error:
        log.error("cannot listen", reason=str(error))
        return REFUSED
    except DecisionNeeded as error:
        return _undecided(error, log)
    except (LogError, OSError) as error:
        log.error("the broker has ended", reason=str(error))
        return FAILED


async def _live(options: BrokerOptions, log: Logger) -> Exception | None:
    return await Life(options, log).run()


def _exit_code(failure: Exception | None, log: Logger) -> int:
    """Log why the broker ends."""
    if failure is None:
        log.info("stopped")
        return OK
    if isinstance(failure, DecisionNeeded):
        return _undecided(failure, log)
    log.error("the broker has ended: nothing was confirmed after this", reason=str(failure))
    return FAILED


def _undecided(failure: DecisionNeeded, log: Logger) -> int:
    log.error("the broker has ended, and an operator must decide how to continue", reason=str(failure))
    return UNDECIDED


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop
