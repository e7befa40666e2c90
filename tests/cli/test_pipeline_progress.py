"""The progress of a pipeline: on a terminal, in a log, and as JSON for programs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.pipeline.progress import (
    NOTE_EVERY,
    REPORT_EVERY,
    ProgressDisplay,
    ending,
    progress_display,
    share,
    words,
)

Progress = pytest.importorskip("penstock.spark.pipelines.run").PipelineProgress

BUSY = Progress(rows=4000, batches=2, seconds=2.0, doing="batch 2: adding up 1,000 events", tasks=8, tasks_done=3)


class Shown:
    """A display that writes to a file, with a clock set by hand."""

    def __init__(self, *, terminal: bool, as_json: bool = False) -> None:
        self.now = 0.0
        self.file = io.StringIO()
        console = Console(file=self.file, force_terminal=terminal, width=120, soft_wrap=True)
        self.display = ProgressDisplay(console, as_json=as_json, clock=lambda: self.now)

    @property
    def text(self) -> str:
        return self.file.getvalue()


def test_without_a_terminal_a_line_is_printed_now_and_then() -> None:
    shown = Shown(terminal=False)
    with shown.display.bar:
        shown.display.begin("starting Spark …")
        shown.display.show(BUSY)
        shown.now = NOTE_EVERY
        shown.display.show(BUSY)
        shown.display.show(BUSY)
    assert shown.text.splitlines() == ["starting Spark …", words(BUSY)]
    assert words(BUSY) == "batch 2: adding up 1,000 events, 3 of 8 tasks, 4,000 rows done (2,000/s)"


def test_on_a_terminal_a_line_is_updated_and_removed_at_the_end() -> None:
    shown = Shown(terminal=True)
    with shown.display.bar:
        shown.display.begin("starting Spark …")
        shown.display.bar.refresh()
        shown.display.show(BUSY)
        shown.display.bar.refresh()
        moving = shown.text
    assert "starting Spark" in moving
    assert "3 of 8 tasks" in moving
    assert shown.text.endswith("\x1b[2K")


def test_json_reports_each_batch_and_long_batches_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Shown(terminal=True, as_json=True)
    with shown.display.bar:
        shown.display.begin("starting Spark …")
        shown.display.show(BUSY)
        shown.display.show(BUSY)
        shown.now = REPORT_EVERY
        shown.display.show(BUSY)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["batches"] for each in lines] == [2, 2]
    assert (lines[0]["doing"], lines[0]["tasks"], lines[0]["tasks_done"]) == (BUSY.doing, 8, 3)
    assert shown.text == ""


def test_progress_is_written_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_display(as_json=False) as shown:
        shown.begin("starting \x1b[2J Spark")
    assert capfd.readouterr().err == "starting \\x1b[2J Spark\n"


def test_shares_are_shown() -> None:
    assert share(Progress()) == (0, None)
    assert share(BUSY) == (3, 8)
    assert share(Progress(rows=30, before_rows=20, total_rows=99, tasks=1)) == (50, 99)
    assert words(Progress(lag_rows=7, lag_seconds=1.4)) == "0 rows done, 7 behind (1 s)"


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(rows=10, seconds=2, done=True), "10 rows in 2.0 s"),
        (Progress(rows=10, seconds=2, batches=1, lag_rows=5), "about 5 are left for the next run"),
        (Progress(rows=10, seconds=2, batches=1), "whatever is not in these is done by the next run"),
        (Progress(rows=10, before_rows=20, total_rows=99, seconds=2, batches=1), "69 are left for the next run"),
        (
            Progress(before_rows=99, total_rows=99, done=True),
            "already done: all of its 99 rows, by an earlier run. To send them again, choose another --name",
        ),
    ],
)
def test_the_last_line_reports_progress_and_lag(progress: Any, text: str) -> None:
    assert ending(progress, once=True).endswith(text)
    assert ending(progress, once=True).startswith("interrupted: 10 rows in 2.0 s, in 1 batches, are done") is not (
        progress.done
    )
