"""The progress of a pipeline: an updating line on a terminal, a line now and then elsewhere, JSON for programs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli.output import escape, print_json

if TYPE_CHECKING:
    from penstock.spark.pipelines.run import PipelineProgress

#: Seconds between two lines without a terminal, and between two JSON values during a batch.
NOTE_EVERY, REPORT_EVERY = 15.0, 5.0


class ProgressDisplay:
    """Shows progress on standard error, and JSON on standard output."""

    def __init__(self, console: Console, *, as_json: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._as_json, self._clock = console, as_json, clock
        columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn()]
        moves = console.is_terminal and not as_json
        self.bar = Progress(*columns, console=console, transient=True, disable=not moves)
        self._task = self.bar.add_task("", total=None)
        self._quiet = as_json or moves
        self._noted = self._reported = clock()
        self._batches = 0

    def begin(self, text: str) -> None:
        """Show a step whose progress is unknown."""
        self.bar.update(self._task, description=escape(text))
        self._note(text)

    def show(self, progress: PipelineProgress) -> None:
        """Show a pipeline's progress."""
        done, total = share(progress)
        self.bar.update(self._task, description=escape(words(progress)), completed=done, total=total)
        now = self._clock()
        if self._as_json and (progress.batches > self._batches or now - self._reported >= REPORT_EVERY):
            self._reported, self._batches = now, progress.batches
            print_json(values(progress))
        if now - self._noted >= NOTE_EVERY:
            self._noted = now
            self._note(words(progress))

    def _note(self, text: str) -> None:
        if not self._quiet:
            self._console.out(escape(text), highlight=False)


@contextmanager
def progress_display(as_json: bool) -> Iterator[ProgressDisplay]:
    """A display on the real standard error, which works while Spark's output there is discarded."""
    with os.fdopen(os.dup(2), "w", buffering=1) as file:
        found = ProgressDisplay(Console(file=file, soft_wrap=True), as_json=as_json)
        with found.bar:
            yield found


def share(progress: PipelineProgress) -> tuple[float, float | None]:
    """The work done, and the total; None: it is unknown."""
    if progress.total_rows is not None:
        return progress.before_rows + progress.rows, progress.total_rows
    if progress.tasks:
        return progress.tasks_done, progress.tasks
    return 0, None


def words(progress: PipelineProgress) -> str:
    """Progress as one line of text."""
    parts = [progress.doing] if progress.doing else []
    if progress.tasks:
        parts.append(f"{progress.tasks_done:,} of {progress.tasks:,} tasks")
    rows = f"{progress.rows:,} rows done" if progress.total_rows is None else _of_all(progress)
    parts.append(f"{rows} ({progress.rate:,.0f}/s)" if progress.rows else rows)
    if progress.lag_rows is not None and progress.lag_seconds is not None:
        parts.append(f"{progress.lag_rows:,} behind ({progress.lag_seconds:.0f} s)")
    return ", ".join(parts)


def _of_all(progress: PipelineProgress) -> str:
    return f"{progress.before_rows + progress.rows:,} of {progress.total_rows:,} rows done"


def values(progress: PipelineProgress) -> dict[str, Any]:
    """Progress as JSON values."""
    return {
        "rows": progress.rows, "batches": progress.batches, "seconds": round(progress.seconds, 3),
        "lag_rows": progress.lag_rows, "lag_seconds": progress.lag_seconds, "total_rows": progress.total_rows,
        "before_rows": progress.before_rows, "doing": progress.doing, "tasks": progress.tasks,
        "tasks_done": progress.tasks_done, "done": progress.done,
    }  # fmt: skip


def ending(progress: PipelineProgress, *, once: bool) -> str:
    """The last line: what is done and, after an interruption, what is left."""
    if progress.done and not progress.rows and progress.before_rows:
        done = f"already done: all of its {progress.before_rows:,} rows, by an earlier run"
        return f"{done}. To send them again, choose another --name"
    found = f"{progress.rows:,} rows in {progress.seconds:.1f} s"
    if progress.done or not once:
        return found
    left = "whatever is not in these is done by the next run"
    if progress.total_rows is not None:
        left = f"{progress.total_rows - progress.before_rows - progress.rows:,} are left for the next run"
    elif progress.lag_rows:
        left = f"about {max(0, progress.lag_rows):,} are left for the next run"
    return f"interrupted: {found}, in {progress.batches:,} batches, are done and stay; {left}"
