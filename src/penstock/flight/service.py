"""Carries out calls, independently of Flight's own types, which ``flight_server`` handles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as fl

from penstock.companions.broker_client import BrokerClient
from penstock.companions.readers_and_writers import DropReader, DropWriter, ReaderRow, Readers, WriterRow, Writers
from penstock.companions.rights import Allowed, AskRights
from penstock.companions.settings import CompanionSettings
from penstock.flight import calls
from penstock.flight import flight_requests as requests
from penstock.flight.access import Caller, Callers, Peer, queue_filter, queue_name
from penstock.flight.history import History
from penstock.flight.leased import read_leased
from penstock.flight.live import Live
from penstock.flight.plans import Measures
from penstock.flight.problems import trouble
from penstock.flight.sharing import share
from penstock.flight.views import schema
from penstock.flight.writes import as_request, check_schema
from penstock.journal import open_journal

#: The largest position, number of rows or bytes, or time in microseconds: 63 bits.
MOST = 2**63 - 1
#: The longest name of a reader or a writer.
NAME_BYTES = 255


class FlightService:
    """Implements all calls. Threads may share one."""

    def __init__(self, settings: CompanionSettings) -> None:
        self.broker = BrokerClient(settings.broker_socket)
        self.history = History(open_journal(settings.journal).follow())
        self.measures = Measures(self.history)
        self.live = Live(self.history, lambda: self.broker.ask(requests.Outs(), requests.OutNow))
        self.callers = Callers(self._rights)

    def _rights(self, peer: Peer) -> Allowed:
        question = AskRights(address=peer.address, subject=peer.subject, token=peer.token)
        return self.broker.ask(question, Allowed)

    # Tables

    def schema(self, call: calls.Read) -> pa.Schema:
        """The columns of a read."""
        return schema(call.view, call.columns)

    def read(self, call: calls.Read, caller: Caller) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a view. Errors in the call are raised before the first row."""
        shape = self.schema(call)
        _check_numbers(call)
        if call.view == "leased":
            return shape, read_leased(self.history, self._leased_rows, call, caller)
        if call.view == "live":
            return shape, self._read_live(call, caller)
        return shape, self.history.read(call, caller)

    def _read_live(self, call: calls.Read, caller: Caller) -> Iterator[pa.RecordBatch]:
        if call.start or call.stop:
            raise trouble("bad-request", "the view live has no range: leave start and stop out")
        self.history.check_identity(call.identity)
        return self.live.read(call.columns, self.history.chooser(call, caller))

    def _leased_rows(self, request: requests.LeasedRows) -> requests.LeasedMessages:
        return self.broker.ask(request, requests.LeasedMessages)

    def write(
        self, call: calls.Write, caller: Caller, shape: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[calls.Written]:
        """Publish chunks as they are read, and confirm each once it is durable."""
        _check_numbers(call)
        _check_name("writer", call.writer)
        caller.demand_somewhere("publish")
        check_schema(shape)
        for number, batch in enumerate(batches, call.chunk):
            if call.digest and number > call.chunk:
                raise trouble("bad-request", "a call with a digest has one batch: send the next in another call")
            request = as_request(call, number, batch, caller.peer.name, caller.identity)
            self._check_publish(request, call.queue, caller)
            yield self.broker.ask(request, calls.Written)

    def _check_publish(self, request: requests.Write, otherwise: str, caller: Caller) -> None:
        """Require the right to publish. A chunk without rows only registers its writer, for the descriptor's queue."""
        wanted = request.queues or ([otherwise] if otherwise else [])
        names = [queue_name(name) for name in wanted]
        for name in names:
            caller.demand("publish", name)
        if request.create_queues and not caller.may_everywhere("administer"):
            for name in sorted(set(names).difference(self.history.names())):
                caller.demand("administer", name)

    def flights(self, pick: calls.Pick, caller: Caller) -> Iterator[Any]:
        """A FlightInfo for each queue, with its number of published messages and their range."""
        status = self.history.status()
        for name, counted in self.measures.counts(self.history.queues(pick, caller), status).items():
            call = calls.Read(queue=str(name))
            facts = {"queue": str(name), "identity": status.identity, "earliest": status.earliest}
            facts |= {"latest": status.latest, "messages": counted.messages, "payload_bytes": counted.bytes}
            facts |= {"exact": counted.exact}
            yield _info(call, [call], counted.messages if counted.exact else -1, facts)

    def flight(self, call: calls.Read, caller: Caller) -> Any:
        """A FlightInfo with a ticket for each part of a read."""
        self.schema(call)
        _check_numbers(call)
        if call.view in ("live", "leased"):
            self._check_view(call, caller)
            return _info(call, [call], -1, {"identity": f"{self.history.reader.identity:016x}"})
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

    def _check_view(self, call: calls.Read, caller: Caller) -> None:
        """Check the rights on a view without a range, which no plan has checked."""
        if call.view == "leased":
            caller.demand_somewhere("consume")
        else:
            self.history.chooser(call, caller)

    # Actions

    def act(self, call: calls.Action, caller: Caller) -> Any:
        """The answer to an action."""
        _check_numbers(call)
        match call:
            case calls.Status():
                return self.history.status()
            case calls.Queues():
                return [str(name) for name in self.history.queues(call, caller, call.right)]
            case calls.Locate():
                return self.history.reader.position_at(call.at)
            case calls.Advance():
                return self.measures.advance(call, caller)
            case calls.Plan():
                return self.measures.plan(call, caller)
            case calls.Share():
                return share(self.history, call, caller)
            case calls.Progress():
                return self._progress(call, caller)
            case calls.TakeLease():
                return self._lease(call, caller)
            case calls.Readers():
                return self._readers(caller)
            case calls.ForgetReader():
                caller.demand_one_of("read", "consume", "administer")
                return self.broker.ask(DropReader(name=call.reader, owner=caller.manages, over="flight"), bool)
            case calls.CheckWritten():
                caller.demand_somewhere("publish")
                request = requests.CheckWritten(
                    writer=call.writer, epoch=call.epoch, parts=call.parts, owner=caller.identity
                )
                return self.broker.ask(request, bool)
            case calls.EndWriter():
                caller.demand_one_of("publish", "administer")
                return self.broker.ask(DropWriter(name=call.writer, owner=caller.manages, over="flight"), bool)
            case calls.Writers():
                caller.demand_one_of("publish", "administer")
                return self.broker.ask(Writers(owner=caller.manages), list[WriterRow])

    def _readers(self, caller: Caller) -> list[ReaderRow]:
        """The caller's own readers, and those of queues that it may read: names of other queues stay hidden."""
        caller.demand_one_of("read", "consume", "administer")
        readers = self.broker.ask(Readers(), list[ReaderRow])
        if caller.may_everywhere("read") or not caller.manages:
            return readers
        names = {str(name) for name in self.history.names() if caller.may("read", name)}
        return [reader for reader in readers if reader.owner == caller.identity or reader.where in names]

    def _progress(self, call: calls.Progress, caller: Caller) -> calls.Lag:
        self.history.check_identity(call.identity)
        if call.view == "leased":
            lag = self._waiting(call, caller)
        else:
            lag = self.measures.lag(queue_filter(call, caller, "read"), call.view, call.position)
        if not call.reader:
            return lag
        _check_name("reader", call.reader)
        report = requests.Report(
            reader=call.reader,
            view=call.view,
            where=call.queue or call.pattern or "*",
            position=call.position,
            lag_rows=lag.rows,
            lag_seconds=lag.seconds,
            lost_from=lag.lost_from,
            pin=call.pin,
            peer=caller.peer.name,
            owner=caller.identity,
        )
        self.broker.ask(report, bool)
        return lag

    def _waiting(self, call: calls.Progress, caller: Caller) -> calls.Lag:
        """The rows that a consuming reader could still lease."""
        queues = [str(name) for name in self.history.queues(call, caller, "consume")]
        waits = self.broker.ask(requests.Waiting(queues=queues), requests.Waits)
        return self.measures.waiting(waits.rows, waits.place)

    def _lease(self, call: calls.TakeLease, caller: Caller) -> requests.Leased:
        _check_name("reader", call.reader)
        _check_name("instance", call.instance)
        if call.timeout <= 0:
            raise trouble("bad-request", "the timeout of a lease must be above 0 (microseconds)")
        self.history.check_identity(call.identity)
        queues = [str(name) for name in self.history.queues(call, caller, "consume")]
        if call.queue and not queues:
            raise trouble("no-queue", f"there is no queue {call.queue}")
        request = requests.TakeLease(
            reader=call.reader,
            instance=call.instance,
            queues=queues,
            start=call.start,
            max_rows=call.max_rows,
            max_bytes=call.max_bytes,
            timeout=call.timeout,
            take=call.take,
            may=caller.patterns("consume"),
            owner=caller.identity,
        )
        return self.broker.ask(request, requests.Leased)


def _check_numbers(call: msgspec.Struct) -> None:
    """All numbers must be counts. Only a time may be negative, before 1970."""
    for name in call.__struct_fields__:
        value = getattr(call, name)
        least = -MOST if name == "at" else 0
        if isinstance(value, int) and not least <= value <= MOST:
            raise trouble("bad-request", f"{name} is {value}; it must be a number from {least} to {MOST}")


def _check_name(what: str, name: str) -> None:
    if not name or len(name.encode()) > NAME_BYTES or not name.isprintable():
        raise trouble("bad-request", f"{what} must be a printable name of 1 to {NAME_BYTES} bytes")


def _info(call: calls.Read, parts: list[calls.Read], rows: int, facts: dict[str, Any]) -> Any:
    descriptor = fl.FlightDescriptor.for_command(msgspec.json.encode(call))
    endpoints = [fl.FlightEndpoint(msgspec.json.encode(part), []) for part in parts]
    metadata = msgspec.json.encode(facts)
    shape = schema(call.view, call.columns)
    return fl.FlightInfo(shape, descriptor, endpoints, rows, -1, ordered=True, app_metadata=metadata)
