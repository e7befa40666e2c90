"""How much work something is: bytecodes of the package that are executed. No clock, so the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import penstock

_PACKAGE = str(Path(penstock.__file__).parent)


class Meter:
    """Counts while it is on."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count in this thread, within the block."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        self.count += event == "opcode"
        return self._step


def effort(do: Callable[[], object]) -> int:
    """The work of one call."""
    meter = Meter()
    with meter.on():
        do()
    return meter.count
