"""The pages stay true: their Python runs and prints the shown output, and their links resolve."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from penstock.journal.views import arrow
from penstock.spark.pipelines.decode.frames import FRAMES
from penstock.spark.pipelines.insight.tables import TABLES as INSIGHT
from support.brokers import BrokerProcess

ROOT = Path(__file__).parents[1]
ROOMS = sorted(ROOT.glob("src/penstock/**/README.md"))
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md"), *ROOMS]
#: Pages use a broker's default addresses. Tests replace them with those of their own broker.
DEFAULTS = {"127.0.0.1:9100": "phpmq", "127.0.0.1:8888": "sspq", "127.0.0.1:9420": "kokaq", "127.0.0.1:8815": "flight"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that code hosts generate for a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    free = {"address": "127.0.0.1:0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), kokaq=[free], flight=free) as live:
        yield live


def with_broker(text: str, request: pytest.FixtureRequest) -> str:
    """The text, with the addresses of a real broker, which is started for the first page that needs it."""
    if not any(f"://{address}" in text for address in DEFAULTS):
        return text
    live: BrokerProcess = request.getfixturevalue("broker")
    for address, protocol in DEFAULTS.items():
        text = text.replace(f"://{address}", f"://{live.addresses[protocol].rpartition('/')[2]}")
    return text


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=name)
def test_python_on_the_page_runs(page: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Blocks share one namespace from top to bottom. A ``text`` block right after one shows its output."""
    names: dict[str, object] = {}
    if any("penstock.spark" in text for _, text in blocks(page)):
        request.getfixturevalue("spark")  # the page then gets the same one
    printed = ""
    for language, text in blocks(page):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                source = with_broker(text, request).replace('"/lake/', f'"{tmp_path}/')
                exec(compile(source, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text" and printed:
            assert text == printed
            printed = ""


DUCKDB = [(page, text) for page in PAGES for language, text in blocks(page) if language == "sql" and "DuckDB" in text]


@pytest.mark.parametrize(("page", "query"), DUCKDB, ids=lambda value: name(value) if isinstance(value, Path) else "")
def test_sql_for_duckdb_is_sql(page: Path, query: str) -> None:
    assert duckdb.extract_statements(query)


#: Our tables, by the page that describes them.
TABLES = {
    "journal.md": (arrow.EVENTS, arrow.MESSAGES),
    "pipelines.md": (FRAMES, *INSIGHT.values()),
}


@pytest.mark.parametrize("page", TABLES)
def test_columns_whose_names_are_reserved_in_duckdb_are_documented(page: str) -> None:
    """Published names can't change, so the page says how to quote them."""
    names = {column for schema in TABLES[page] for column in schema.names}
    reserved = [column for column in names if not _is_a_name(column)]
    text = (ROOT / "docs" / page).read_text()
    assert reserved
    for column in reserved:
        assert re.search(rf'^\|[^|]*\b{column}\b[^|]*\|.*`"{column}"`', text, re.MULTILINE), (
            f"{page} does not say to quote {column}"
        )


def _is_a_name(column: str) -> bool:
    try:
        duckdb.extract_statements(f"select {column}, max({column}) from t where {column} > 1")
    except duckdb.Error:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        linked = (page.parent / place).resolve() if place else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading of ARCHITECTURE.md."""
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", *ROOMS], ids=name)
def test_the_files_that_the_map_names_are_there(page: Path) -> None:
    files = [f"/{path.relative_to(ROOT)}" for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.*")]
    named = set(re.findall(r"`([\w/]+\.(?:py|js|html|css|md))`", page.read_text(encoding="utf-8")))
    assert named
    assert sorted(name for name in named if not any(path.endswith(f"/{name}") for path in files)) == []


def test_the_map_is_short() -> None:
    assert len(ARCHITECTURE) < 16_000


@pytest.mark.parametrize("title", ["The path of a message", "The path of a Spark batch"])
def test_a_path_is_short_and_names_whole_files(title: str) -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", section(title)))
    assert 10 < len(named) <= 20
    assert sorted(name for name in named if not (ROOT / "src" / "penstock" / name).is_file()) == []


def test_the_glossary_has_each_term_once_in_order() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)[1:]
    assert len(terms) > 30
    assert terms == sorted(set(terms))


def test_the_readme_has_an_example_with_its_output() -> None:
    languages = [language for language, _ in blocks(ROOT / "README.md")]
    assert languages[languages.index("python") + 1] == "text"
