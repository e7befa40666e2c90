"""Crowds of bad peers of every kind, while a well-behaved client is served; afterwards nothing of them is left."""

from __future__ import annotations

import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers import PATIENCE, wait_for
from support.good import Broker, Good, broker_with, cpu_of, descriptors_of, memory_of
from support.raw import (
    ACQUIRE,
    NOP,
    PUSH,
    RECEIVE,
    consume,
    kokaq,
    publish,
    send,
    sspq,
)

MEBIBYTE = 2**20
SLOW, IDLE = 200, 2_000
PROTOCOLS = ("phpmq", "sspq", "kokaq")
WHOLE = {
    "phpmq": publish("q", bytes(300)) + consume("q", 10),
    "sspq": send(bytes(300), 255) + sspq(RECEIVE),
    "kokaq": kokaq(PUSH, "default/sspq", bytes(300)) + kokaq(ACQUIRE, "default/sspq"),
}


@pytest.fixture(autouse=True, scope="module")
def _many_files() -> Iterator[None]:
    """Let the test, and the broker that it starts, open a few thousand sockets."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * (SLOW + IDLE)
    if before[1] != resource.RLIM_INFINITY and before[1] < wanted:
        pytest.skip("too few file descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Crowd:
    """Many concurrent connections."""

    def __init__(self, broker: Broker) -> None:
        self._addresses = {each: broker.address(each).rpartition(":") for each in PROTOCOLS}
        self.sockets: list[socket.socket] = []

    def connect(self, protocol: str) -> socket.socket:
        host, _, port = self._addresses[protocol]
        self.sockets.append(socket.create_connection((host, int(port)), PATIENCE))
        return self.sockets[-1]

    def go(self, *, rudely: bool = False) -> None:
        for each in self.sockets:
            if rudely:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        self.sockets.clear()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    limits = "connections_per_address = 5000\nunfinished_seconds = 2"
    with broker_with(tmp_path, limits) as broker:
        yield broker


@pytest.fixture
def crowd(broker: Broker) -> Iterator[Crowd]:
    """The good client is served throughout, and memory and descriptors are as before when the crowd has gone."""
    with Good(broker) as good:
        wait_for(lambda: good.rounds > 5)  # first-use allocations are done
        descriptors, memory = descriptors_of(broker), memory_of(broker)
        crowd = Crowd(broker)
        yield crowd
        crowd.go()
        wait_for(lambda: descriptors_of(broker) <= descriptors + 2, "descriptors are left")
        assert memory_of(broker) - memory < 48 * MEBIBYTE


def is_over(channel: socket.socket) -> bool:
    """Read until the end of the stream. False: it does not come."""
    try:
        while channel.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_many_that_do_nothing_and_many_that_never_finish(broker: Broker, crowd: Crowd) -> None:
    idle = [crowd.connect(PROTOCOLS[number % 3]) for number in range(IDLE)]
    slow = [crowd.connect(PROTOCOLS[number % 3]) for number in range(SLOW)]
    for at in range(3):
        for number, each in enumerate(slow):
            each.sendall(WHOLE[PROTOCOLS[number % 3]][at : at + 1])
        time.sleep(0.2)
    assert all(map(is_over, slow))
    idle[0].settimeout(0.01)
    assert not is_over(idle[0])
    lines = broker.events("a message was not finished in time")
    assert 0 < len(lines) <= 20


def noise() -> Iterator[bytes]:
    """Garbage of many kinds: random bytes, near misses, other protocols, single wrong bytes."""
    dice = random.Random(7)
    for size in (1, 3, 8, 9, 100, 5_000, 100_000):
        yield dice.randbytes(size)
        yield bytes(size)
        yield b"\xff" * size
    yield b"GET / HTTP/1.1\r\nHost: penstock\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(300)
    yield b"H01001-2P01" + b" " * 29
    yield b"H0100102P01" + "٣".encode() * 29
    yield from WHOLE.values()
    for whole in WHOLE.values():
        for _ in range(30):
            bad = bytearray(whole)
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
            yield bytes(bad)


def test_garbage(broker: Broker, crowd: Crowd) -> None:
    for data in noise():
        for protocol in PROTOCOLS:
            channel = crowd.connect(protocol)
            channel.sendall(data)
            channel.shutdown(socket.SHUT_WR)
        if len(crowd.sockets) > 200:
            assert all(map(is_over, crowd.sockets))
            crowd.go()
    assert all(map(is_over, crowd.sockets))


def test_resets_at_every_byte(crowd: Crowd) -> None:
    for protocol, whole in WHOLE.items():
        for size in range(0, len(whole), 3):
            crowd.connect(protocol).sendall(whole[:size])
        crowd.go(rudely=True)


def test_resets_while_much_is_sent_to_them(broker: Broker, crowd: Crowd) -> None:
    """Their messages go back every time."""
    filler = broker.dial("phpmq").send(publish("q", bytes(50_000)) * 200)
    watch = broker.kokaq()
    for _ in range(10):
        watch.wait_for_depth("default/q", 200)
        for _ in range(5):
            crowd.connect("phpmq").sendall(consume("q", 200))
        watch.wait_for_depth("default/q", 0)
        crowd.go(rudely=True)
    watch.wait_for_depth("default/q", 200)
    filler.close()


def test_floods(broker: Broker, crowd: Crowd) -> None:
    """Endless requests whose answers are not read."""
    floods = {"sspq": sspq(RECEIVE) * 1000, "kokaq": kokaq(NOP) * 1000, "phpmq": consume("flood", 1) * 500}
    for _ in range(3):
        for protocol in PROTOCOLS:
            crowd.connect(protocol).setblocking(False)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        for number, each in enumerate(crowd.sockets):
            try:
                each.send(floods[PROTOCOLS[number % 3]])
            except BlockingIOError:
                time.sleep(0.001)


def test_connections_that_come_and_go(broker: Broker, crowd: Crowd) -> None:
    for _ in range(10):
        for number in range(100):
            crowd.connect(PROTOCOLS[number % 3])
        crowd.go(rudely=True)


def test_no_more_file_descriptors(broker: Broker) -> None:
    """Connected peers are served, one line is logged, no CPU is wasted, and waiting peers get in as others leave."""
    assert broker.process is not None
    with Good(broker) as good:
        wait_for(lambda: good.rounds > 5)
        most = descriptors_of(broker) + 20
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (most, most))
        crowd = Crowd(broker)
        for _ in range(100):
            crowd.connect("sspq")
        wait_for(lambda: broker.events("cannot accept connections"))
        computed = cpu_of(broker)
        time.sleep(1)
        assert cpu_of(broker) - computed < 0.6
        assert len(broker.events("cannot accept connections")) <= 4
        crowd.go()
        assert broker.dial("sspq").send(sspq(RECEIVE) * 2).read(8)
