"""SQL over HTTP on a real broker: answers, files, limits, rights, and errors of queries."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from penstock.sql.pool import AT_A_TIME, MOST_WAITING
from support.web import Api, WebBroker, eventually

ENDLESS = "select count(*) from range(1000000) a, range(1000000) b, range(1000000) c"


@pytest.fixture(scope="module")
def filled(broker: WebBroker) -> Api:
    """Three dead letters in default/sick, two messages in default/well, one in other/alone."""
    api = broker.api
    for name in ("default/sick", "default/well", "other/alone"):
        api.do("PUT", f"queues/{name}", {"rules": {"max_deliveries": 1}})
    api.publish("default/sick", "a", "b", "c")
    broker.kill_messages("default/sick")
    api.publish("default/well", "d", "e")
    api.publish("other/alone", "f")
    return api


def rows(api: Api, query: str, **limits: Any) -> list[list[Any]]:
    found: list[list[Any]] = api.do("POST", "sql", {"query": query, **limits})["rows"]
    return found


def refused(api: Api, query: str, **limits: Any) -> Any:
    problem = api.refused("POST", "sql", {"query": query, **limits})
    assert problem["status"] == 400, problem
    return problem


def processes(broker: WebBroker) -> list[int]:
    """The processes that answer SQL for this broker: its grandchildren."""
    assert broker.process is not None
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            above = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if b"penstock.sql" in command and above == broker.process.pid:
            found.append(int(entry.name))
    return found


def test_the_dead_by_queue(filled: Api) -> None:
    query = "select queue, count(*), min(published_at) from live where state = 'dead' group by queue"
    answer = filled.do("POST", "sql", {"query": query})
    [[queue, count, first]] = answer["rows"]
    assert (queue, count) == ("sick", 3)
    assert first.endswith("Z")
    assert [column["type"] for column in answer["columns"]] == ["VARCHAR", "BIGINT", "TIMESTAMP WITH TIME ZONE"]
    assert answer["truncated"] is False


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select count(*) from messages where queue in ('sick', 'well')", [[5]]),
        ("select payload from messages where queue = 'alone'", [[b"f".hex()]]),
        ("select decode(payload) from live where namespace = 'default' and state = 'ready' order by position",
         [["d"], ["e"]]),
        ("select kind, count(*) from events where queue = 'sick' group by kind order by kind",
         [["dead", 3], ["published", 3], ["queue_created", 1]]),
        ("select queue, ready, dead, published from queues where queue in ('sick', 'well') order by queue",
         [["sick", 0, 3, 3], ["well", 2, 0, 2]]),
        ("select count(*) from readers", [[0]]),
        ("select action, target from audit where action = 'create-queue' and target = 'other/alone'",
         [["create-queue", "other/alone"]]),
        ("select l.queue, m.queue from live l join messages m using (id) where l.queue = 'alone'",
         [["alone", "alone"]]),
        ("with w as (select * from live where queue = 'well') select count(*) from w a, w b", [[4]]),
        ("select 9007199254740993, 1.25::decimal(4, 2), [1, null], {'a': 'b'}, 'nan'::double, null, true, 'x'::blob",
         [["9007199254740993", "1.25", [1, None], {"a": "b"}, "nan", None, True, "78"]]),
        ("select 9007199254740992, -9007199254740993, 170141183460469231731687303715884105727::hugeint, 17::hugeint",
         [[9007199254740992, "-9007199254740993", "170141183460469231731687303715884105727", 17]]),
        ("select 340282366920938463463374607431768211455::uhugeint as a, [17::uhugeint] as a, '0101'::bit as b, "
         "99999999999999999999999999999999999999999::bignum as c, 1 as d; -- exact",
         [["340282366920938463463374607431768211455", "[17]", "0101", "9" * 41, 1]]),
        ("select 2.00::decimal(10, 2), 12345678901234567890.10::decimal(38, 2), 0::decimal(38, 20), 17::decimal(5, 0)",
         [["2.00", "12345678901234567890.10", "0." + "0" * 20, 17]]),
        ("select timestamp_ns '2020-01-01 00:00:00.123456789', timestamp_ns '1969-12-31 23:59:59.999999001', "
         "timestamp_ns '2020-01-01 00:00:00.1234', null::timestamp_ns",
         [["2020-01-01T00:00:00.123456789", "1969-12-31T23:59:59.999999001", "2020-01-01T00:00:00.123400", None]]),
        ("select 1.2345678901234567e300::double, 0.1::double", [[1.2345678901234567e300, 0.1]]),
    ],
)  # fmt: skip
def test_answers(filled: Api, query: str, expected: list[list[Any]]) -> None:
    assert rows(filled, query) == expected


def test_a_message_by_its_id(filled: Api) -> None:
    """The query that the console sends."""
    filled.do("PUT", "queues/default/named", {})
    [identity] = filled.publish("default/named", "g")
    where = f"id = from_hex('{identity}')"
    found = [["default", "named"]]
    assert rows(filled, f"select namespace, queue from messages where {where}") == found
    position = int(identity[16:], 16)
    assert rows(filled, f"select namespace, queue from messages where position = {position} and {where}") == found
    assert rows(filled, f"select namespace, queue from messages where position = {position + 1} and {where}") == []
    filled.do("DELETE", f"queues/default/named/messages/{identity}")


def test_every_column_can_be_selected(filled: Api) -> None:
    for table in filled.get("sql/tables")["items"]:
        names = ", ".join(f'"{column["name"]}"' for column in table["columns"])
        answer = filled.do("POST", "sql", {"query": f"select {names} from {table['name']}"})
        assert answer["columns"] == table["columns"]


def test_rows_are_limited_to_the_requested_number(filled: Api) -> None:
    answer = filled.do("POST", "sql", {"query": "select * from range(10)", "rows": 4})
    assert len(answer["rows"]) == 4
    assert answer["truncated"] is True
    assert filled.do("POST", "sql", {"query": "select * from range(4)", "rows": 4})["truncated"] is False


def test_columns_sent_as_text_are_named(filled: Api) -> None:
    query = """select 17::uhugeint as "a ""b", 18 as c from range(3) order by range desc"""
    answer = filled.do("POST", "sql", {"query": query})
    assert answer["columns"] == [{"name": 'a "b', "type": "VARCHAR"}, {"name": "c", "type": "INTEGER"}]
    assert answer["rows"] == [["17", 18]] * 3


# Files


def test_csv(filled: Api) -> None:
    body = {"query": "select queue, payload, [1] l, null n from live where queue = 'well'", "format": "csv"}
    answer = filled.ask("POST", "/api/v1/sql/export", body)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="query.csv"'
    assert answer.headers["penstock-truncated"] == "false"
    found = list(csv.reader(io.StringIO(answer.body.decode())))
    assert found == [["queue", "payload", "l", "n"], ["well", "64", "[1]", ""], ["well", "65", "[1]", ""]]


def test_csv_contains_no_spreadsheet_formulas(filled: Api) -> None:
    """Peers choose the names of queues and the payloads. Values that look like numbers stay numbers."""
    texts = ["=1+1", "+1+1", "-2+3", "@sum(a)", "\t=1", "\r=1", "-1.50", "+7", "-1e5", "a=1", "'=1"]
    values = ", ".join("('" + text.replace("'", "''") + "')" for text in texts)
    body = {"query": f'select x as "=x", -3 as n from (values {values}) t(x)', "format": "csv"}
    found = list(csv.reader(io.StringIO(filled.ask("POST", "/api/v1/sql/export", body).body.decode(), newline="")))
    assert found[0] == ["'=x", "n"]
    expected = ["'=1+1", "'+1+1", "'-2+3", "'@sum(a)", "'\t=1", "'\r=1", "-1.50", "+7", "-1e5", "a=1", "'=1"]
    assert found[1:] == [[text, "-3"] for text in expected]


def test_every_type_of_value_is_answered(filled: Api) -> None:
    """Some have no equivalent in Python, such as a day of the year 5877642."""
    answer = filled.do("POST", "sql", {"query": "from test_all_types()"})
    assert len(answer["rows"]) == 3
    assert all(len(row) == len(answer["columns"]) for row in answer["rows"])
    named = {column["name"]: row for column, row in zip(answer["columns"], answer["rows"][1], strict=True)}
    assert "2147483646" in named["date"]
    for kind in ("csv", "parquet"):
        answer = filled.ask("POST", "/api/v1/sql/export", {"query": "from test_all_types()", "format": kind})
        assert answer.status == 200 or "ask for CSV" in answer.value["detail"]


@pytest.mark.parametrize(
    "query",
    [
        "from duckdb_secrets()",
        "from duckdb_extensions()",
        "from duckdb_settings()",
        "from which_secret('s3://x', 's3')",
    ],
)
def test_errors_reveal_no_folder_of_the_broker(filled: Api, query: str) -> None:
    text = filled.ask("POST", "/api/v1/sql", {"query": query}).body.decode()
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text
    assert ".duckdb" not in text


def test_parquet_keeps_the_types(filled: Api) -> None:
    body = {"query": "select * from messages where queue = 'well'", "format": "parquet", "rows": 1}
    answer = filled.ask("POST", "/api/v1/sql/export", body)
    assert answer.headers["penstock-truncated"] == "true"
    table = pq.read_table(io.BytesIO(answer.body))
    assert table.column("payload").to_pylist() == [b"d"]
    assert str(table.schema.field("published_at").type) == "timestamp[us, tz=UTC]"


def test_exporting_a_bad_query_reports_a_problem(filled: Api) -> None:
    problem = filled.refused("POST", "sql/export", {"query": "selec 1", "format": "csv"})
    assert problem["field"] == "body.query"


# What is wrong with a query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("selec 1", 'line 1, column 1: syntax error at or near "selec"'),
        ("select queue,\n  from from live", "line 2, column 8"),
        ("select ä.x from", "line 1, column 1"),
        ("select at from events", 'the column is written "at"'),
        ("select * from nope", "line 1, column 15: there is no table nope; there are messages, events, live, queues"),
        ("select nope from live", 'column "nope" not found'),
        ("select 1; select 2", "there are 2 statements; send one at a time"),
        ("-- nothing", "there is no statement"),
        ("create table x as select 1", "CREATE is not possible: the tables are read-only"),
        ("set memory_limit = '9GB'", "SET is not possible"),
        ("copy (select 1) to '/tmp/x'", "COPY is not possible"),
        ("install httpfs", "LOAD is not possible"),
        ("attach '/tmp/x.db'", "ATTACH is not possible"),
        ("select * from read_text('/etc/passwd')", "a query sees the tables messages, events"),
        ("select * from '/etc/passwd'", "there is no table /etc/passwd"),
        ("select * from glob('/etc/*')", "a query sees the tables"),
        ("select * from sources", "there is no table sources"),
        ("select 'x'::int", "Could not convert string 'x'"),
        ("select error('mine')", "mine"),
    ],
)
def test_bad_queries_are_explained(filled: Api, query: str, expected: str) -> None:
    problem = refused(filled, query)
    assert problem["field"] == "body.query"
    assert expected in problem["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body.query"),
        ({"query": ""}, "body.query"),
        ({"query": 5}, "body.query"),
        ({"query": "x" * 100_001}, "body.query"),
        ({"query": "select 1", "rows": 0}, "body.rows"),
        ({"query": "select 1", "rows": 100_001}, "body.rows"),
        ({"query": "select 1", "seconds": 61}, "body.seconds"),
        ({"query": "select 1", "memory_bytes": 1}, "body.memory_bytes"),
        ({"query": "select 1", "colour": 1}, "body.colour"),
    ],
)
def test_bad_requests_are_explained(api: Api, body: Any, field: str) -> None:
    assert api.refused("POST", "sql", body)["field"] == field


# Limits


def test_a_runaway_query_is_stopped_with_its_process(broker: WebBroker, filled: Api) -> None:
    rows(filled, "select 1")
    before = set(processes(broker))
    assert before
    problem = refused(filled, ENDLESS, seconds=0.5)
    assert problem["field"] == "body.seconds"
    assert "took longer than 0.5 seconds and was stopped" in problem["detail"]
    eventually(lambda: before - set(processes(broker)))
    assert rows(filled, "select count(*) from live where queue = 'well'") == [[2]]  # other queries still work
    assert filled.ask("GET", "/readyz").status == 200


@pytest.mark.parametrize("more", [b"", 50 * b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["one", "more"])
def test_queries_of_disconnected_clients_are_stopped(broker: WebBroker, filled: Api, more: bytes) -> None:
    """As many as may run at once, each of which could run for a minute."""
    rows(filled, "select 1")
    body = json.dumps({"query": ENDLESS, "seconds": 60}).encode()
    head = f"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {filled.token}\r\n"
    sent = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    where = urlsplit(filled.address)
    with ExitStack() as clients:
        for _ in range(AT_A_TIME + MOST_WAITING):
            client = clients.enter_context(socket.create_connection((where.hostname, where.port), timeout=20))
            client.sendall(sent + more)
        eventually(lambda: filled.ask("POST", "/api/v1/sql", {"query": "select 1"}).status == 503)
        busy = set(processes(broker))
    eventually(lambda: filled.ask("POST", "/api/v1/sql", {"query": "select 1"}).status == 200)
    eventually(lambda: len(busy & set(processes(broker))) == 0)


def test_memory_is_limited(filled: Api) -> None:
    problem = refused(filled, "select list(range) from range(100000000)", memory_bytes=32 * 2**20)
    assert problem["field"] == "body.memory_bytes"
    assert rows(filled, "select 1") == [[1]]


def test_a_process_that_dies_is_replaced(broker: WebBroker, filled: Api) -> None:
    rows(filled, "select 1")
    for process in processes(broker):
        os.kill(process, signal.SIGKILL)
    eventually(lambda: not processes(broker))
    assert rows(filled, "select 2") == [[2]]


def test_no_process_outlives_its_broker(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        rows(broker.api, "select 1")
        found = processes(broker)
        assert found
    eventually(lambda: not any(Path(f"/proc/{process}").exists() for process in found))


# Rights


def test_a_caller_sees_only_queues_that_match_its_patterns(filled: Api) -> None:
    other = filled.token_for("other", ["view"], ["other/*"])
    for table in ("messages", "live", "events", "queues"):
        assert rows(other, f"select distinct namespace, queue from {table}") == [["other", "alone"]]
    assert [table["name"] for table in other.get("sql/tables")["items"]] == ["messages", "events", "live", "queues"]
    for table in ("readers", "audit"):
        assert f"there is no table {table}" in refused(other, f"select * from {table}")["detail"]
    assert "there is no table audit" in refused(filled.token_for("all", ["view"], ["*"]), "from audit")["detail"]


def test_a_filter_does_not_bypass_the_patterns(filled: Api) -> None:
    other = filled.token_for("other too", ["view"], ["other/*"])
    for where in ("queue = 'well'", "queue is null", "queue = 'well' or position > 0", "namespace <> 'other'"):
        assert rows(other, f"select queue from messages where {where} and queue is distinct from 'alone'") == []
        assert rows(other, f"select kind from events where {where} and queue is distinct from 'alone'") == []


# Queries that are kept


def test_queries_are_saved_and_deleted(api: Api) -> None:
    api.do("PUT", "sql/queries/b", {"query": "select 2"})
    api.do("PUT", "sql/queries/a%2Fc", {"query": "select 1", "about": "one"})
    api.do("PUT", "sql/queries/b", {"query": "select 3"})
    found = api.get("sql/queries")
    assert [(each["name"], each["query"], each["about"]) for each in found["items"]] == [
        ("a/c", "select 1", "one"),
        ("b", "select 3", ""),
    ]
    assert [each["name"] for each in api.all("sql/queries", limit=1)] == ["a/c", "b"]
    api.do("DELETE", "sql/queries/a%2Fc")
    assert api.refused("DELETE", "sql/queries/a%2Fc")["code"] == "not-found"
    assert api.refused("PUT", "sql/queries/%0A", {"query": "x"})["field"] == "path.name"
    assert [each["name"] for each in api.get("sql/queries")["items"]] == ["b"]
    changes = api.get("audit", action="save-query")["items"]
    assert changes[0]["outcome"] == "refused"
    assert changes[1]["before"] == {"query": "select 2", "about": "", "by": changes[1]["who"]}
