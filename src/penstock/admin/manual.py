"""Writes the tables of docs/http-api.md from the table of routes. A test checks that the page is current."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args, get_origin

from penstock.admin.problems import COMMON, STATUS, TITLES
from penstock.admin.routes import ROUTES, Route

BEGIN, END = "<!-- routes: written by penstock.admin.manual -->", "<!-- end of routes -->"
WHERE = {
    "open": "",
    "known": "",
    "some": " for any queue",
    "queue": " for the queue",
    "namespace": " for the namespace",
    "body": " for the queues named",
    "all": " for all (`*`)",
}


def tables() -> str:
    """Both tables, in Markdown."""
    lines = ["| route | right | in | out | problems |", "|---|---|---|---|---|"]
    lines += [_line(route) for route in ROUTES]
    lines += ["", "| code | status | |", "|---|---|---|"]
    lines += [f"| `{code}` | {STATUS[code]} | {TITLES[code]} |" for code in STATUS]
    common = ", ".join(f"`{code}`" for code in COMMON)
    return "\n".join([*lines, "", f"Every route may also respond with {common}."])


def _line(route: Route) -> str:
    takes = " ".join(f"`{_named(each)}`" for each in (route.query, route.body) if each is not None)
    gives = f"`{_named(route.answer)}`" if route.answer is not None else route.media
    problems = ", ".join(f"`{code}`" for code in route.problems)
    return (
        f"| **{route.name}** `{route.method} {route.path}`<br>{route.about} | {_right(route)} | {takes} "
        f"| {route.status} {gives} | {problems} |"
    )


def _right(route: Route) -> str:
    if route.needs is None:
        return "–" if route.scope == "open" else "any token"
    return route.needs + WHERE[route.scope]


def _named(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is None:
        return str(kind.__name__)
    return f"{origin.__name__}[{', '.join(each.__name__ for each in get_args(kind))}]"


def main(path: str) -> None:
    """Update the tables in the page."""
    page = Path(path)
    text = page.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(f"{text[:begin]}\n{tables()}\n{text[end:]}")


if __name__ == "__main__":
    main(sys.argv[1])
