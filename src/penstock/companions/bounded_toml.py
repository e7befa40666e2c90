"""TOML from a peer or an operator, bounded before it is parsed.

Python's parser needs memory quadratic in the parts of a dotted key: 200 kB of ``a.a.a… = 1`` would take 16 GB. So one
pass, linear in time and memory, first counts what the parser would build.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

#: The most bytes of a text, and the most keys, tables, arrays and parts of dotted keys: the parser needs 1 kB for each.
TEXT_BYTES = 4 * 2**20
PARTS = 250_000
#: Parts of a dotted key, and nesting of arrays and inline tables. Nothing that we read has more than 5.
DEPTH = 16

#: Tokens to skip as a whole, and tokens to count. Possessive, so that the pattern never backtracks.
_TOKEN = re.compile(
    r"""
    \#[^\n]*+
    | \"{3}(?:[^"\\]++|\\.|"(?!""))*+(?:\"{3,5})?
    | '{3}(?:[^']++|'(?!''))*+(?:'{3,5})?
    | "(?:[^"\\\n]++|\\.)*+"?
    | '[^'\n]*+'?
    | [\n.=,\[\]{}]
    """,
    re.VERBOSE | re.DOTALL,
)


def parse(text: str) -> dict[str, Any]:
    """Parse a text. Raises ValueError (``tomllib.TOMLDecodeError`` is one) with the line of the fault."""
    _check(text)
    try:
        return tomllib.loads(text)
    except RecursionError:  # can't happen with this DEPTH; keeps the process alive if it is raised
        raise ValueError(f"values are nested deeper than {DEPTH}") from None


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with the number of its first line. The text must be TOML."""
    line, nested, start, began = 1, 0, 0, 1
    for match in _TOKEN.finditer(text):
        token = match.group()
        line += token.count("\n")
        nested += (token in ("[", "{")) - (token in ("]", "}"))
        if token == "\n" and not nested:
            yield began, text[start : match.start()]
            start, began = match.end(), line
    yield began, text[start:]


def _check(text: str) -> None:
    if len(text) > TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES:
        raise ValueError(f"the text is too long: at most {TEXT_BYTES} bytes")
    parts = dots = nested = 0
    line = 1
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line, dots = line + 1, 0
        elif token == ".":
            dots, parts = dots + 1, parts + 1
        elif token in ("[", "{"):
            nested, dots, parts = nested + 1, 0, parts + 1
        elif token in ("]", "}"):
            nested = max(0, nested - 1)
        elif token in ("=", ","):
            dots, parts = 0, parts + (token == "=")
        else:
            line += token.count("\n")
        if dots >= DEPTH or nested > DEPTH:
            raise ValueError(f"line {line} is nested too deeply: at most {DEPTH} parts of a key, and {DEPTH} brackets")
        if parts > PARTS:
            raise ValueError(f"too many keys and tables, up to line {line}: at most {PARTS}")
