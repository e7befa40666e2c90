"""The pages stay true: their Python runs, their output is what it prints, and their links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get where repositories are shown."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=name)
def test_python_on_the_page_runs(page: Path) -> None:
    """Blocks share their names from top to bottom. A ``text`` block right after one shows what it prints."""
    names: dict[str, object] = {}
    printed = ""
    for language, text in blocks(page):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text" and printed:
            assert text == printed
            printed = ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        linked = (page.parent / place).resolve() if place else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_readme_has_an_example_with_its_output() -> None:
    languages = [language for language, _ in blocks(ROOT / "README.md")]
    assert languages[languages.index("python") + 1] == "text"
