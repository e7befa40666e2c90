"""docs/spark.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.spark import schemas
from penstock.spark.options import OPTIONS, Settings

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: rows of cells, without the header."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in each.splitlines()[2:]] for each in found]


def test_every_option_is_there() -> None:
    rows = tables(section("Options"))[0]
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(names) == sorted(option.name for option in OPTIONS)


@pytest.mark.parametrize(
    ("option", "default"),
    [("endpoint", "endpoint"), ("view", "view"), ("startingPosition", "starting_position"), ("mode", "mode")],
)
def test_defaults(option: str, default: str) -> None:
    row = next(row for row in tables(section("Options"))[0] if f"`{option}`" in row[0])
    assert row[2].strip("`") == getattr(Settings(), default)


def test_schemas() -> None:
    messages, more, events = ([(row[0].strip("`"), row[1]) for row in table] for table in tables(section("Tables")))
    for view, shown in {"messages": messages, "live": messages + more, "events": events}.items():
        fields = schemas.spark_schema(view).fields
        assert shown == [(field.name, field.dataType.simpleString()) for field in fields]
