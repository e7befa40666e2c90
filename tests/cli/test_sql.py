"""``penstock sql``, against one real broker."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.commands import COMMAND, Outcome, penstock, penstock_here
from support.terminal import Terminal
from support.web import WebBroker

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    with WebBroker(tmp_path_factory.mktemp("broker")) as found:
        found.api.do("PUT", "queues/default/jobs", {})
        found.api.publish("default/jobs", "a", "b")
        yield found


@pytest.fixture
def run(broker: WebBroker) -> Run:
    """Run a query as an admin."""
    where = [f"--url={broker.addresses['http']}", f"--token-file={broker.folder / 'admin-token'}"]
    return lambda *arguments: penstock_here("sql", *arguments, *where)


QUERY = "select queue, state, count(*) as n, null as nothing from live group by all"


def test_a_table(run: Run) -> None:
    done = run(QUERY)
    assert done.code == 0, done.err
    heading, row = done.out.splitlines()
    assert heading.split() == ["queue", "state", "n", "nothing"]
    assert row.split() == ["jobs", "ready", "2"]


def test_json_and_csv(run: Run) -> None:
    assert run(QUERY, "--json").json == [{"queue": "jobs", "state": "ready", "n": 2, "nothing": None}]
    printed = list(csv.reader(io.StringIO(run(QUERY, "--csv").out)))
    assert printed == [["queue", "state", "n", "nothing"], ["jobs", "ready", "2", ""]]


def test_from_standard_input(broker: WebBroker) -> None:
    url, token = broker.addresses["http"], broker.api.token
    done = penstock("sql", "-", "--json", stdin=b"select 1 as one", PENSTOCK_URL=url, PENSTOCK_TOKEN=token)
    assert (done.code, done.json) == (0, [{"one": 1}]), done.err


def test_files(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs.parquet"
    done = run("select payload from live order by position", "--output", str(file), "--rows=1")
    assert done.code == 0, done.err
    assert "there are more rows" in done.err
    assert pq.read_table(file).to_pydict() == {"payload": [b"a"]}
    assert run("select 1 as one", f"--output={tmp_path / 'x.CSV'}").code == 0
    assert (tmp_path / "x.CSV").read_text() == "one\n1\n"


def test_omitted_rows_are_reported(run: Run) -> None:
    done = run("from range(10)", "--rows=3")
    assert len(done.out.splitlines()) == 4
    assert "there are more rows than these 3" in done.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["selec 1"], 'line 1, column 1: syntax error at or near "selec"'),
        (["from nope"], "there is no table nope; there are messages, events, live, queues, readers, audit"),
        (["select sum(sin(a.range * b.range)) from range(1000000) a, range(1000000) b", "--seconds=0.5"], "stopped"),
        ([""], "the query is invalid"),
        (["select 1", "--output=x.txt"], "ends with .csv or .parquet"),
        (["select 1", "--output=x.csv", "--json"], "--json and --csv print"),
        (["select 1", "--json", "--csv"], "one or the other"),
        (["select 1", "--rows=100001"], "--rows is 100000 at most"),
        (["select 1", "--rows=0"], "--rows"),
        (["select 1", "--seconds=61"], "--seconds"),
        (["select 1", "--memory=1"], "--memory"),
    ],
)
def test_bad_queries_are_explained(run: Run, arguments: list[str], expected: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert expected in done.err


def test_csv_on_a_terminal_is_escaped(broker: WebBroker) -> None:
    where = [f"--url={broker.addresses['http']}", f"--token-file={broker.folder / 'admin-token'}"]
    query = "select 'a' || chr(27) || '[31m' || chr(8238) || 'b' as \"c\x1bd\""
    with Terminal([*COMMAND, "sql", query, "--csv", *where]) as terminal:
        terminal.wait_for("c\\x1bd")
        terminal.wait_for("a\\x1b[31m\\u202eb")
        assert terminal.ended() == 0
