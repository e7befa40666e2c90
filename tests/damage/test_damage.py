"""The matrix: every single damage, and some of the pairs; ``scripts/damage`` runs all of them."""

from __future__ import annotations

import pytest

from damage import __main__ as command
from damage import matrix
from damage.journal import pristine
from penstock.journal.files.disk import Disk
from penstock.journal.repair.plan import RepairPlan, plan
from penstock.journal.repair.survey import Survey

#: Every n-th of some thousand pairs is tested.
EVERY = 307


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after kill -9"])
def test_start_verify_and_repair_agree(clean: bool) -> None:
    found = command.matrix(clean=clean, every=EVERY)
    assert found.wrong == 0
    assert found.damages > 100
    assert found.pairs > 15


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A repair that does not report what it gives up is detected."""
    before = pristine(clean=True)

    def silent(disk: Disk, found: Survey) -> RepairPlan:
        todo = plan(disk, found)
        todo.lost.clear()
        return todo

    monkeypatch.setattr(matrix, "plan", silent)
    missing = next(each for each in matrix.damages(before) if each.name == "second: missing")
    with pytest.raises(matrix.Wrong, match="lost but not reported"):
        matrix.check(before, [missing])
    assert command.main(["--case", missing.name]) == 1
    printed = capsys.readouterr()
    assert "second: missing, after a clean stop" in printed.err
    assert "2 damages, 0 pairs of them, 2 failed" in printed.out
