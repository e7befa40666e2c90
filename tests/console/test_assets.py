"""The console's files: all are served, nothing else is, and nothing in them needs another host or an inline script."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from penstock.admin.assets import POLICY, assets

CONSOLE = Path(__file__).parents[2] / "src" / "penstock" / "admin" / "console"
OURS = sorted(path for path in CONSOLE.rglob("*") if path.is_file())
MODULES = [path for path in OURS if path.suffix == ".js"]


def named(path: Path) -> str:
    return path.relative_to(CONSOLE).as_posix()


def test_every_file_is_served() -> None:
    assert {f"/{named(path)}" for path in OURS} <= set(assets())
    assert assets()["/"] == assets()["/index.html"]
    assert assets()["/vendor/preact.js"].media_type.startswith("text/javascript")


@pytest.mark.parametrize("path", ["/../assets.py", "/vendor/../__init__.py", "/assets.py", "//etc/passwd", ""])
def test_nothing_else_is(path: str) -> None:
    assert path not in assets()


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_modules_import_existing_files(path: Path) -> None:
    """Otherwise a wrong path would only be noticed by opening that page."""
    here = Path("/") / path.relative_to(CONSOLE).parent
    for found in re.findall(r'^(?:import|export)\b[^;]*?from "([^"]+)";', path.read_text(), re.MULTILINE):
        parts: list[str] = []
        for part in (here / found).parts[1:]:
            parts = parts[:-1] if part == ".." else [*parts, part]
        assert "/" + "/".join(parts) in assets(), f"{named(path)} imports {found}"


@pytest.mark.parametrize("path", OURS, ids=named)
def test_no_other_host_is_named(path: Path) -> None:
    addresses = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", path.read_text()))
    assert addresses <= {"http://www.w3.org"}  # the XML namespace of SVG, which is never fetched


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_nothing_is_ever_inserted_as_html(path: Path) -> None:
    """Names and payloads come from untrusted clients."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|eval\(|new Function"
    assert not re.search(forbidden, path.read_text())


class Page(HTMLParser):
    """Collects whatever in a page the content security policy would block."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in names):
            self.refused.append(tag)
        self.refused += [name for name in names if name == "style" or name.startswith("on")]


def test_the_page_has_nothing_inline() -> None:
    page = Page()
    page.feed((CONSOLE / "index.html").read_text())
    assert page.refused == []


def test_the_policy_allows_nothing_inline_and_no_other_host() -> None:
    assert "unsafe" not in POLICY
    assert set(re.findall(r"'[a-z-]+'", POLICY)) == {"'none'", "'self'"}
    assert not re.search(r"https?:|\*|data:|blob:", POLICY)


@pytest.mark.parametrize("path", OURS, ids=named)
def test_no_merge_was_left_unfinished(path: Path) -> None:
    """No other check reads these files before a browser does."""
    assert not re.search(r"^(<<<<<<<|=======|>>>>>>>)", path.read_text(), re.MULTILINE)
