"""Shared by the stories: their counts, and how they kill processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from support.figures import Difference, added

F = TypeVar("F", bound=tuple[int, ...])


class Counted(Generic[F]):
    """The counts of a story, a NamedTuple with ``lost`` and ``doubled``, and the errors found."""

    def __init__(self, figures: F) -> None:
        self.figures = figures
        self.wrong: list[str] = []

    def count(self, **more: int) -> None:
        """Add to the figures."""
        self.figures = added(self.figures, type(self.figures)(**more))

    def compare(self, what: str, found: Iterable[Any], wanted: Iterable[Any]) -> None:
        """Count missing and duplicate items."""
        difference = Difference.between(found, wanted)
        self.count(lost=difference.lost, doubled=difference.doubled)
        if difference:
            self.wrong.append(f"{what}: {difference}")


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process that leads a session, and all its descendants."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
