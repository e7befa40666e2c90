"""Asking the broker: connections that are kept, that break, and that nobody answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec
import pytest

from penstock.endpoint.readers_and_writers import ReaderRow
from penstock.endpoint.rights import Allowed, AskRights
from penstock.flight.broker import BrokerClient
from penstock.flight.calls import Problem
from penstock.flight.flight_requests import FRAME_BYTES, OutNow, Outs, Readers
from penstock.flight.problems import Trouble

LENGTH = Struct("<I")


class Listener:
    """A broker's end that answers each request with what it is told to; None closes the connection instead."""

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
        """Close all connections, as a broker that ends does."""
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
    found = Listener(tmp_path / "socket")
    yield found
    found.close()


@pytest.fixture
def door(listener: Listener) -> Iterator[BrokerClient]:
    found = BrokerClient(str(listener.path), patience=5)
    yield found
    found.close()


def framed(value: object) -> bytes:
    data = msgspec.msgpack.encode(value)
    return LENGTH.pack(len(data)) + data


def test_a_question_and_its_answer(listener: Listener, door: BrokerClient) -> None:
    out = OutNow(position=7, messages=b"\x01" * 16)
    listener.answer = lambda request: framed(out)
    assert door.ask(Outs(), OutNow) == out
    assert listener.requests == [{"type": "outs"}]


def test_lists_and_plain_values(listener: Listener, door: BrokerClient) -> None:
    reader = ReaderRow(
        reader="r", view="v", where="w", position=1, lag_rows=2, lag_seconds=3.0, pin=False, peer="p", at=4
    )
    listener.answer = lambda request: framed([reader])
    assert door.ask(Readers(), list[ReaderRow]) == [reader]
    listener.answer = lambda request: framed(True)
    assert door.ask(Readers(), bool) is True


def test_a_problem_is_raised(listener: Listener, door: BrokerClient) -> None:
    listener.answer = lambda request: framed(Problem(code="refused", text="full"))
    with pytest.raises(Trouble, match="full") as caught:
        door.ask(Outs(), OutNow)
    assert caught.value.problem.code == "refused"


def test_a_connection_is_used_again(listener: Listener, door: BrokerClient) -> None:
    listener.answer = lambda request: framed(Allowed(open=True))
    for _ in range(5):
        assert door.ask(AskRights(address="x"), Allowed).open
    assert listener.connections == 1


def test_one_that_was_closed_meanwhile_is_replaced(listener: Listener, door: BrokerClient) -> None:
    listener.answer = lambda request: framed(Allowed(open=True))
    door.ask(AskRights(address="x"), Allowed)
    listener.hang_up()
    assert door.ask(AskRights(address="x"), Allowed).open
    assert listener.connections == 2


def test_a_broker_that_hangs_up_is_away(listener: Listener, door: BrokerClient) -> None:
    listener.answer = lambda request: None
    assert _away(door)
    listener.answer = lambda request: framed(Allowed(open=True))
    assert door.ask(AskRights(address="x"), Allowed).open


def test_a_frame_that_is_too_long_is_away(listener: Listener, door: BrokerClient) -> None:
    listener.answer = lambda request: LENGTH.pack(FRAME_BYTES + 1)
    assert _away(door)


def test_nobody_there(tmp_path: Path) -> None:
    assert _away(BrokerClient(str(tmp_path / "nobody")))


def test_nobody_answers_in_time(listener: Listener) -> None:
    done = threading.Event()

    def wait(request: Any) -> None:
        done.wait(10)

    listener.answer = wait
    assert _away(BrokerClient(str(listener.path), patience=0.05))
    done.set()


def _away(door: BrokerClient) -> bool:
    with pytest.raises(Trouble) as caught:
        door.ask(AskRights(address="x"), Allowed)
    return caught.value.problem.code == "away"
