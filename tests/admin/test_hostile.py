"""Hostile requests against a real broker: none may slow down other callers."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.companions.bounded_toml import PARTS
from support.brokers import companion
from support.effort import processor_seconds
from support.flights import Flight
from support.web import Api, WebBroker, path_of


def test_a_pattern_delays_no_one(broker: WebBroker, api: Api) -> None:
    """Even for the longest possible name, sent with a token that has almost no rights."""
    name = f"hostile/{'a' * 255}"
    api.do("PUT", f"queues/{path_of(name)}", {})
    viewer = api.token_for("viewer", ["view"], ["hostile/*"])
    for pattern in ("hostile/" + "*a" * 12 + "b", "*a" * 120 + "/" + "*?" * 120 + "b"):
        assert viewer.get("queues", pattern=pattern)["items"] == []
    assert viewer.get("queues", pattern="hostile/" + "*a" * 12)["total"] == 1
    assert Api(api.address).ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{'.'.join('a' * 400)} = 1", "line 1 is nested too deeply"),
        (f"[{'.'.join('a' * 400)}]", "line 1 is nested too deeply"),
        (f"a = {'[' * 400}{']' * 400}", "line 1 is nested too deeply"),
        ("\n" * 9 + "a = {" + "a = {" * 400, "line 10 is nested too deeply"),
        ("".join(f"a{number} = 1\n" for number in range(PARTS + 1)), "too many keys"),
        (f"a = {'9' * 100_000}", "digits"),
    ],
    ids=["key", "table", "array", "inline table", "keys", "digits"],
)
def test_definitions_are_bounded_before_they_are_parsed(api: Api, text: str, expected: str) -> None:
    answer = api.ask("POST", "/api/v1/definitions", text.encode(), {"content-type": "application/toml"}, dry_run=True)
    assert (answer.status, answer.value["field"]) == (400, "body")
    assert expected in answer.value["detail"]


def test_others_are_served_while_definitions_are_parsed(broker: WebBroker, api: Api) -> None:
    """As many definitions as allowed: parsing takes seconds, and the loop keeps running."""
    queues = [f'[queues."default/imported-{number}"]' for number in range(9_000)]
    text = "\n".join(queues).encode()
    with ThreadPoolExecutor(1) as pool:
        headers = {"content-type": "application/toml"}
        pending = pool.submit(api.ask, "POST", "/api/v1/definitions", text, headers, dry_run=True)
        answers = 0
        while not pending.done():
            assert Api(api.address).ask("GET", "/healthz").status == 200
            answers += 1
        assert pending.result().status == 200
        assert len(pending.result().value["changes"]) >= 9_000
    assert answers > 1


def test_the_http_process_has_a_memory_limit(broker: WebBroker) -> None:
    soft, _ = resource.prlimit(companion(broker, "penstock.admin"), resource.RLIMIT_DATA)
    assert 2**30 < soft < 2**32


def test_hostile_patterns_cost_the_companions_next_to_nothing(tmp_path: Path) -> None:
    """Measured in CPU time of their processes, for a hundred of the longest names."""
    with WebBroker(tmp_path, flight="127.0.0.1:0") as broker:
        api = broker.api
        names = [f"hostile/{'a' * 240}{number}" for number in range(100)]
        api.do("POST", "definitions", {"queues": {name: {} for name in names}})
        viewer = api.token_for("viewer", ["view", "read"], ["hostile/*"])
        companions = [companion(broker, module) for module in ("penstock.admin", "penstock.flight")]
        before = [processor_seconds(pid) for pid in companions]
        patterns = [f"hostile/{'*a' * stars}b" for stars in range(1, 100)]
        with Flight(broker.addresses["flight"], token=viewer.token) as flight:
            for pattern in patterns:
                assert viewer.get("queues", pattern=pattern)["items"] == []
                assert flight.act("queues", pattern=pattern) == []
        took = [processor_seconds(pid) - was for pid, was in zip(companions, before, strict=True)]
        assert max(took) < 10, took
