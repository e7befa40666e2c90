"""The matrix: every damage alone, and some of the pairs; ``scripts/damage`` does all of them."""

from __future__ import annotations

import pytest

from damage import __main__ as command
from damage import matrix
from damage.journal import pristine

#: Of some thousand pairs, so many are passed over.
EVERY = 97


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after kill -9"])
def test_start_verify_and_repair_agree(clean: bool) -> None:
    wrong: dict[str, str] = {}
    for name in command.cases(clean=clean, every=EVERY):
        try:
            command.run(name, clean=clean)
        except Exception as error:  # all of them are told, not only the first
            wrong[name] = repr(error)
    assert not wrong


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A repair that does not tell what it gives up is found out."""
    before = pristine(clean=True)
    silent = matrix.plan

    def plan(disk: object, found: object) -> object:
        todo = silent(disk, found)  # type: ignore[arg-type]
        todo.lost.clear()
        return todo

    monkeypatch.setattr(matrix, "plan", plan)
    missing = next(each for each in matrix.damages(before) if each.name == "second: missing")
    with pytest.raises(matrix.Wrong, match="lost without a word"):
        matrix.check(before, [missing])
    assert command.main(["--case", missing.name]) == 1
    assert "second: missing, after a clean stop" in capsys.readouterr().out
