"""The fuzzer itself: its oracle, its command, and a short run of every target."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fuzz import run
from fuzz.check import FindingError, checker, pieces, targets
from penstock.wire import sspq
from support.protocols import SSPQ
from support.vectors import load

#: Enough to run every seed and some mutations in a second or two.
SHORT_RUN = 6_000

needs_atheris = pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not installed; it has wheels for a few Python versions only"
)


class TestCheck:
    @pytest.mark.parametrize("name", targets())
    def test_every_vector_passes(self, name: str) -> None:
        check = checker(*targets()[name])
        for vector in load("valid") + load("rejected"):
            check(vector.data)

    @pytest.mark.parametrize("data", [b"", b"a", b"ab", bytes(range(200))])
    def test_pieces_are_the_whole(self, data: bytes) -> None:
        assert b"".join(pieces(data)) == data

    def test_a_decoder_sensitive_to_splits_is_found(self) -> None:
        class Forgetful(sspq.Decoder):
            def feed(self, data: bytes) -> list[sspq.SspqFrame]:
                return super().feed(data) if len(data) > 8 else []

        forgetful = replace(SSPQ, decoder=lambda sender, options: Forgetful(**options))
        with pytest.raises(FindingError, match="bytes, but is at byte"):
            checker(forgetful, "client")(sspq.encode([sspq.Receive()] * 2))

    def test_an_encoder_that_changes_a_frame_is_found(self) -> None:
        lossy = replace(SSPQ, encode=lambda sender, frames, options: sspq.encode([sspq.Receive()]))
        with pytest.raises(FindingError, match="encoded again"):
            checker(lossy, "client")(sspq.encode([sspq.Confirm()]))

    def test_a_decoder_that_holds_too_much_is_found(self) -> None:
        greedy = replace(SSPQ, decoder=lambda sender, options: sspq.Decoder(max_payload=2**32))
        with pytest.raises(FindingError, match="over the limit"):
            checker(greedy, "client")(bytes.fromhex("55995e00ffffffff") + bytes(5000))


def command(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as scripts/fuzz does, from a separate folder."""
    path = os.pathsep.join(str(run.ROOT / each) for each in ("src", "tests"))
    return subprocess.run(
        [sys.executable, "-m", "fuzz.run", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


class TestCommand:
    @needs_atheris
    @pytest.mark.parametrize("name", targets())
    def test_a_short_run_finds_nothing(self, name: str, tmp_path: Path) -> None:
        done = command(name, "--runs", str(SHORT_RUN), "--seed", "1", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{name}: {SHORT_RUN:,} executions in" in done.stdout
        assert "0 findings" in done.stdout
        assert any((tmp_path / ".fuzz" / name / "seeds").iterdir())

    @needs_atheris
    def test_a_finding_is_shown_and_can_be_replayed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        child = tmp_path / "broken.py"
        child.write_text(
            "from penstock.wire import sspq\n"
            "sound = sspq.Decoder._run\n"
            "sspq.Decoder._run = lambda *all: sound(*all) + 0 // (len(all[1]) - all[2] - 8)\n"
            "from fuzz.wire import main\n"
            "main()\n"
        )
        monkeypatch.setattr(run, "CHILD", child)
        assert run.main(["sspq", "--runs", "5000", "--folder", str(tmp_path)]) == 1
        shown = capsys.readouterr().out
        assert "1 FINDING: ZeroDivisionError" in shown
        finding = next((tmp_path / "sspq" / "findings").iterdir())
        assert f"input (hex): {finding.read_bytes().hex()}" in shown
        assert f"replay with: scripts/fuzz sspq --replay {finding}" in shown
        assert run.main(["sspq", "--replay", str(finding)]) == 0, "only the broken decoder fails"

    def test_replay_shows_the_error_in_full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(self: sspq.Decoder, *rest: Any) -> int:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(sspq.Decoder, "_run", broken)
        finding = tmp_path / "finding"
        finding.write_bytes(b"x")
        with pytest.raises(ZeroDivisionError, match="planted"):
            run.main(["sspq", "--replay", str(finding)])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nonsense"], "there is no target 'nonsense'; choose from sspq"),
            (["sspq", "--runs", "0"], "a whole number above 0 is needed, not '0'"),
            (["sspq", "--seconds", "1_0"], "a whole number above 0 is needed, not '1_0'"),
            (["--replay", "x"], "--replay needs exactly one TARGET"),
            (["sspq", "--replay", "missing"], "there is no file missing"),
        ],
    )
    def test_wrong_use_is_explained(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as stopped:
            run.main(arguments)
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err

    def test_without_atheris_it_says_so(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(run, "find_spec", lambda name: None)
        assert run.main(["sspq"]) == 3
        assert "atheris is not installed" in capsys.readouterr().err
