"""The shape of the code: small functions, classes and files, and plain prose.

Read from the source, like the arrows of ``test_imports``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

MOST_LINES_OF_A_FUNCTION, MOST_METHODS, MOST_LINES_OF_A_FILE = 70, 20, 700

#: Classes that exceed the limit because their contract has more methods.
CONTRACTS: dict[str, str] = {
    "AsyncClient": "the client's public API",
    "Client": "the client's public API, blocking",
    "DatabaseLog": "Log and OwnedJournal",
    "FileLog": "Log and OwnedJournal",
    "KokaqClientSession": "what a client can ask of any protocol",
    "Log": "the log's contract",
    "SegmentedLog": "the part of Log that both journals share",
    "Session": "asyncio's protocol, and the hooks and services of the protocols' sessions",
    "SpanReader": "Follower",
}

#: Stilted phrases, and their plain replacements: report, render, log, notify, again, no one.
STILTED = re.compile(
    r"\b(told|tells? of|if that is so|in vain|anew|lets? go of)\b|\bnobody\b(?!\")"
    r"|(\. |\"\"\"|#:? )Who (has|asks|is|takes|waits)\b"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            yield path.relative_to(ROOT), node


def methods_of(node: ast.ClassDef) -> int:
    return sum(isinstance(each, Function) for each in node.body)


def test_functions_fit_on_a_screen() -> None:
    too_long = [
        f"{path}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path, node in nodes()
        if isinstance(node, Function) and node.end_lineno and node.end_lineno - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]
    assert too_long == []


def test_files_can_be_read_in_one_sitting() -> None:
    lines = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: count for path, count in lines.items() if count > MOST_LINES_OF_A_FILE} == {}


def test_classes_do_one_thing() -> None:
    sizes = {node.name: methods_of(node) for _, node in nodes() if isinstance(node, ast.ClassDef)}
    large = {name for name, methods in sizes.items() if methods > MOST_METHODS}
    assert large - set(CONTRACTS) == set(), "split the class, or name the contract that it implements"
    assert set(CONTRACTS) - large == set(), "no longer that large: remove the exception"


def test_no_docstring_only_points_elsewhere() -> None:
    pointers = [
        f"{path}:{node.lineno}"
        for path, node in nodes()
        if isinstance(node, Function | ast.ClassDef) and re.match(r"See \S+\.$", ast.get_docstring(node) or "")
    ]
    assert pointers == [], "mark the method with typing_extensions.override, and drop the docstring"


@pytest.mark.parametrize("folder", ["src", "docs", "benches", "examples", "scripts", "tests"])
def test_prose_is_plain(folder: str) -> None:
    stilted = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md", ".js", ".html", ".sh", ""} and path.is_file() and "vendor" not in path.parts
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if STILTED.search(line)
    ]
    assert stilted == []
