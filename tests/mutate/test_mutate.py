"""The command's arguments, and the existence of the tests it names. ``scripts/mutate`` runs real mutants."""

from __future__ import annotations

import pytest

from mutate import __main__ as command
from mutate.targets import (
    FIRST,
    MODULES,
    SECOND,
    SOURCE,
    Selection,
    check,
    equivalents,
    is_equivalent,
    patterns,
    selection_for,
)


@pytest.mark.parametrize("table", [FIRST, SECOND])
def test_named_files_exist(table: dict[str, Selection]) -> None:
    for target, tests in table.items():
        assert check(target) == target
        assert all((SOURCE.parents[1] / "tests" / place).exists() for place in tests.places), target


def test_every_module_has_tests() -> None:
    assert set(MODULES) <= FIRST.keys()
    assert set(MODULES) <= SECOND.keys()


def test_the_longest_matching_name_decides() -> None:
    assert selection_for("wire/kokaq/decode", FIRST) == FIRST["wire/kokaq"]
    assert selection_for("wire/stream", FIRST) == FIRST["wire"]
    assert selection_for("journal/format/block", SECOND) == SECOND["journal/format"]
    assert selection_for("core/queue", SECOND) == SECOND["core"]


def test_a_target_is_a_folder_or_a_module() -> None:
    assert patterns(check("src/penstock/journal/format/")) == ["src/penstock/journal/format/*"]
    assert patterns(check("journal/format/block.py")) == ["src/penstock/journal/format/block.py"]


def test_listed_equivalents_are_recognised() -> None:
    known = equivalents()
    name, diff = (
        "penstock.wire.sspq.decode.xǁDecoderǁ_run__mutmut_7",
        "--- a\n+++ b\n-    batch_head = -1\n+    batch_head = None",
    )
    assert is_equivalent(name, diff, known)
    assert not is_equivalent(name, diff.replace("None", "0"), known)
    assert not is_equivalent(name.replace("_run", "_message"), diff, known)
    assert not is_equivalent(name, "", known)
    parts = "--- a\n+++ b\n+    if sizes and sizes[0] < READY_SIZES and sizes.count(None) == len(sizes):"
    assert is_equivalent("penstock.wire.sspq.encode.x__send_parts__mutmut_15", parts, known)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wire/smtp"], "'wire/smtp' is none of core, journal, wire, nor a folder or a module of one"),
        (["server"], "'server' is none of core, journal, wire"),
        (["wire", "--sample", "0"], "--sample must be at least 1, and is 0"),
        (["--quick"], "unrecognized arguments: --quick"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_without_mutmut_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main(["wire"]) == 3
    assert "mutmut is not installed" in capsys.readouterr().err
