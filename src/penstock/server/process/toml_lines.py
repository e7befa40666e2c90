"""The line of each key of a TOML file, which Python's parser does not tell.

It is found by giving that parser one statement after the other: a statement is as many lines as it takes until it
parses.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from penstock.server.process.option_tree import ROOT, OptionPath


def lines_of(text: str) -> dict[OptionPath, int]:
    """The line at which each key is set and each table begins. The text must be TOML."""
    found: dict[OptionPath, int] = {}
    counts: dict[OptionPath, int] = {}
    inside = ROOT
    for number, statement, table in _statements(text):
        if statement.lstrip().startswith("["):
            array, inside = _opened(table, counts)
            found |= {array: number, inside: number}
        else:
            found |= {OptionPath((*inside, *path)): number for path in _keys(table, ROOT)}
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each statement with the number of its first line, and the table that it alone is."""
    statement, began = "", 1
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        statement, began = (f"{statement}\n{line}", began) if statement else (line, number)
        try:
            table = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        yield began, statement, table
        statement = ""


def _opened(table: Any, counts: dict[OptionPath, int]) -> tuple[OptionPath, OptionPath]:
    """The path that a header names, and that of what follows it: in an array of tables, its last one."""
    path = inside = ROOT
    while isinstance(table, dict) and table:
        [(key, table)] = table.items()
        path = inside / key
        if isinstance(table, list):
            counts[path] = counts.get(path, -1) + 1
        inside = path / counts[path] if path in counts else path
    return path, inside


def _keys(table: dict[str, Any], path: OptionPath) -> Iterator[OptionPath]:
    for key, value in table.items():
        yield path / key
        if isinstance(value, dict):
            yield from _keys(value, path / key)
