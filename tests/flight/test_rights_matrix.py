"""Every call of the endpoint, by callers with each right and with none.

The calls come from the code, so a new action, view or method without an entry here fails. Without any right every call
is denied with the same message, and responses do not reveal whether a queue, reader or writer exists.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from penstock.companions.rights import Right
from penstock.flight import calls
from penstock.flight.flight_server import ACTIONS, Endpoint
from penstock.flight.machine import machine
from support.brokers import BrokerProcess
from support.flights import Flight, problem

RIGHTS: tuple[Right, ...] = get_args(Right)
ANY: set[str] = set(RIGHTS)
EMPTY = [pa.record_batch({"payload": pa.array([], pa.string()), "queue": pa.array([], pa.string())})]
ROWS = [pa.record_batch({"payload": ["x"]})]
#: The callers' own queue; a queue, reader and writer of another identity; and a name that does not exist.
MINE, SECRET, GONE = "mine", "secret", "gone"

#: Numbers for writers that no test has used before.
NUMBERS = itertools.count()

Call = Callable[[Flight, str], Any]


def action(name: str, **fields: Any) -> Call:
    """A call of the action; in its text fields, ? stands for the requested name."""

    def call(flight: Flight, requested: str) -> Any:
        values = {
            key: value.replace("?", requested) if isinstance(value, str) else value for key, value in fields.items()
        }
        return flight.act(name, **values)

    return call


def described(view: str, queue: str) -> Any:
    values = {"view": view, "reader": queue} if view == "leased" else {"view": view, "queue": f"default/{queue}"}
    return fl.FlightDescriptor.for_command(json.dumps(values).encode())


def get(view: str) -> Call:
    return lambda flight, name: flight.read_raw(described(view, name).command)


def put(batches: list[pa.RecordBatch]) -> Call:
    return lambda flight, name: flight.write(batches, queue=f"default/{name}", writer=f"w-{name}-{next(NUMBERS)}")


def listing(flight: Flight, name: str) -> Any:
    return list(flight.client.list_flights(json.dumps({"queue": f"default/{name}"}).encode(), flight.options))


#: Each call, and the rights for the queue; one of them is needed.
CALLS: dict[str, tuple[set[str], Call]] = {
    "status": (ANY, action("status")),
    "locate": (ANY, action("locate", at=0)),
    "queues": ({"read"}, action("queues", queue="default/?")),
    "queues to consume": ({"consume"}, action("queues", queue="default/?", right="consume")),
    "queues to publish to": ({"publish"}, action("queues", queue="default/?", right="publish")),
    "advance": ({"read"}, action("advance", queue="default/?", start=1)),
    "plan": ({"read"}, action("plan", queue="default/?")),
    "share": ({"read"}, action("share", queue="default/?", machine=machine())),
    "progress": ({"read"}, action("progress", queue="default/?", position=1)),
    "progress of a name": ({"read"}, action("progress", queue="default/?", position=1, reader="p-?")),
    "progress of leases": ({"consume"}, action("progress", queue="default/?", position=1, view="leased")),
    "readers": ({"read", "consume", "administer"}, action("readers")),
    "forget-reader": ({"read", "consume", "administer"}, action("forget-reader", reader="?")),
    "lease": ({"consume"}, action("lease", queue="default/?", reader="l-?", instance="1", start=0)),
    "check-written": ({"publish"}, action("check-written", writer="?", epoch=0, parts=[])),
    "end-writer": ({"publish", "administer"}, action("end-writer", writer="?")),
    "writers": ({"publish", "administer"}, action("writers")),
    "list_actions": (ANY, lambda flight, name: flight.client.list_actions(flight.options)),
    "list_flights": ({"read"}, listing),
    "do_put": ({"publish"}, put(ROWS)),
    "do_put of nothing": ({"publish"}, put(EMPTY)),
    **{f"do_get {view}": ({"consume"} if view == "leased" else {"read"}, get(view)) for view in get_args(calls.View)},
    **{
        f"get_flight_info {view}": (
            {"consume"} if view == "leased" else {"read"},
            lambda flight, name, view=view: flight.client.get_flight_info(described(view, name), flight.options),  # type: ignore[misc]
        )
        for view in get_args(calls.View)
    },
}
#: Calls that concern no queue.
ABOUT_NONE = {"status", "locate", "readers", "forget-reader", "check-written", "end-writer", "writers", "list_actions"}
ABOUT_NONE |= {"do_get leased", "get_flight_info leased"}


def test_every_call_has_an_entry() -> None:
    known = {name.split(" ")[0] for name in CALLS}
    assert set(ACTIONS) <= known
    own = {name for name in vars(Endpoint) if not name.startswith("_") and hasattr(fl.FlightServerBase, name)}
    # get_schema only returns the columns of a view, which are the same for every caller.
    assert own - {"do_action", "get_schema"} <= known
    assert {view for name in CALLS for view in name.split(" ")[1:]} >= set(get_args(calls.View))


def rule(token: str, may: list[str], where: str) -> dict[str, Any]:
    return {"token_sha256": hashlib.sha256(token.encode()).hexdigest(), "may": may, "where": [where]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    rules = [rule(right, [right], f"default/{MINE}") for right in RIGHTS]
    rules += [rule("boss", list(RIGHTS), "*"), rule("nothing", [], "*"), rule("nowhere", list(RIGHTS), "?")]
    rules[-1]["where"] = []
    options: dict[str, Any] = {"flight": {"address": "127.0.0.1:0"}, "access": rules}
    options["queues"] = {f"default/{name}": {} for name in (MINE, SECRET)}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), **options) as live:
        with Flight(live.addresses["flight"], token="boss") as boss:
            for name in (MINE, SECRET):
                boss.write(ROWS, queue=f"default/{name}", writer=SECRET, partition=len(name))
            boss.act("progress", queue=f"default/{SECRET}", reader=SECRET, position=1, pin=True)
            boss.act("lease", queue=f"default/{SECRET}", reader=SECRET, instance="1", start=0)
        yield live


def answer(call: Call, flight: Flight, name: str) -> Any:
    """The problem's code and text without the name, or None if the call succeeded."""
    try:
        call(flight, name)
    except fl.FlightError as error:
        found = json.loads(error.extra_info)
        return found["code"], found["text"].replace(name, "?")
    return None


