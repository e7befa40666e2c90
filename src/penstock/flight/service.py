"""What the endpoint does, call by call, without a word about Flight's own ways: those are in ``endpoint``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as fl

from penstock.flight import calls
from penstock.flight.access import Caller, Doorman, Peer
from penstock.flight.history import History, schema_of
from penstock.flight.measuring import Measures
from penstock.flight.problems import trouble
from penstock.flight.requests import Allowed
from penstock.flight.settings import Settings


class Service:
    """All calls. Threads may share one."""

    def __init__(self, settings: Settings) -> None:
        self.history = History(settings.data)
        self.measures = Measures(self.history)
        self.doorman = Doorman(self._rights)

    def _rights(self, peer: Peer) -> Allowed:
        return Allowed(open=True)

    # Tables

    def schema(self, call: calls.Read) -> pa.Schema:
        """The columns that a read will have."""
        return schema_of(call)

    def read(self, call: calls.Read, caller: Caller) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a view. What is wrong with the call is told before the first row."""
        return self.history.read(call, caller)

    def write(
        self, call: calls.Write, caller: Caller, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[calls.Written]:
        """Publish chunks."""
        raise trouble("away", "the broker does not answer")

    def flights(self, pick: calls.Pick, caller: Caller) -> Iterator[Any]:
        """A FlightInfo for each queue: how much was published into it, over which range."""
        status = self.history.status()
        for name, counted in self.measures.counts(self.history.queues(pick, caller), status).items():
            call = calls.Read(queue=str(name))
            facts = {"queue": str(name), "identity": status.identity, "earliest": status.earliest}
            facts |= {"latest": status.latest, "messages": counted.messages, "payload_bytes": counted.bytes}
            facts |= {"exact": counted.exact}
            yield _info(call, [call], counted.messages if counted.exact else -1, facts)

    def flight(self, call: calls.Read, caller: Caller) -> Any:
        """A FlightInfo with a ticket for each part of a read."""
        schema_of(call)
        plan = self.measures.plan(
            calls.Plan(
                queue=call.queue, pattern=call.pattern, view=call.view, start=call.start, stop=call.stop,
                partitions=max(call.partitions, 1), identity=call.identity, accept_loss=call.accept_loss,
            ),
            caller,
        )  # fmt: skip
        parts = [
            msgspec.structs.replace(call, start=start, stop=stop, identity=plan.identity, partitions=0)
            for start, stop in plan.ranges
        ]
        return _info(call, parts, -1, {"identity": plan.identity, "losses": plan.losses})

    # Actions

    def act(self, call: calls.Action, caller: Caller) -> Any:
        """The answer to an action."""
        match call:
            case calls.Status():
                return self.history.status()
            case calls.Queues():
                return [str(name) for name in self.history.queues(call, caller)]
            case calls.Locate():
                return self.history.reader.position_at(call.at)
            case calls.Advance():
                return self.measures.advance(call, caller)
            case calls.Plan():
                return self.measures.plan(call, caller)
            case _:
                raise trouble("away", "the broker does not answer")


def _info(call: calls.Read, parts: list[calls.Read], rows: int, facts: dict[str, Any]) -> Any:
    descriptor = fl.FlightDescriptor.for_command(msgspec.json.encode(call))
    endpoints = [fl.FlightEndpoint(msgspec.json.encode(part), []) for part in parts]
    metadata = msgspec.json.encode(facts)
    return fl.FlightInfo(schema_of(call), descriptor, endpoints, rows, -1, ordered=True, app_metadata=metadata)
