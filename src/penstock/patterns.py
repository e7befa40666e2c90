"""Patterns of names, the same wherever queues are chosen: ``*`` matches anything, ``?`` one character, all else itself.

A pattern of queues is two patterns, one for the namespace and one for the name, so that no namespace can look like
another one's queue.

Matching takes time in proportion to the lengths of pattern and text at worst. Between two ``*`` the first place that
fits is as good as any later one, so each part is searched once, from left to right, without backtracking: the regular
expressions use atomic groups. Nothing else interprets patterns (tests/test_patterns.py).
"""

from __future__ import annotations

import re
from functools import lru_cache

#: Characters of a pattern of queues from a peer: two of the longest names.
MOST_CHARACTERS = 511
#: Compiled patterns that are kept. A peer may send ever new ones, of up to 12 kB each.
REMEMBERED = 2_000


def fits(pattern: str, text: str) -> bool:
    """Whether the pattern matches the whole text."""
    return _expression(pattern).fullmatch(text) is not None


def fits_queue(pattern: str, namespace: str, name: str) -> bool:
    """Whether a pattern of namespace/queue matches a queue. A pattern without a / is of namespaces alone."""
    namespaces, names = _halves(pattern)
    return fits(namespaces, namespace) and fits(names, name)


def includes_every_queue(pattern: str) -> bool:
    """Whether the pattern matches all queues, those that do not exist yet too."""
    return all(map(_is_anything, _halves(pattern)))


def includes_namespace(pattern: str, namespace: str) -> bool:
    """Whether the pattern matches all queues of the namespace, those that do not exist yet too."""
    namespaces, names = _halves(pattern)
    return _is_anything(names) and fits(namespaces, namespace)


def has_wildcards(pattern: str) -> bool:
    """Whether it can match anything but itself."""
    return "*" in pattern or "?" in pattern


def beginning(pattern: str) -> str:
    """What every text begins with that the pattern matches."""
    return re.split(r"[*?]", pattern, maxsplit=1)[0]


def _halves(pattern: str) -> tuple[str, str]:
    namespaces, slash, names = pattern.partition("/")
    return namespaces, names if slash else "*"


def _is_anything(pattern: str) -> bool:
    return bool(pattern) and not pattern.strip("*")


@lru_cache(maxsize=REMEMBERED)
def _expression(pattern: str) -> re.Pattern[str]:
    first, *others = (_fixed(part) for part in pattern.split("*"))
    between = (f"(?>.*?{part})" for part in others[:-1] if part)
    end = f".*{others[-1]}" if others else ""
    return re.compile(f"{first}{''.join(between)}{end}", re.DOTALL)


def _fixed(part: str) -> str:
    """The expression of a part without ``*``, which matches texts of one length."""
    return "".join("." if sign == "?" else re.escape(sign) for sign in part)
