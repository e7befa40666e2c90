"""The line of each key of a TOML file, which Python's parser does not tell.

It is found by giving that parser one statement after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.endpoint import bounded_toml
from penstock.server.options.option_tree import ROOT, OptionPath


def lines_of(text: str) -> dict[OptionPath, int]:
    """The line at which each key is set and each table begins. The text must be TOML."""
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
