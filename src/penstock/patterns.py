"""Patterns of names, the same wherever queues are picked: ``*`` is anything, ``?`` one character, all else itself.

Those of queues are two, one for the namespace and one for the name, so that no namespace can look like another one's
queue.
"""

from __future__ import annotations

import re
from functools import lru_cache


def fits(pattern: str, text: str) -> bool:
    """Whether the whole text is as the pattern says."""
    return _expression(pattern).fullmatch(text) is not None


def fits_queue(pattern: str, namespace: str, name: str) -> bool:
    """Whether a queue is as a pattern of namespace/queue says. A pattern without a / is of namespaces alone."""
    namespaces, slash, names = pattern.partition("/")
    return fits(namespaces, namespace) and fits(names if slash else "*", name)


@lru_cache(maxsize=10_000)
def _expression(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)
