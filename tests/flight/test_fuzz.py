"""Random requests get rows or a problem of the client, never an internal error."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.flight as fl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.flight import calls
from penstock.flight.flight_server import ACTIONS
from support.brokers import BrokerProcess
from support.flights import Flight

QUICK = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 100), st.integers(-(2**66), 2**66), st.floats(allow_nan=False),
    st.text(max_size=8), st.sampled_from(["messages", "events", "live", "leased", "default/sspq", "*", "a/b"]),
)  # fmt: skip
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=3), SCALARS, max_size=2))


def fields(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields of a call, most of them with invalid values."""
    names = [*kind.__struct_fields__, "unknown"]
    return st.dictionaries(st.sampled_from(names), VALUES, max_size=5)


def harmless(error: fl.FlightError) -> bool:
    problem = json.loads(error.extra_info)
    return problem["code"] != "internal" and "Traceback" not in str(error)


@QUICK
@given(st.one_of(fields(calls.Read).map(lambda values: json.dumps(values).encode()), st.binary(max_size=20)))
def test_tickets(flight: Flight, ticket: bytes) -> None:
    try:
        flight.read_raw(ticket)
    except fl.FlightError as error:
        assert harmless(error)  # noqa: PT017


@QUICK
@given(st.data())
def test_actions(flight: Flight, data: st.DataObject) -> None:
    kinds = {str(kind.__struct_config__.tag): kind for kind in calls.Action.__args__}
    name = data.draw(st.sampled_from(sorted(ACTIONS)))
    values = data.draw(fields(kinds[name]))
    try:
        flight.act_raw(name, json.dumps(values).encode())
    except fl.FlightError as error:
        assert harmless(error)  # noqa: PT017


@QUICK
@given(fields(calls.Read))
def test_descriptors(flight: Flight, values: dict[str, Any]) -> None:
    try:
        flight.info(**values)
    except fl.FlightError as error:
        assert harmless(error)  # noqa: PT017


def test_no_request_caused_an_internal_error(broker: BrokerProcess) -> None:
    assert "fault" not in broker.log.read_text()
    assert '"error"' not in broker.log.read_text()
