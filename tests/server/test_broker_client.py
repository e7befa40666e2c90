"""Requests to the broker: connections that are kept, that break, and that are not answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Protocol, TypeVar

import msgspec
import pytest

from penstock.companions.broker_client import AsyncBrokerClient, BrokerAway, BrokerClient
from penstock.companions.framing import FRAME_BYTES, BrokerRefused, Refusal, Request
from penstock.companions.readers_and_writers import DropWriter, ReaderRow, Readers
from penstock.companions.rights import Allowed, AskRights
from penstock.flight.flight_requests import OutNow, Outs

LENGTH = Struct("<I")
T = TypeVar("T")


class Listener:
    """The broker's end: answers each request with ``answer``; None closes the connection instead."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: Callable[[Any], bytes | None] = lambda request: b""
        self.connections = 0
        self.requests: list[Any] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                request = msgspec.msgpack.decode(stream.read(LENGTH.unpack(head)[0]))
                self.requests.append(request)
                answer = self.answer(request)
                if answer is None:
                    return
                connection.sendall(answer)

    def hang_up(self) -> None:
        """Close all connections, like a stopping broker."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self.hang_up()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)
        self.path.unlink()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path / "socket")
    yield listener
    listener.close()


class Door(Protocol):
    """The interface that both clients share."""

    def ask(self, request: Request, kind: type[T]) -> T: ...

    def close(self) -> None: ...


class Waited:
    """``AsyncBrokerClient`` with a blocking interface, on its own loop."""

    def __init__(self, path: str, patience: float) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncBrokerClient(path, patience)

    def ask(self, request: Request, kind: type[T]) -> T:
        return self._runner.run(self._client.ask(request, kind))

    def close(self) -> None:
        async def close() -> None:
            self._client.close()

        self._runner.run(close())
        self._runner.close()


@pytest.fixture(params=[BrokerClient, Waited])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[Path, float], Door]]:
    doors: list[Door] = []

    def connect(path: Path, patience: float = 5) -> Door:
        doors.append(request.param(str(path), patience))
        return doors[-1]

    yield connect
    for door in doors:
        door.close()


@pytest.fixture
def door(listener: Listener, make: Callable[[Path], Door]) -> Door:
    return make(listener.path)


def framed(value: object) -> bytes:
    data = msgspec.msgpack.encode(value)
    return LENGTH.pack(len(data)) + data


def test_a_request_and_its_answer(listener: Listener, door: Door) -> None:
    out = OutNow(position=7, messages=b"\x01" * 16)
    listener.answer = lambda request: framed(out)
    assert door.ask(Outs(), OutNow) == out
    assert listener.requests == [{"type": "outs"}]


def test_lists_and_plain_values(listener: Listener, door: Door) -> None:
    reader = ReaderRow(
        reader="r", view="v", where="w", position=1, lag_rows=2, lag_seconds=3.0, pin=False, peer="p", at=4
    )
    listener.answer = lambda request: framed([reader])
    assert door.ask(Readers(), list[ReaderRow]) == [reader]
    listener.answer = lambda request: framed(True)
    assert door.ask(Readers(), bool) is True


def test_a_refusal_is_raised(listener: Listener, door: Door) -> None:
    for refusal in (Refusal(code="refused", text="full"), Refusal(code="stale", text="full", field="body.x")):
        listener.answer = lambda request, refusal=refusal: framed(refusal)  # type: ignore[misc]
        with pytest.raises(BrokerRefused, match="full") as caught:
            door.ask(Outs(), OutNow)
        assert caught.value.refusal == refusal


def test_a_connection_is_used_again(listener: Listener, door: Door) -> None:
    listener.answer = lambda request: framed(Allowed(open=True))
    for _ in range(5):
        assert door.ask(AskRights(address="x"), Allowed).open
    assert listener.connections == 1


def test_a_process_with_many_files_uses_its_connections_again(listener: Listener, door: Door) -> None:
    listener.answer = lambda request: framed(Allowed(open=True))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.enter_context(open(os.devnull, "rb"))
        for _ in range(2):
            assert door.ask(AskRights(address="x"), Allowed).open
    assert listener.connections == 1


def test_a_connection_closed_meanwhile_is_replaced(listener: Listener, door: Door) -> None:
    listener.answer = lambda request: framed(Allowed(open=True))
    door.ask(AskRights(address="x"), Allowed)
    listener.hang_up()
    assert door.ask(AskRights(address="x"), Allowed).open
    assert listener.connections == 2


def test_a_broker_that_hangs_up_is_away(listener: Listener, door: Door) -> None:
    listener.answer = lambda request: None
    assert _away(door)
    listener.answer = lambda request: framed(Allowed(open=True))
    assert door.ask(AskRights(address="x"), Allowed).open


def test_a_change_is_not_sent_twice(listener: Listener, door: Door) -> None:
    listener.answer = lambda request: framed(True)
    change = DropWriter(name="w", over="flight")
    assert door.ask(change, bool)
    listener.answer = lambda request: None
    with pytest.raises(BrokerAway, match="check whether the change was made"):
        door.ask(change, bool)
    assert len(listener.requests) == 2


def test_a_frame_that_is_too_long_is_away(listener: Listener, door: Door) -> None:
    listener.answer = lambda request: LENGTH.pack(FRAME_BYTES + 1)
    assert _away(door)


def test_no_broker_there(tmp_path: Path, make: Callable[[Path], Door]) -> None:
    assert _away(make(tmp_path / "missing"))


def test_no_answer_in_time(listener: Listener, make: Callable[[Path, float], Door]) -> None:
    done = threading.Event()

    def wait(request: Any) -> None:
        done.wait(10)

    listener.answer = wait
    assert _away(make(listener.path, 0.05))
    done.set()


def _away(door: Door) -> bool:
    with pytest.raises(BrokerAway, match="the broker does not answer"):
        door.ask(AskRights(address="x"), Allowed)
    return True
