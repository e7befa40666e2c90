"""The line of each key of a TOML file, which Python's parser does not report.

Each statement is parsed alone; the statements' line numbers are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.companions import bounded_toml
from penstock.server.options.option_tree import ROOT, OptionPath


def lines_of(text: str) -> dict[OptionPath, int]:
    """The line at which each key is set and each table begins. The text must be valid TOML."""
    found: dict[OptionPath, int] = {}
    counts: dict[OptionPath, int] = {}
    inside = ROOT
    for number, statement in bounded_toml.statements(text):
        table = bounded_toml.parse(statement)
        if statement.lstrip().startswith("["):
            array, inside = _opened(table, counts)
            found |= {array: number, inside: number}
        else:
            found |= {OptionPath((*inside, *path)): number for path in _keys(table, ROOT)}
    return found


def _opened(table: Any, counts: dict[OptionPath, int]) -> tuple[OptionPath, OptionPath]:
    """The path of a table header, and the path of the keys below it: in an array of tables, its last table."""
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
