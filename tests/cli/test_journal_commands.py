"""``penstock journal``: on real folders, with every kind of damage, and used wrongly."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner, Result

from penstock.cli.event_dump import positions
from penstock.cli.main import main
from penstock.cli.output import amount, escape, moment
from penstock.core.properties import Properties
from penstock.journal import open_journal
from penstock.journal.contract import GAP
from penstock.journal.errors import DataLoss, JournalDamaged, JournalRefused
from penstock.journal.files.follower import JournalReader
from penstock.journal.repair.survey import survey
from support.folders import Life, QuickDisk


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["journal", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_json(*arguments: object) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A folder of five segments with a checkpoint in the fourth, left by a broker that was killed."""
    life = Life(tmp_path_factory.mktemp("lived") / "data").run(600)
    life.checkpoint()
    life.run(200)
    life.kill()
    return life


@pytest.fixture
def folder(lived: Life, tmp_path: Path) -> Path:
    shutil.copytree(lived.folder, tmp_path / "data")
    return tmp_path / "data"


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


DAMAGES: dict[str, tuple[Callable[[Path], None], bool]] = {
    # how the folder is damaged, and whether that loses events
    "a bad block in the middle": (lambda folder: flip(segments(folder)[1], 5000), True),
    "a bad first block": (lambda folder: flip(segments(folder)[1], 200), True),
    "a bad header": (lambda folder: flip(segments(folder)[1], 20), False),
    "a bad header of the first": (lambda folder: flip(segments(folder)[0], 20), False),
    "a bad index": (lambda folder: flip(segments(folder)[1], segments(folder)[1].stat().st_size - 70), False),
    "a bad footer": (lambda folder: flip(segments(folder)[1], segments(folder)[1].stat().st_size - 10), False),
    "a segment cut short": (lambda folder: cut(segments(folder)[2], 9000), True),
    "an empty segment": (lambda folder: cut(segments(folder)[2], 0), True),
    "a missing segment": (lambda folder: segments(folder)[2].unlink(), True),
    "a missing first segment": (lambda folder: segments(folder)[0].unlink(), True),
    "a missing last segment": (lambda folder: segments(folder)[-1].unlink(), True),
    "a bad block in the last segment": (lambda folder: flip(segments(folder)[-1], 3000), True),
    "a last segment cut short": (lambda folder: cut(segments(folder)[-1], 6000), True),
    "swapped segments": (lambda folder: swap(*segments(folder)[1:3]), False),
    "a bad checkpoint": (lambda folder: flip(next(folder.glob("*.ckpt")), 300), False),
    "a bad penstock.json": (lambda folder: flip(folder / "penstock.json", 30), False),
    "a missing penstock.json": (lambda folder: (folder / "penstock.json").unlink(), False),
}


def swap(one: Path, other: Path) -> None:
    both = one.read_bytes(), other.read_bytes()
    other.write_bytes(both[0])
    one.write_bytes(both[1])


def live_messages(folder: Path, lived: Life) -> dict[int, bytes]:
    """Start a broker and read every live message; its own counts must be consistent."""
    life = Life.__new__(Life)
    life.__dict__.update(lived.__dict__, folder=folder, published={})
    life.restart()
    engine = life.opened.engine
    engine.broker.check()
    found: dict[int, bytes] = {}
    for queue in engine.broker.queues.values():
        at = [item.position for lane in queue.ready.lanes.values() for item in lane]
        at += [item.position for item in (*queue.delayed, *queue.dead)]
        found |= zip(at, (message.payload for message in engine.messages(at)), strict=True)
    life.run(50)
    life.stop()
    life.restart()  # from its own checkpoint
    life.opened.engine.log.close()
    return found


