"""A client of the Flight endpoint for tests: calls as keyword arguments, problems as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from penstock.flight.calls import Problem


class Flight:
    """A connection to an endpoint."""

    def __init__(self, address: str, *, token: str = "", **tls: Any) -> None:
        self.client = fl.FlightClient(address, **tls)
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self.options = fl.FlightCallOptions(headers=headers, timeout=60)

    def __enter__(self) -> Flight:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def act(self, action: str, **values: Any) -> Any:
        """The answer to an action."""
        return self.act_raw(action, json.dumps(values).encode())

    def act_raw(self, action: str, body: bytes) -> Any:
        [result] = self.client.do_action(fl.Action(action, body), self.options)
        return json.loads(result.body.to_pybytes())

    def read(self, **values: Any) -> pa.Table:
        """All rows of a read."""
        return self.read_raw(json.dumps(values).encode())

    def read_raw(self, ticket: bytes) -> pa.Table:
        return self.client.do_get(fl.Ticket(ticket), self.options).read_all()

    def rows(self, **values: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.read(**values).to_pylist()
        return rows

    def info(self, **values: Any) -> Any:
        return self.client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(values).encode()), self.options)

    def write(self, batches: Sequence[pa.RecordBatch], **values: Any) -> list[dict[str, Any]]:
        """Publish batches, and return the answer to each."""
        descriptor = fl.FlightDescriptor.for_command(json.dumps({"writer": "w", **values}).encode())
        writer, metadata = self.client.do_put(descriptor, batches[0].schema, self.options)
        answers = []
        try:
            for batch in batches:
                writer.write_batch(batch)
                answer = metadata.read()
                if answer is None:
                    break
                answers.append(json.loads(answer.to_pybytes()))
            writer.close()
        except BaseException:
            with suppress(pa.ArrowException):
                writer.close()
            raise
        return answers


def problem(call: Callable[[], Any]) -> Problem:
    """The problem that a call raises."""
    with pytest.raises(fl.FlightError) as caught:
        call()
    text = str(caught.value)
    problem = msgspec.json.decode(caught.value.extra_info, type=Problem)
    assert text.startswith(problem.text)
    assert "Traceback" not in text
    return problem
