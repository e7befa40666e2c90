"""Simulated lives for twelve seconds or a thousand lives, and the command."""

from __future__ import annotations

import json

import pytest

from simulate import __main__ as command
from simulate.world import Broken, World


def test_a_thousand_lives_keep_all_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "1000", "--seconds", "12", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["broken"] == 0
    assert 0 < found["lives"] <= 1000
    assert found["starts"] >= found["lives"]
    assert 0 < found["refused"] < found["lives"]


def test_a_seed_replays_exactly() -> None:
    first, second = World(11), World(11)
    first.run()
    second.run()
    assert first.known == second.known
    assert first.shown == second.shown


def test_a_broken_promise_is_reported_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(world: World) -> None:
        raise Broken("a message was lost")

    monkeypatch.setattr(World, "run", broken)
    assert command.main(["--seeds", "3", "--first", "5", "--jobs", "1"]) == 1
    assert "seed 5 failed; replay it with: scripts/simulate --seed 5" in capsys.readouterr().err
