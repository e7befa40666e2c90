"""Errors on their way to a client: as a ``calls.Problem`` first, then as the Flight error that carries it.

A client sees the text and, in ``extra_info``, the problem as JSON. Nothing else of ours: a fault that nobody expected
is told to the operator, and to the client only that there was one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow.flight as fl

from penstock.flight.calls import Code, Problem
from penstock.journal.errors import DataLoss, JournalDamaged, LogError, Replaced
from penstock.journal.format.block import BlockError

#: Flight errors travel in headers, which gRPC keeps below 8 KiB.
MOST_TEXT = 1000

_CLASSES: dict[str, type[fl.FlightError]] = {
    "denied": fl.FlightUnauthorizedError,
    "away": fl.FlightUnavailableError,
    "internal": fl.FlightInternalError,
}


class Trouble(Exception):
    """A problem to be told to the client."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


class UnknownToken(Trouble):
    """Who are you? Told from ``denied`` by the Flight error's class only."""


def trouble(code: Code, text: str, lost: tuple[int, int] | None = None) -> Trouble:
    """What to raise."""
    return Trouble(Problem(code=code, text=text, lost=lost))


@contextmanager
def told(report: Callable[[BaseException], None]) -> Iterator[None]:
    """Whatever is raised inside becomes a Flight error. What nobody expected goes to ``report``, and no further."""
    try:
        yield
    except fl.FlightError:
        raise
    except Exception as error:
        found = as_trouble(error)
        if found.problem.code == "internal":
            report(error)
        raise flight_error(found) from None


def as_trouble(error: Exception) -> Trouble:
    """The problem behind an exception of the journal, or of whatever."""
    match error:
        case Trouble():
            return error
        case Replaced():
            return trouble("replaced", str(error), error.lost)
        case DataLoss():
            return trouble("data-loss", str(error), error.lost)
        case JournalDamaged():
            low, high = error.lost
            return trouble("data-loss", f"the journal is damaged between positions {low} and {high}", error.lost)
        case BlockError():  # on the way to the names of queues, or to where something is
            return trouble("data-loss", f"the journal is damaged: {error.reason}")
        case LogError():
            return trouble("away", "the journal can not be read now")
        case _:
            return trouble("internal", "a fault of the broker, which its log describes")


def flight_error(found: Trouble) -> Any:
    """The error that a client of Flight gets."""
    text = found.problem.text
    text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
    problem = msgspec.structs.replace(found.problem, text=text)
    kind = _CLASSES.get(problem.code, fl.FlightServerError)
    if isinstance(found, UnknownToken):
        kind = fl.FlightUnauthenticatedError
    return kind(text, extra_info=msgspec.json.encode(problem))
