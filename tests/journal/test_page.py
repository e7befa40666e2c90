"""docs/journal.md names every column, kind and reason as the schema has it."""

from __future__ import annotations

from pathlib import Path

from penstock.schema import COLUMNS, Kind, Reason

PAGE = (Path(__file__).parents[2] / "docs" / "journal.md").read_text()
TYPES = {"B": "u8", "H": "u16", "I": "u32", "q": "i64", "Q": "u64", "binary": "binary"}


def test_the_columns() -> None:
    for column in COLUMNS:
        default = "" if column.type == "binary" else column.default
        assert f"| {column.id} | `{column.name}` | {column.rows.value} | {TYPES[column.type]} | {default} |" in PAGE


def test_kinds_and_reasons() -> None:
    for each in (*Kind, *Reason):
        assert f"| {each.value} | `{each.name}` |" in PAGE
