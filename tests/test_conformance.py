"""docs/protocols/conformance.md names an existing place and an existing test for every statement."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "protocols" / "conformance.md").read_text(encoding="utf-8")


class Row(NamedTuple):
    number: int
    statement: str
    place: str
    shown: str

    @property
    def references(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.shown)


def rows() -> list[Row]:
    table = re.findall(r"^\| (\d+) \| (.+) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    return [Row(int(number), *rest) for number, *rest in table]


def names(file: Path) -> set[str]:
    """The tests of a file, those of its classes too."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for group in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        functions |= {f"{group.name}::{node.name}" for node in group.body if isinstance(node, ast.FunctionDef)}
    return {name for name in functions if name.rpartition("::")[2].startswith("test_")}


def test_every_statement_is_there_once() -> None:
    statements = rows()
    assert [row.number for row in statements] == list(range(1, len(statements) + 1))
    assert f"{len(statements)} statements." in PAGE
    assert len(statements) == len([line for line in PAGE.splitlines() if re.match(r"\| \d", line)])


def test_every_place_exists() -> None:
    for row in rows():
        if row.place == "–":
            assert row.shown.startswith("not so: "), f"{row.number} has neither a place nor a reason for its absence"
        else:
            assert (ROOT / "src" / "penstock" / row.place.strip("`")).is_file(), row.place


def test_every_test_exists() -> None:
    tests = {f"{file.stem}::{name}" for file in ROOT.glob("tests/**/test_*.py") for name in names(file)}
    vectors = [
        entry["name"]
        for file in ROOT.glob("tests/vectors/*.json")
        for section in ("valid", "rejected")
        for entry in json.loads(file.read_text(encoding="utf-8"))[section]
    ]
    for row in rows():
        known = 0
        for reference in row.references:
            if reference.startswith("vector: "):
                assert any(name.startswith(reference[8:]) for name in vectors), f"{row.number}: {reference}"
                known += 1
            elif "::" in reference:
                assert reference in tests, f"{row.number}: there is no test {reference}"
                known += 1
        assert known or row.place == "–", f"{row.number} has no test"
