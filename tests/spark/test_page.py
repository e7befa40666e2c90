"""docs/spark.md agrees with the code."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from penstock.spark import schemas
from penstock.spark.options import OPTIONS, SourceSettings

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: rows of cells, without the header."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in each.splitlines()[2:]] for each in found]


def test_every_option_is_documented() -> None:
    rows = tables(section("Options"))[0]
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(names) == sorted(option.name for option in OPTIONS)


@pytest.mark.parametrize(
    ("option", "default"),
    [("endpoint", "endpoint"), ("view", "view"), ("startingPosition", "starting_position"), ("mode", "mode")],
)
def test_defaults(option: str, default: str) -> None:
    row = next(row for row in tables(section("Options"))[0] if f"`{option}`" in row[0])
    assert row[2].strip("`") == getattr(SourceSettings(), default)


def test_schemas() -> None:
    messages, more, events = ([(row[0].strip("`"), row[1]) for row in table] for table in tables(section("Tables")))
    for view, shown in {"messages": messages, "live": messages + more, "events": events}.items():
        fields = schemas.spark_schema(view).fields
        assert shown == [(field.name, field.dataType.simpleString()) for field in fields]


PIPELINES = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", tables(PIPELINES.split("\n## As a library\n")[1])[0], ids=lambda row: str(row[0]))
def test_functions_of_pipelines_are_in_the_documented_module(row: list[str]) -> None:
    place, name, names = re.fullmatch(r"`([\w.]+)\.(\w+)\(([\w, ]+)\)`", row[0]).groups()  # type: ignore[union-attr]
    function = getattr(importlib.import_module(f"penstock.spark.pipelines.{place}"), name)
    assert list(inspect.signature(function).parameters) == names.split(", ")
