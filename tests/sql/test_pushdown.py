"""Filter pushdown: which parts of a filter are decided before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from penstock.flight.flight_requests import OutNow
from penstock.flight.history import History
from penstock.flight.live import STATES, Live
from penstock.journal import open_journal
from penstock.journal.format.catalogue import QueueName
from penstock.sql import pushdown
from penstock.sql.tables import SCHEMAS
from penstock.sql.views import ScanPlan, Sources, View
from support.web import WebBroker

SCHEMA = SCHEMAS["events"]
COUNT = 60


def position(low: int, high: int) -> ds.Expression:
    return (ds.field("position") >= low) & (ds.field("position") < high)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (position(1_234_567, 2_000_000), (1_234_567, 2_000_000)),
        (ds.field("position") == 77, (77, 78)),
        (ds.field("position") < 10, (1, 10)),
        (ds.field("position") >= 9_999_999_999, (9_999_999_999, 10**10)),
        ((ds.field("position") == 7) | (ds.field("position") == 90), (7, 91)),
        (ds.field("position") > 10**12, (1, 1)),
        (ds.field("queue") == "a", (1, 10**10)),
        ((ds.field("queue") == "a") | (ds.field("position") == 3), (1, 10**10)),
        ((ds.field("queue") == "a") & (ds.field("position") == 3), (3, 4)),
    ],
)
def test_positions(condition: ds.Expression, expected: tuple[int, int]) -> None:
    assert pushdown.positions(SCHEMA, condition, 1, 10**10) == expected


@pytest.mark.parametrize(
    ("condition", "a", "none"),
    [
        (ds.field("queue") == "a", True, False),
        (ds.field("queue") == "b", False, False),
        (ds.field("queue") != "a", False, False),
        (ds.field("queue").isin(["a", "b"]), True, False),
        (ds.field("queue").isin(["b", "c"]), False, False),
        (ds.field("queue").is_null(), False, True),
        ((ds.field("queue") == "b") | (ds.field("kind") == "dead"), True, True),
        ((ds.field("queue") == "a") & (ds.field("namespace") == "elsewhere"), False, False),
    ],
)
def test_queues(condition: ds.Expression, a: bool, none: bool) -> None:
    assert pushdown.wants_queue(SCHEMA, condition, "here", "a") is a
    assert pushdown.wants_no_queue(SCHEMA, condition) is none


def test_columns() -> None:
    condition = (ds.field("queue") == "payload_size") & (ds.field("position") > 1)
    assert pushdown.columns_of(SCHEMA, condition) == {
        "queue",
        "position",
        "payload_size",
    }  # an extra column does no harm


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """The journal of a stopped broker: 60 messages in three queues, each in a commit of its own."""
    folder = Path(tmp_path_factory.mktemp("journal"))
    with WebBroker(folder) as broker:
        for number in range(3):
            broker.api.do("PUT", f"queues/default/q{number}", {})
        for number in range(COUNT):
            broker.api.publish(f"default/q{number % 3}", str(number))
        where = f"file:{broker.data}"
    history = History(open_journal(where).follow())
    out = OutNow(position=history.reader.latest, messages=b"")
    return Sources(history, Live(history, lambda: out), None)


def plan_of(sources: Sources, query: str) -> tuple[ScanPlan, int, list[tuple[Any, ...]]]:
    """The plan of a query's only scan, how many rows it read, and the query's answer."""
    read = 0
    ask = sources.read

    def count_rows(view: str, plan: ScanPlan) -> object:
        nonlocal read
        for batch in ask(view, plan):
            read += batch.num_rows
            yield batch

    sources.plans.clear()
    sources.read = count_rows  # type: ignore[method-assign, assignment]
    try:
        with duckdb.connect(":memory:") as connection:
            for view in ("messages", "events", "live"):
                connection.register(view, View(view, sources))
            found = connection.execute(query).fetchall()
    finally:
        sources.read = ask  # type: ignore[method-assign]
    [(_, plan)] = sources.plans
    return plan, read, found


@pytest.mark.parametrize("view", ["messages", "live"])
def test_only_the_requested_queue_is_read(sources: Sources, view: str) -> None:
    plan, read, found = plan_of(sources, f"select count(*) from {view} where queue = 'q1'")
    assert plan.queues is not None
    assert plan.queues(QueueName("default", "q1"))
    assert not plan.queues(QueueName("default", "q2"))
    assert read == COUNT // 3
    assert found == [(COUNT // 3,)]


@pytest.mark.parametrize("view", ["messages", "live", "events"])
def test_only_the_requested_positions_are_read(sources: Sources, view: str) -> None:
    *_, everything = plan_of(sources, f"select position from {view} order by position")
    some = [each[0] for each in everything][20:25]
    plan, read, found = plan_of(
        sources, f"select position from {view} where position between {some[0]} and {some[-1]} order by 1"
    )
    assert plan.positions == (some[0], some[-1] + 1)
    assert [each[0] for each in found] == some
    assert read == len(some)


def test_only_the_requested_states_are_read(sources: Sources) -> None:
    plan, read, found = plan_of(sources, "select count(*) from live where state in ('dead', 'out')")
    assert plan.states == ["out", "dead"]
    assert (read, found) == (0, [(0,)])
    plan, read, _ = plan_of(sources, "select count(*) from live where state <> 'dead'")
    assert plan.states == [state for state in STATES if state != "dead"]
    assert read == COUNT


def test_only_the_requested_columns_are_read(sources: Sources) -> None:
    plan, _, found = plan_of(sources, "select protocol from messages where priority >= 0 and position < 20")
    assert plan.columns == ["position", "priority", "protocol"]
    assert {each[0] for each in found} == {"http"}
    plan, _, _ = plan_of(sources, "select count(*) from messages")
    assert "payload" not in plan.columns


def test_rows_without_a_queue_are_returned_unless_filtered(sources: Sources) -> None:
    plan, _, found = plan_of(sources, "select kind from events where queue is null order by position")
    assert plan.queues is None
    assert "namespace_created" in {each[0] for each in found}
    narrow = Sources(sources._history, sources._live, ["default/q2"])
    _, _, found = plan_of(narrow, "select distinct queue from events")
    assert found == [("q2",)]


def test_a_query_sees_one_snapshot(sources: Sources) -> None:
    """Two scans of one table in one query return the same rows."""
    with duckdb.connect(":memory:") as connection:
        connection.register("live", View("live", sources))
        query = "select count(*) from live a full join live b using (id) where a.id is null or b.id is null"
        assert connection.execute(query).fetchall() == [(0,)]


def test_errors_while_rows_are_read_are_reported(sources: Sources) -> None:
    broken = Sources(sources._history, Live(sources._history, lambda: 1 / 0), None)  # type: ignore[arg-type, return-value]
    with duckdb.connect(":memory:") as connection:
        connection.register("live", View("live", broken))
        with pytest.raises(duckdb.Error):
            connection.execute("select * from live").fetchall()
    assert isinstance(broken.error, ZeroDivisionError)
