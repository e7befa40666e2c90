"""Fifteen brokers killed for real, in three folders; and the command around them. See ``server.crash.killing``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.crash import __main__ as command
from server.crash.killing import Broken, Round, Story
from server.crash.notes import number_of, payload


@pytest.mark.parametrize(("durability", "rounds"), [("commit", 9), ("interval", 3), ("os", 3)])
def test_killed_brokers_keep_their_promises(tmp_path: Path, durability: str, rounds: int) -> None:
    story = Story(tmp_path, 1, durability)
    figures = command.figures_of(story, list(story.run(rounds)))
    assert figures.rounds == rounds
    assert figures.killed_while_starting < rounds
    assert figures.published > figures.settled > 0


def test_a_payload_identifies_its_number() -> None:
    data = payload(2**32 + 5)
    assert number_of(data) == 2**32 + 5
    assert number_of(data[:-1]) is None
    assert number_of(bytes([data[0] ^ 1]) + data[1:]) is None


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["S 7", "D 7 4294967297"], "shown after its end"),
        (["P 7 4294967297", "D 7 4294967298"], "had number"),
        (["P 7 4294967297", "D 8 4294967297"], "was at position"),
        (["P 7 12884901888"], "was never published"),
    ],
)
def test_contradictory_notes_are_noticed(tmp_path: Path, lines: list[str], complaint: str) -> None:
    story = Story(tmp_path, 1, "commit")
    story.round = 2
    story.notes.write_text("\n".join([*lines, ""]))
    with pytest.raises(Broken, match=complaint):
        story._read_notes()


def test_lost_and_resurrected_messages_are_noticed(tmp_path: Path) -> None:
    story = Story(tmp_path, 1, "commit")
    story.confirmed = {7, 8, 9, 10}
    story.settled, story.ended = {8}, {9}
    story._check_ends({7, 10})
    with pytest.raises(Broken, match="gone, the first is 10"):
        story._check_ends({7})
    with pytest.raises(Broken, match="alive again"):
        story._check_ends({7, 8, 10})


def test_a_truncated_line_is_ignored(tmp_path: Path) -> None:
    story = Story(tmp_path, 1, "commit")
    story.round = 1
    story.notes.write_text("P 7 4294967297\nP 8 42949")
    story._read_notes()
    with story.notes.open("a") as file:
        file.write("P 9 4294967299\n")
    story._read_notes()
    assert story.confirmed == {7, 9}


def test_a_failure_is_reported_with_seed_and_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(story: Story, rounds: int) -> Iterator[Round]:
        story.round = 3
        raise Broken("a message was lost")

    monkeypatch.setattr(Story, "run", broken)
    assert command.main(["--seed", "5", "--rounds", "9", "--folder", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "seed 5, round 3, commit failed" in printed.err
    assert "a message was lost" in printed.err
    assert command.main(["--seed", "5", "--rounds", "9", "--folder", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {**command.Figures()._asdict(), "broken": 1}