@pytest.mark.parametrize("token", ["", "nothing", "nowhere"])
def test_without_a_right_every_call_is_denied_with_the_same_message(broker: BrokerProcess, token: str) -> None:
    with Flight(broker.addresses["flight"], token=token) as flight:
        answers = {answer(call, flight, name) for _, call in CALLS.values() for name in (MINE, SECRET, GONE)}
        assert answers == {("denied", "the access rules do not let you do anything")}
        for raw in (lambda: flight.act_raw("no-such-action", b"{"), lambda: flight.read_raw(b"nonsense")):
            assert problem(raw).code == "denied"


@pytest.mark.parametrize("right", RIGHTS)
def test_each_right_allows_exactly_its_calls(broker: BrokerProcess, right: Right) -> None:
    with Flight(broker.addresses["flight"], token=right) as flight:
        for name, (needs, call) in CALLS.items():
            found = answer(call, flight, MINE)
            denied = found is not None and found[0] == "denied"
            assert denied == (right not in needs), (name, found)


@pytest.mark.parametrize("right", RIGHTS)
def test_no_right_reveals_queues_outside_its_pattern(broker: BrokerProcess, right: Right) -> None:
    """They are denied with the same message whether they exist or not."""
    with Flight(broker.addresses["flight"], token=right) as flight:
        for name in CALLS.keys() - ABOUT_NONE:
            call = CALLS[name][1]
            secret, gone = answer(call, flight, SECRET), answer(call, flight, GONE)
            assert secret == gone, name
            assert secret is not None, name
            assert secret[0] == "denied", name
