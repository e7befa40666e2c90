"""The numbers that the long commands report, for tests and programs; they add up over the parts of a run."""

from __future__ import annotations

import argparse
import json
import operator
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T", bound=tuple[int, ...])


def added(one: T, other: T) -> T:
    """Add field by field."""
    return type(one)(*map(operator.add, one, other))


class Difference(NamedTuple):
    """The difference between found and expected items."""

    lost: int
    doubled: int
    examples: list[Any]

    @classmethod
    def between(cls, found: Iterable[Any], wanted: Iterable[Any]) -> Difference:
        """Each item must be found as often as it is wanted; ``doubled`` also counts unexpected items."""
        there, due = Counter(found), Counter(wanted)
        missing, more = due - there, there - due
        return cls(missing.total(), more.total(), [*list(missing)[:5], *list(more)[:5]])

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that all these commands share."""
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, and nothing else")


def show(figures: Any, sentence: str, *, as_json: bool) -> None:
    """Print a command's result. ``figures`` is a NamedTuple of numbers."""
    sys.stdout.write((json.dumps(figures._asdict()) if as_json else sentence) + "\n")
