"""TOML that a peer or an operator sends, bounded before it is parsed.

Python's parser takes memory with the square of a dotted key's parts: 200 kB of ``a.a.a… = 1`` would take 16 GB. So one
pass over the text, in time and memory proportional to it, counts first what the parser would have to build.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

#: Bytes of a text, and the keys, tables, arrays and parts of dotted keys in it: the parser takes 1 kB for each of them.
TEXT_BYTES = 4 * 2**20
PARTS = 250_000
#: Parts of a dotted key, and arrays and inline tables within each other. Nothing that we read has more than 5.
DEPTH = 16

#: What is skipped as a whole, and what counts. Possessive, so that nothing is ever tried twice.
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
    """The values. Raises ValueError (as ``tomllib.TOMLDecodeError`` is one) with the line of what is too much."""
    _check(text)
    try:
        return tomllib.loads(text)
    except RecursionError:  # out of reach with this depth; a bound that somebody raises must not end a process
        raise ValueError(f"values are nested deeper than {DEPTH}") from None


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with the number of its first line. The text must be TOML."""
    line, nested, start, began = 1, 0, 0, 1
    for found in _TOKEN.finditer(text):
        token = found.group()
        line += token.count("\n")
        nested += (token in ("[", "{")) - (token in ("]", "}"))
        if token == "\n" and not nested:
            yield began, text[start : found.start()]
            start, began = found.end(), line
    yield began, text[start:]


def _check(text: str) -> None:
    if len(text) > TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES:
        raise ValueError(f"the text is too long: at most {TEXT_BYTES} bytes")
    parts = dots = nested = 0
    line = 1
    for found in _TOKEN.finditer(text):
        token = found.group()
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
