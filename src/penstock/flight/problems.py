"""Errors on their way to a client: first a ``calls.Problem``, then the Flight error that carries it.

A client sees the text and, in ``extra_info``, the problem as JSON. Of an unexpected fault it learns only that there was
one; the operator gets the details.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow.flight as fl

from penstock.companions.broker_client import BrokerAway
from penstock.companions.framing import BrokerRefused
from penstock.flight.calls import Code, Problem
from penstock.journal.errors import DataLoss, JournalDamaged, LogError, Replaced
from penstock.journal.format.block import BlockError

#: Flight errors travel in headers, which gRPC limits to 8 KiB.
MOST_TEXT = 1000

_CLASSES: dict[str, type[fl.FlightError]] = {
    "denied": fl.FlightUnauthorizedError,
    "away": fl.FlightUnavailableError,
    "internal": fl.FlightInternalError,
}

#: Codes of the broker's refusals in Flight's terms.
_CODES: dict[str, Code] = {
    "away": "away",
    "bad-request": "bad-request",
    "denied": "denied",
    "differs": "differs",
    "no-queue": "no-queue",
    "refused": "refused",
    "standby": "away",
    "taken-over": "taken-over",
}


class Trouble(Exception):
    """A problem to report to the client."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


class UnknownToken(Trouble):
    """The caller is not authenticated. Differs from ``denied`` only in the class of the Flight error."""


def trouble(code: Code, text: str, lost: tuple[int, int] | None = None) -> Trouble:
    """Make an exception to raise."""
    return Trouble(Problem(code=code, text=text, lost=lost))


@contextmanager
def flight_errors(report: Callable[[BaseException], None]) -> Iterator[None]:
    """Turn every exception into a Flight error. Details of unexpected ones go only to ``report``."""
    try:
        yield
    except fl.FlightError:
        raise
    except Exception as error:
        failure = as_trouble(error)
        if failure.problem.code == "internal":
            report(error)
        raise flight_error(failure) from None


def as_trouble(error: Exception) -> Trouble:
    """The problem behind any exception."""
    match error:
        case Trouble():
            return error
        case BrokerRefused():
            return Trouble(Problem(code=_CODES.get(error.refusal.code, "internal"), text=error.refusal.text))
        case BrokerAway():
            return trouble("away", str(error))
        case Replaced():
            return trouble("replaced", str(error), error.lost)
        case DataLoss():
            return trouble("data-loss", str(error), error.lost)
        case JournalDamaged():
            low, high = error.lost
            return trouble("data-loss", f"the journal is damaged between positions {low} and {high}", error.lost)
        case BlockError():  # while looking up names of queues or places
            return trouble("data-loss", f"the journal is damaged: {error.reason}")
        case LogError():
            return trouble("away", "the journal can't be read now")
        case _:
            return trouble("internal", "an internal error of the broker; its log has the details")


def flight_error(failure: Trouble) -> Any:
    """The Flight error for the client."""
    text = failure.problem.text
    text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
    problem = msgspec.structs.replace(failure.problem, text=text)
    kind = _CLASSES.get(problem.code, fl.FlightServerError)
    if isinstance(failure, UnknownToken):
        kind = fl.FlightUnauthenticatedError
    return kind(text, extra_info=msgspec.json.encode(problem))