class TestDamage:
    @pytest.mark.parametrize("name", DAMAGES)
    def test_verify_reports_damage_and_changes_nothing(self, folder: Path, name: str) -> None:
        DAMAGES[name][0](folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        result = run("verify", folder)
        assert result.exit_code == 1, result.output
        assert f"penstock journal repair {folder}" in result.output
        report = run_json("verify", folder)
        assert not report["sound"]
        assert any(problem["lost"] for problem in report["problems"]) == DAMAGES[name][1]
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    @pytest.mark.parametrize("name", DAMAGES)
    def test_repair_keeps_all_sound_parts_and_a_broker_starts(self, folder: Path, lived: Life, name: str) -> None:
        damage, loses = DAMAGES[name]
        damage(folder)
        report = run_json("repair", "--yes", folder)
        assert (report["changed"], report["sound"], bool(report["lost"])) == (True, True, loses)
        assert run("verify", folder).exit_code == 0
        assert all((folder / kept).exists() for kept in report["kept"])
        shown = {
            event["position"]: base64.b64decode(event["payload"])
            for event in map(
                json.loads, run("dump", "--json", "--payload", "--kind", "published", folder).stdout.splitlines()
            )
        }
        lost = {at for low, high in report["lost"] for at in range(low, high)}
        kept = {at: row.get("payload", b"") for at, row in lived.published.items() if at not in lost}
        assert shown == kept  # exactly the events that are not reported lost
        alive = live_messages(folder, lived)
        assert alive.items() <= kept.items()
        if not loses:
            shutil.rmtree(folder)
            shutil.copytree(lived.folder, folder)
            assert alive == live_messages(folder, lived)

    def test_a_reader_is_notified_of_losses_in_a_repair(self, folder: Path) -> None:
        flip(segments(folder)[1], 5000)
        ((low, high),) = run_json("repair", "--yes", folder)["lost"]
        reader = JournalReader(folder)
        with pytest.raises(DataLoss, match="a repair could not save them") as raised:
            reader.read(1)
        assert raised.value.lost == (low, high)
        assert [each.lost for each in reader.losses(1, low)] == []
        assert [each.lost for each in reader.losses(high, reader.latest)] == []

    def test_positions_are_not_used_again_when_the_end_is_lost(self, folder: Path, lived: Life) -> None:
        before = JournalReader(folder).latest
        segments(folder)[-1].unlink()
        run("repair", "--yes", folder)
        assert JournalReader(folder).latest > before + 2**31

    def test_two_damages_at_once_and_a_second_repair(self, folder: Path) -> None:
        flip(segments(folder)[1], 5000)
        flip(segments(folder)[1], 15000)
        assert len(run_json("repair", "--yes", folder)["lost"]) == 2
        flip(segments(folder)[2], 3000)
        run("repair", "--yes", folder)
        flip(segments(folder)[0], 5000)
        assert run("repair", "--yes", folder).exit_code == 0
        assert run("verify", folder).exit_code == 0
        assert run("repair", "--yes", folder).stdout.startswith("Nothing had to be changed.")

    def test_a_junk_last_segment_is_not_deleted_and_costs_nothing(self, folder: Path, lived: Life) -> None:
        junk = folder / "ffffffffffffff00.seg"
        junk.write_bytes(b"not a segment" * 99)
        with pytest.raises(JournalRefused, match="nothing in it is a block of a journal"):
            live_messages(folder, lived)
        assert junk.exists()
        report = run_json("repair", "--yes", folder)
        assert (report["lost"], report["sound"], report["kept"]) == ([], True, [f"{junk.name}.damaged"])
        assert live_messages(folder, lived)

    def test_only_the_identity_is_left(self, folder: Path) -> None:
        """A start recommends the repair, and succeeds after it."""
        for path in [*segments(folder), *folder.glob("*.ckpt"), folder / "tail"]:
            path.unlink()
        with pytest.raises(JournalDamaged, match=r"no segment of it is left.*penstock journal repair"):
            open_journal(str(folder)).own()
        assert "Lost: all positions from 1 on" in run("repair", "--yes", folder).output
        assert run("repair", "--yes", folder).output.startswith("Nothing had to be changed.")
        owned = open_journal(str(folder)).own()
        owned.begin()
        assert owned.log.end > GAP
        owned.close()

    def test_no_segments_left(self, folder: Path, lived: Life) -> None:
        end = JournalReader(folder).latest
        for path in segments(folder):
            path.unlink()
        assert not run_json("verify", folder)["startable"]
        report = run_json("repair", "--yes", folder)
        assert (report["lost"], report["sound"]) == ([[1, end]], True)
        assert live_messages(folder, lived) == {}

    def test_a_missing_oldest_segment_comes_back_with_its_file(self, folder: Path, lived: Life, tmp_path: Path) -> None:
        oldest = segments(folder)[0]
        oldest.rename(tmp_path / "aside")
        for path in folder.glob("*.ckpt"):
            path.unlink()
        with pytest.raises(JournalDamaged, match="the segments before this one are missing"):
            live_messages(folder, lived)
        (tmp_path / "aside").rename(oldest)
        shutil.copytree(lived.folder, tmp_path / "whole")
        assert live_messages(folder, lived) == live_messages(tmp_path / "whole", lived)

    def test_a_checkpoint_that_knows_the_state_is_kept(self, folder: Path, lived: Life, tmp_path: Path) -> None:
        """Settled messages do not come back then; only the payloads in the damaged part are lost."""
        shutil.copytree(folder, tmp_path / "whole")
        whole = live_messages(tmp_path / "whole", lived)
        flip(segments(folder)[0], 5000)
        ((low, high),) = run_json("repair", "--yes", folder)["lost"]
        assert list(folder.glob("*.ckpt"))
        expected = {at: payload for at, payload in whole.items() if not low <= at < high}
        assert live_messages(folder, lived) == expected
        dropped = run("dump", folder, "--kind", "dropped", "--json").stdout.splitlines()
        given_up = [event["message"] for event in map(json.loads, dropped) if event.get("reason") == "damaged"]
        assert sorted(given_up) == sorted(whole.keys() - expected.keys())

    def test_a_reader_that_meets_damage_learns_the_positions(self, folder: Path) -> None:
        flip(segments(folder)[1], 5000)
        ((low, high),) = [problem["lost"] for problem in run_json("verify", folder)["problems"]]
        with pytest.raises(JournalDamaged) as raised:
            for _ in JournalReader(folder).read(1):
                pass
        assert raised.value.lost == (low, high)

    def test_a_foreign_segment_is_put_aside(self, folder: Path, tmp_path: Path) -> None:
        other = Life(tmp_path / "other", 9).run(3)
        other.stop()
        shutil.copy(segments(tmp_path / "other")[0], folder / "00000000000fffff.seg")
        assert "belongs to another journal" in run("verify", folder).output
        report = run_json("repair", "--yes", folder)
        assert "00000000000fffff.seg.damaged" in report["kept"]
        assert (report["lost"], report["sound"]) == ([], True)

    def test_an_interrupted_repair_can_be_done_again(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stopped before every single rename."""
        flip(segments(folder)[1], 5000)
        expected: list[str] | None = None
        for stop_at in range(1, 20):
            copy = folder.parent / f"copy{stop_at}"
            shutil.copytree(folder, copy)
            with monkeypatch.context() as patch:
                calls = iter(range(1, 1000))

                def failing(disk: Any, old: str, new: str, left: Any = calls, stop: int = stop_at) -> None:
                    if next(left) == stop:
                        raise OSError("power failure")
                    os.rename(disk._folder / old, disk._folder / new)

                patch.setattr("penstock.journal.files.disk.RealDisk.rename", failing)
                first = run("repair", "--yes", copy)
            assert first.exit_code in (0, 1)
            if first.exit_code == 1:
                assert survey(QuickDisk(copy, read_only=True)).problems
            assert run("repair", "--yes", copy).exit_code == 0
            assert run("verify", copy).exit_code == 0
            found = sorted(path.name for path in segments(copy))
            assert expected in (None, found)
            expected = found
            if first.exit_code == 0:
                break
        assert stop_at > 3


class TestVerify:
    def test_a_sound_journal(self, folder: Path) -> None:
        result = run("verify", folder)
        assert result.exit_code == 0
        assert f"is sound: {len(segments(folder))} segments" in result.output

    def test_an_unfinished_write_is_no_damage(self, folder: Path) -> None:
        last = segments(folder)[-1]
        raw = last.read_bytes()
        end = len(raw.rstrip(b"\0")) + 8 & ~7
        last.write_bytes(raw[:end] + b"PNBK half a block" + raw[end + 17 :])
        report = run_json("verify", folder)
        assert report["sound"]
        assert "an unfinished write" in report["notes"][0]

    def test_while_a_broker_writes(self, tmp_path: Path) -> None:
        life = Life(tmp_path / "data", 5)
        for _ in range(20):
            life.run(20)
            assert run("verify", life.folder).exit_code == 0


class TestInfo:
    def test_its_report(self, folder: Path, lived: Life) -> None:
        report = run_json("info", folder)
        assert report["latest"] == lived.opened.engine.log.end
        assert sum(queue["published"] for queue in report["queues"]) == len(lived.published)
        states = [segment["state"] for segment in report["segments"]]
        assert states == ["finished"] * (len(segments(folder)) - 1) + ["growing"]
        assert len(report["checkpoints"]) == 1
        text = run("info", folder).output
        assert report["identity"] in text
        assert "default/q1" in text


class TestDump:
    def test_filters(self, folder: Path, lived: Life) -> None:
        def dump(*options: object) -> list[Any]:
            return [json.loads(line) for line in run("dump", folder, "--json", *options).stdout.splitlines()]

        whole = dump()
        assert [event["position"] for event in whole] == list(range(1, lived.opened.engine.log.end))
        assert dump("--kind", "dead") == [event for event in whole if event["kind"] == "dead"]
        assert dump("--queue", "default/q?") == [e for e in whole if e.get("queue", "").startswith("default/q")]
        assert dump("--queue", "*/q1") == [e for e in whole if e.get("queue") == "default/q1"]
        assert dump("--queue", "default/q[01]") == []  # brackets match themselves, as in every other pattern
        assert dump("--from", 20, "--to", 30) == whole[19:29]
        assert dump("--limit", 7) == whole[:7]
        at = whole[500]["at"]
        first = next(index for index, event in enumerate(whole) if event["at"] >= at)
        assert dump("--from", at) == whole[first:]

    def test_data_of_peers_is_escaped_on_a_terminal(self, tmp_path: Path) -> None:
        life = Life(tmp_path / "data", 5)
        broker, now = life.opened.engine.broker, life.workload.now
        queue = broker.create_queue("default", "evil\x1b[31m\n", now)
        peer = broker.connect(77, b"sspq \x1b]0;x\x07")
        broker.publish(peer, queue, ["\x1b[2J\r\u202e\x9b".encode() + b"\xff"], now, Properties(correlation_id=b"\x1b"))
        life.commit()
        for command in (["dump", "--payload"], ["dump", "--json", "--payload"], ["info"], ["info", "--json"]):
            out = run(*command, life.folder).stdout
            assert all(char.isprintable() or char == "\n" for char in out), command
        assert r'payload="\x1b[2J\r\u202e\x9b\xff"' in run("dump", "--payload", life.folder).stdout


class TestWrongUse:
    @pytest.mark.parametrize("command", ["verify", "info", "dump", "repair"])
    def test_no_such_folder(self, command: str, tmp_path: Path) -> None:
        result = run(command, tmp_path / "nothing")
        assert (result.exit_code, (tmp_path / "nothing").exists()) == (2, False)
        assert "does not exist" in result.output

    @pytest.mark.parametrize("command", ["verify", "info", "dump", "repair"])
    def test_not_a_journal(self, command: str, tmp_path: Path) -> None:
        result = run(command, tmp_path)
        assert result.exit_code == 3
        assert "is not a journal" in result.output
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("command", ["verify", "info", "dump", "repair"])
    def test_another_format(self, command: str, folder: Path) -> None:
        for path in segments(folder):
            raw = bytearray(path.read_bytes())
            raw[4] = 9
            raw[60:64] = crc32(raw[:60]).to_bytes(4, "little")
            path.write_bytes(raw)
        result = run(command, folder)
        assert result.exit_code == 3
        assert "written in format 9: this Penstock reads format 2" in result.output

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (["--from", "yesterday"], "'yesterday' is not a position, a time such as"),
            (["--kind", "lost"], "'lost' is not one of"),
            (["--limit", "0"], "0 is not in the range x>=1"),
        ],
    )
    def test_options_of_dump(self, folder: Path, options: list[str], text: str) -> None:
        result = run("dump", folder, *options)
        assert result.exit_code == 2
        assert text in result.output

    def test_repair_while_a_broker_runs(self, tmp_path: Path) -> None:
        life = Life(tmp_path / "data", 5).run(10)
        result = run("repair", "--yes", life.folder)
        assert result.exit_code == 3
        assert "in use by another broker" in result.output

    def test_repair_asks(self, folder: Path) -> None:
        flip(segments(folder)[1], 5000)
        result = run("repair", folder)
        assert result.exit_code == 2
        assert "confirm it with --yes" in result.output
        assert not list(folder.glob("*.damaged"))


class TestTheCommandItself:
    @pytest.mark.parametrize(
        "arguments", [[], ["journal"], *(["journal", c] for c in ("verify", "info", "dump", "repair"))]
    )
    def test_help_has_examples_and_exit_codes(self, arguments: list[str]) -> None:
        text = CliRunner().invoke(main, [*arguments, "--help"]).output
        assert "Examples:" in text or arguments == ["journal"]
        assert "Exit codes:" in text or not arguments

    def test_as_a_module(self, folder: Path) -> None:
        command = [sys.executable, "-m", "penstock"]
        assert subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout.startswith(
            "penstock "
        )
        pipe = subprocess.Popen([*command, "journal", "dump", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert pipe.stdout is not None
        assert pipe.stderr is not None
        pipe.stdout.readline()
        pipe.stdout.close()  # like `| head`
        assert pipe.stderr.read() == b""
        pipe.stderr.close()
        assert pipe.wait() == 141


def test_formatting() -> None:
    assert escape(b"ab\n\xff\x1b") == r"ab\n\xff\x1b"
    assert moment(0) == "1970-01-01T00:00:00.000000Z"
    assert moment(-1) == "1969-12-31T23:59:59.999999Z"
    assert moment(2**62) == str(2**62)
    assert [amount(n) for n in (0, 1023, 1024, 5 * 2**20, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3.0 TiB",
    ]
    assert positions((3, 4)) == "position 3"
    assert positions((3, 3 + 2**32)) == "all positions from 3 on"
    assert positions((3, 9)) == "positions 3 to 8 (6 events)"
