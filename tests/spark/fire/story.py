"""What the stories share: their figures, and how what they start is killed."""

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
    """Keeps the figures of a story, a NamedTuple that has ``lost`` and ``doubled``, and what is not as it must be."""

    def __init__(self, figures: F) -> None:
        self.figures = figures
        self.wrong: list[str] = []

    def count(self, **more: int) -> None:
        """Add to the figures."""
        self.figures = added(self.figures, type(self.figures)(**more))

    def compare(self, what: str, found: Iterable[Any], wanted: Iterable[Any]) -> None:
        """Count what is missing and what is there too often."""
        difference = Difference.between(found, wanted)
        self.count(lost=difference.lost, doubled=difference.doubled)
        if difference:
            self.wrong.append(f"{what}: {difference}")


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """kill -9 for a process that leads a session, and all it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
