"""Name patterns: their matches, the worst-case cost, and that a single module interprets them."""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.patterns import beginning, fits, fits_queue, has_wildcards, includes_every_queue, includes_namespace

PACKAGE = Path(__file__).parents[1] / "src" / "penstock"
MATCHER = "patterns.py"
#: The console's own pattern, which only checks whether a text contains wildcards.
CONSOLE_MATCHER = "admin/console/lib/patterns.js"
#: CPU time that a child may use for patterns that would take a backtracking matcher years.
SECONDS = 20


def reference(pattern: str, text: str) -> bool:
    """The definition, character by character: tracks the prefixes of the text that the pattern matches so far."""
    reached = {0}
    for sign in pattern:
        if sign == "*":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(text) and sign in ("?", text[at])}
    return len(text) in reached


@given(st.text("ab*?", max_size=12), st.text("abc\n", max_size=12))
def test_matches_as_defined(pattern: str, text: str) -> None:
    assert fits(pattern, text) == reference(pattern, text)


@given(st.text("a*?.[]()\\/^$+{}|", max_size=8), st.text("a.[]()\\/^$+{}|*?", max_size=8))
def test_all_other_characters_stand_for_themselves(pattern: str, text: str) -> None:
    assert fits(pattern, text) == reference(pattern, text)


HOSTILE = [
    ("*a*a*a*a*a*a*a*ab", "a" * 255),
    ("*-*-*-*-dlq", "-" * 255),
    ("*a" * 127 + "b", "a" * 255),
    ("*?a" * 84 + "b", "a" * 255),
    ("*?" * 126 + "b*", "a" * 255),
    ("a*" * 255, "a" * 254 + "b"),
    ("*" * 254 + "b", "a" * 255),
    ("*" + "a" * 126 + "?b*", "a" * 255),
]


@pytest.mark.parametrize(("pattern", "text"), HOSTILE, ids=range(len(HOSTILE)))
def test_no_pattern_takes_long(pattern: str, text: str) -> None:
    """In a process of its own, because backtracking can't be interrupted; and repeatedly, because lists are long."""
    code = f"from penstock.patterns import fits\nprint(*(fits({pattern!r}, {text!r}) for _ in range(2000)))"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 0, "the matcher backtracks"
    assert set(done.stdout.split()) == {str(reference(pattern, text))}


def test_namespace_and_name_are_matched_apart() -> None:
    assert fits_queue("shop/*", "shop", "orders/eu")
    assert not fits_queue("shop/*", "shop/orders", "eu")
    assert fits_queue("sh?p", "shop", "orders")
    assert not fits_queue("shop/orders", "shop", "orders-dlq")


def test_patterns_that_include_everything() -> None:
    assert all(map(includes_every_queue, ("*", "*/*", "**", "**/***")))
    assert not any(map(includes_every_queue, ("", "*/", "?*", "*/?*", "shop/*", "*/orders")))


def test_patterns_that_include_a_namespace() -> None:
    assert all(includes_namespace(each, "shop") for each in ("shop", "shop/*", "sh*/**", "*"))
    assert not any(includes_namespace(each, "shop") for each in ("shop/o*", "shop/?*", "other", "shop/"))


def test_wildcards() -> None:
    assert [has_wildcards(each) for each in ("a*", "?", "a/b", "")] == [True, True, False, False]
    assert [beginning(each) for each in ("ab*c", "a?b", "abc", "*")] == ["ab", "a", "abc", ""]


WILDCARDS = ("*", "?", "*?", "[*?]")
SEARCHES = {"split", "rsplit", "partition", "rpartition", "replace", "find", "index", "count", "startswith", "endswith"}


def interpretations(source: str) -> Iterator[str]:
    """Places where a module builds a matcher from data, or looks for wildcards in a text."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name == "fnmatch")
            case ast.ImportFrom(module="fnmatch"):
                yield "fnmatch"
            case ast.Attribute(value=ast.Name(id="re"), attr="escape"):
                yield "re.escape"
            case ast.Compare(left=ast.Constant(value=value), ops=[ast.In() | ast.NotIn()]) if value in WILDCARDS:
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=value), *_]) if (
                name in SEARCHES and value in WILDCARDS
            ):
                yield ast.unparse(node)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr="split"), args=[ast.Constant(value=value), *_]
            ):
                if any(each in str(value) for each in ("[*?]", "[?*]", r"\*", r"\?")):
                    yield ast.unparse(node)


def compiles_data(source: str) -> Iterator[str]:
    """Calls of ``re`` whose expression is neither a literal nor a module constant."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name), args=[first, *_]) if name != "escape":
                constant = isinstance(first, ast.Constant) or (isinstance(first, ast.Name) and first.id.isupper())
                pieces = isinstance(first, ast.JoinedStr) and all(
                    isinstance(each, ast.Constant)
                    or (
                        isinstance(each, ast.FormattedValue)
                        and isinstance(each.value, ast.Name)
                        and each.value.id.isupper()
                    )
                    for each in first.values
                )
                if not constant and not pieces:
                    yield ast.unparse(node)


def offenders(package: Path) -> list[str]:
    places = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if place != MATCHER:
            source = path.read_text()
            places += [f"{place}: {each}" for each in (*interpretations(source), *compiles_data(source))]
    for path in sorted(package.rglob("*.js")):
        place = path.relative_to(package).as_posix()
        if place != CONSOLE_MATCHER and "vendor" not in path.parts:
            places += [
                f"{place}: {each}" for each in re.findall(r"new RegExp\(|/\[[*?]{2}\]/|\.fnmatch", path.read_text())
            ]
    return places


def test_one_module_interprets_patterns() -> None:
    assert offenders(PACKAGE) == []


@pytest.mark.parametrize(
    "source",
    [
        "import fnmatch",
        "from fnmatch import fnmatchcase",
        "import re\nre.compile(re.escape(x))",
        "import re\nre.fullmatch(pattern, name)",
        'import re\nre.compile(f"{pattern}$")',
        'plain = "*" not in pattern',
        'a = pattern.partition("*")',
        'a = pattern.replace("?", ".")',
        'import re\nre.split(r"[*?]", pattern)',
    ],
)
def test_the_test_itself(source: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(source)
    assert offenders(tmp_path)
