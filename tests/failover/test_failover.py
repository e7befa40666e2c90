"""A few rounds of ``scripts/failover``, and proof that it detects losses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from failover import __main__ as command
from failover.faults import FAULTS
from failover.load import Shown
from failover.story import Figures, Story

CHOSEN = (
    "owner killed",
    "owner frozen past its lease",
    "primary killed, standby promoted",
    "slow link",
    "backlog between large messages",
)


def test_nothing_is_lost_or_comes_back_after_any_fault(tmp_path: Path) -> None:
    story = Story(tmp_path, 1, faults=[fault for fault in FAULTS if fault.name in CHOSEN], lease=1.0)
    assert len(list(story.run(len(CHOSEN)))) == len(CHOSEN)
    found = story.figures
    assert story.wrong == []
    assert (found.lost, found.doubled, found.came_back, found.left) == (0, 0, 0, 0)
    assert found.take_overs >= 3
    assert 0 < found.confirmed < found.published == found.settled <= found.shown
    assert len(story.times) == 3


def test_losses_of_a_restore_are_accepted_before_a_broker_serves(tmp_path: Path) -> None:
    story = Story(tmp_path, 2, faults=[fault for fault in FAULTS if fault.name == "database restored"], lease=1.0)
    assert len(list(story.run(1))) == 1
    assert story.wrong == []
    assert story.figures.confirmed > 0


class Rigged(Story):
    """A story with a journal made up by the test."""

    positions: dict[str, int]
    ends: dict[int, float]

    def _positions(self) -> dict[str, int]:
        return self.positions

    def _ends(self) -> dict[int, float]:
        return self.ends

    def _published(self, chosen: object, columns: list[str]) -> list[dict[str, object]]:
        return []


def test_failures_are_counted(tmp_path: Path) -> None:
    story = Rigged(tmp_path, 1)
    now = time.time()
    story.positions = {"jobs 1": 1, "jobs 2": 2, "jobs 3": 3, "in 1": 4}
    story.ends = {1: now, 2: now}
    load = story._load
    load.confirmed = {"jobs 1", "jobs 4"}
    load.shown = [Shown("jobs 1", now - 1, "a"), Shown("jobs 2", now + 5, "b"), Shown("jobs 5", now, "b")]
    story._check()
    assert story.figures == Figures(confirmed=2, published=4, shown=3, settled=2, lost=2, came_back=1, left=1)
    assert len(story.wrong) == 4


def test_a_failure_is_reported_with_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(story: Story, rounds: int) -> list[str]:
        story._wrong("lost", "jobs 7 was promised but is not in the journal")
        return ["round 0: nothing"]

    monkeypatch.setattr(Story, "run", broken)
    assert command.main(["--seed", "5", "--rounds", "1", "--folder", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "seed 5 failed" in captured.err
    assert "lost: jobs 7 was promised" in captured.err
    assert "lost=1" in captured.out


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(SystemExit, match="'nonsense' is in no fault's name; they are:\n  owner killed"):
        command.main(["--only", "nonsense"])
