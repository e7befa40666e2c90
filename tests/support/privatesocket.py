"""A minimal client of the broker's private socket, in place of the Flight endpoint."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.companions.framing import Refusal
from penstock.flight import flight_requests as requests
from penstock.flight.calls import Written
from penstock.server.companions.request_table import RequestTable
from penstock.server.companions.shared_requests import SharedRequests
from penstock.server.flight.lease_requests import LeaseRequests
from penstock.server.flight.write_requests import WriteRequests
from penstock.server.network.runtime import Runtime

T = TypeVar("T")


def flight_table(runtime: Runtime) -> RequestTable:
    """The request table of a broker without HTTP."""
    rooms = (SharedRequests(runtime), LeaseRequests(runtime), WriteRequests(runtime))
    return RequestTable(runtime, {kind: handler for room in rooms for kind, handler in room.handlers.items()})


class Helper:
    """A connection. Answers are decoded as the expected type, or as a ``Refusal``."""

    def __init__(self, path: str | Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(15)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def send(self, request: Any) -> None:
        """Send a request without waiting for its answer."""
        self.send_raw(msgspec.msgpack.encode(request))

    def send_raw(self, frame: bytes) -> None:
        """Send any bytes as a frame."""
        self.socket.sendall(struct.pack("<I", len(frame)) + frame)

    def read(self, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def answer(self, kind: type[T]) -> T:
        """The next answer, which must be of this kind."""
        frame = self.read(*struct.unpack("<I", self.read(4)))
        answer = msgspec.msgpack.decode(frame)
        assert not (isinstance(answer, dict) and "code" in answer), answer
        return msgspec.msgpack.decode(frame, type=kind)

    def ask(self, request: Any, kind: type[T]) -> T:
        """Ask and get an answer of this kind."""
        self.send(request)
        return self.answer(kind)

    def refusal(self, request: Any = None) -> Refusal:
        """The refusal of this request, or of the one sent last."""
        if request is not None:
            self.send(request)
        return msgspec.msgpack.decode(self.read(*struct.unpack("<I", self.read(4))), type=Refusal)

    def lease(self, start: int = 0, reader: str = "lake", **more: Any) -> requests.Leased:
        """Lease from queues (default: default/a)."""
        return self.ask(lease(start, reader, **more), requests.Leased)

    def rows(self, leased: requests.Leased, reader: str = "lake") -> list[int]:
        """The messages of leases."""
        request = requests.LeasedRows(reader=reader, start=leased.first, stop=leased.stop)
        return list(memoryview(self.ask(request, requests.LeasedMessages).messages).cast("Q"))

    def write(self, payloads: list[bytes], chunk: int = 0, **more: Any) -> Written:
        """Write a chunk (default: to default/a)."""
        return self.ask(write(payloads, chunk, **more), Written)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def lease(start: int = 0, reader: str = "lake", **more: Any) -> requests.TakeLease:
    """A request with default values."""
    usual: dict[str, Any] = {
        "instance": "one", "queues": ["default/a"], "max_rows": 0, "max_bytes": 0, "may": ["*"],
        "timeout": 3600 * 1_000_000,
    }  # fmt: skip
    return requests.TakeLease(reader=reader, start=start, **(usual | more))


def write(payloads: list[bytes], chunk: int = 0, **more: Any) -> requests.Write:
    """A request with default values."""
    usual: dict[str, Any] = {
        "writer": "job", "epoch": 0, "partition": 0, "queues": ["default/a"], "queue": bytes(4 * len(payloads))
    }  # fmt: skip
    return requests.Write(chunk=chunk, payloads=payloads, **(usual | more))
