"""Suggestions for a queue that does not exist."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal

from penstock.flight.calls import Queues
from penstock.patterns import has_wildcards
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.errors import NoQueue
from penstock.spark.options import SourceSettings

Right = Literal["read", "consume", "publish"]

#: Names to suggest.
SUGGESTED = 3


def check_there(endpoint: FlightEndpoint, settings: SourceSettings, right: Right = "read", otherwise: str = "") -> None:
    """Raise NoQueue for a queue that is named but does not exist. ``otherwise`` is advice for the error."""
    if settings.queue and not endpoint.ask(Queues(queue=settings.queue, right=right), list[str]):
        raise no_queue(endpoint, settings, right, otherwise)


def no_queue(endpoint: FlightEndpoint, settings: SourceSettings, right: Right = "read", otherwise: str = "") -> NoQueue:
    """The error for a missing queue, with similar names on which the caller has the right."""
    text = [f"there is no queue {settings.queue} (penstock at {settings.endpoint})"]
    near = _near(settings.queue, endpoint.ask(Queues(right=right), list[str]))
    if near:
        text.append(f"There is {', '.join(near)}")
    if right != "publish" and has_wildcards(settings.queue):
        text.append(f"Option queue names one queue; for all that fit, use queuePattern={settings.queue}")
    return NoQueue(". ".join([*text, otherwise] if otherwise else text))


def _near(wanted: str, names: list[str]) -> list[str]:
    """Similar names, and the same name in other namespaces."""
    bare = wanted.partition("/")[2]
    same = [name for name in names if name.partition("/")[2] == bare]
    return list(dict.fromkeys([*same, *get_close_matches(wanted, names, SUGGESTED)]))[:SUGGESTED]
