"""The Flight server: decodes JSON calls, passes them to the service, and turns every error into a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as fl

from penstock.flight import calls
from penstock.flight.problems import flight_errors, trouble
from penstock.flight.service import FlightService

#: Bytes of a ticket, a descriptor's command or an action's body; the positions of a large lease are the longest.
REQUEST_BYTES = 8 * 2**20


class Endpoint(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """The Flight server. ``calls`` documents its calls, which run in threads of gRPC.

    The caller is identified before its call is decoded: a peer without any right learns nothing that is not public.
    """

    def __init__(
        self, address: str, service: FlightService, report: Callable[[BaseException], None], **how: Any
    ) -> None:
        """``address`` is as in the options. Raises pyarrow's error if it can't listen there."""
        self._service = service
        self._report = report
        scheme = "grpc+unix" if address.startswith("unix:") else "grpc+tls" if "tls_certificates" in how else "grpc"
        where = address.removeprefix("unix:")
        super().__init__(f"{scheme}://{where}", **how)
        if not address.startswith("unix:"):
            where = f"{address.rpartition(':')[0]}:{self.port}"
        #: The bound address, as clients write it.
        self.public_address = f"{scheme}://{where}"

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Stream a range of a view."""
        with flight_errors(self._report):
            caller = self._service.callers.caller(context)
            schema, batches = self._service.read(_decoded(ticket.ticket, calls.Read), caller)
            return fl.GeneratorStream(schema, self._guarded(batches))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Publish chunks of messages."""
        with flight_errors(self._report):
            caller = self._service.callers.caller(context)
            call = _decoded(descriptor.command or b"", calls.Write)
            batches = (chunk.data for chunk in reader if chunk.data is not None)
            for written in self._service.write(call, caller, reader.schema, batches):
                try:
                    writer.write(pa.py_buffer(msgspec.json.encode(written)))
                except OSError:  # the client is gone; it repeats unconfirmed chunks when it is back
                    return

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Run an action; yields one JSON value."""
        with flight_errors(self._report):
            caller = self._service.callers.caller(context)
            body = action.body.to_pybytes() if action.body is not None else b""
            answer = self._service.act(_action(action.type, body), caller)
            return iter([fl.Result(pa.py_buffer(msgspec.json.encode(answer)))])

    def list_actions(self, context: Any) -> list[Any]:
        """Names and descriptions of all actions."""
        with flight_errors(self._report):
            self._service.callers.caller(context)
            return [fl.ActionType(name, text) for name, text in ACTIONS.items()]

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """One FlightInfo for each queue."""
        with flight_errors(self._report):
            caller = self._service.callers.caller(context)
            return iter(list(self._service.flights(_decoded(bytes(criteria) or b"{}", calls.Pick), caller)))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Tickets for the parts of a range."""
        with flight_errors(self._report):
            caller = self._service.callers.caller(context)
            return self._service.flight(_described(descriptor), caller)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The columns of a view. The same for everyone, so the caller is not identified."""
        with flight_errors(self._report):
            return fl.SchemaResult(self._service.schema(_described(descriptor)))

    def _guarded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with flight_errors(self._report):
            yield from batches


def _described(descriptor: Any) -> calls.Read:
    """Decode a descriptor: a command, or a path that names a queue."""
    if descriptor.command is not None and descriptor.descriptor_type == fl.DescriptorType.CMD:
        call: calls.Read = _decoded(descriptor.command, calls.Read)
        return call
    path = [part.decode("utf-8", "replace") for part in descriptor.path or []]
    return calls.Read(queue="/".join(path))


def _check_size(data: bytes) -> None:
    if len(data) > REQUEST_BYTES:
        raise trouble("bad-request", f"a request has {len(data)} bytes: at most {REQUEST_BYTES}")


def _decoded(data: bytes, kind: Any) -> Any:
    _check_size(data)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        known = ", ".join(kind.__struct_fields__)
        raise trouble("bad-request", f"{error}; expected JSON with these fields: {known}") from None


def _action(name: str, body: bytes) -> calls.Action:
    """The action with this name; the body need not repeat the name."""
    if name not in ACTIONS:
        raise trouble("bad-request", f"there is no action {name[:100]!r}; there are: {', '.join(ACTIONS)}")
    _check_size(body)
    try:
        values = msgspec.json.decode(body) if body.strip() else {}
        if not isinstance(values, dict) or values.setdefault("type", name) != name:
            raise trouble("bad-request", f"the body of the action {name} must be a JSON object of that type")
        call: calls.Action = msgspec.convert(values, calls.Action)
        return call
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise trouble("bad-request", f"action {name}: {error}") from None


def _about(kind: type) -> str:
    return (kind.__doc__ or "").removeprefix("Action: ").split("\n")[0]


ACTIONS: dict[str, str] = {str(kind.__struct_config__.tag): _about(kind) for kind in calls.Action.__args__}
