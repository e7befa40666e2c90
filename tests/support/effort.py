"""The cost of a call: executed bytecodes of the package, and the memory that they fill.

No clock is involved, so the result is the same on every machine.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import penstock

_PACKAGE = str(Path(penstock.__file__).parent)
#: Bytes that count as one bytecode, because joining and copying payloads is work too.
FILLED: Final = 64
FEW: Final = 4096


class Meter:
    """Counts while it is on."""

    def __init__(self) -> None:
        self.count = 0
        self._held = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count in this thread, within the block. Memory counts while ``tracemalloc`` traces."""
        self._held = tracemalloc.get_traced_memory()[0]
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
        held = tracemalloc.get_traced_memory()[0]
        if held > self._held + FEW:
            self.count += (held - self._held) // FILLED
        self._held = held
        return self._step


def effort(do: Callable[[], object]) -> int:
    """The work of one call."""
    meter = Meter()
    with meter.on():
        do()
    return meter.count


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Counts calls of the package's Python functions in this thread, by ``module:function``."""
    calls: Counter[str] = Counter()

    def enter(frame: FrameType, event: str, arg: Any) -> None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            calls[f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}"] += 1

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield calls
    finally:
        sys.settrace(before)


class LoopMeter:
    """The work of each callback and of each iteration of an event loop."""

    def __init__(self) -> None:
        self.most = self.most_in_round = 0
        self._round = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Measure the callbacks of loops in this thread, within the block."""
        run, run_once = asyncio.Handle._run, asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

        def measured(handle: asyncio.Handle) -> None:
            meter = Meter()
            with meter.on():
                run(handle)
            self.most = max(self.most, meter.count)
            self._round += meter.count

        def measured_round(loop: asyncio.BaseEventLoop) -> None:
            self._round = 0
            run_once(loop)
            self.most_in_round = max(self.most_in_round, self._round)

        tracemalloc.start()
        try:
            with (
                patch.object(asyncio.Handle, "_run", measured),
                patch.object(asyncio.BaseEventLoop, "_run_once", measured_round),
            ):
                yield
        finally:
            tracemalloc.stop()


class TurnMeter:
    """Seconds of CPU time that each callback of an event loop takes, including libraries in C, which execute no
    bytecodes. CPU time does not depend on how busy the machine is.

    Collecting garbage skips every object that is older than the measurement: a test process that has run thousands of
    tests holds so many that one collection takes most of a second.
    """

    def __init__(self) -> None:
        self.most = 0.0
        #: The owner of the slowest callback.
        self.what = ""

    @contextmanager
    def on(self) -> Iterator[None]:
        """Measure the callbacks of loops in this thread, within the block."""
        run = asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            before = time.thread_time()
            run(handle)
            took = time.thread_time() - before
            if took > self.most:
                self.most, self.what = took, repr(handle)

        gc.collect()
        gc.freeze()
        try:
            with patch.object(asyncio.Handle, "_run", measured):
                yield
        finally:
            gc.unfreeze()


def processor_seconds(pid: int) -> float:
    """The CPU time that a process has used so far, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
