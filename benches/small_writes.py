"""Clients that write small messages one by one, with and without TCP_NODELAY.

Run: .venv/bin/python -m benches.small_writes [--quick]

Most clients in the field leave Nagle's algorithm on: the second of two small writes waits in their system until the
first is acknowledged, for 40 ms if the broker's system delays that. Each client here writes twice between two answers.
Rates are answers per second; the two kinds of client take turns, and the best turn of each counts. The aim is 0.5.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from time import perf_counter

from benches.flight import broker

AIM = 0.5
PAYLOAD = b"x" * 32
#: Seconds after which an answer that does not come is an error.
PATIENCE = 20.0

#: SSPQ packages without a payload.
RECEIVE, CONFIRM = (b"\x55\x99" + bytes((kind, 0, 0, 0, 0, 0)) for kind in (0xEC, 0xC0))
#: Kokaq opcodes.
CREATE, DELETE, PUSH, ACQUIRE = 0x01, 0x02, 0x07, 0x08
UUID = 0x05


class Client:
    """A blocking socket, and a write for each message."""

    def __init__(self, address: str, queue: str, *, nodelay: bool, tls: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self.queue = queue
        self.socket = socket.create_connection((host.strip("[]"), int(port)), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self._read = b""

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def read(self, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        while len(self._read) < size:
            more = self.socket.recv(65536)
            assert more, "the broker has closed the connection"
            self._read += more
        found, self._read = self._read[:size], self._read[size:]
        return found

    def begin(self, rounds: int) -> None:
        """Publish the messages that ``rounds`` rounds need, and take the first."""
        raise NotImplementedError

    def round(self) -> None:
        """Two small writes, of which only the second is answered, and the answer."""
        raise NotImplementedError


class SspqWorker(Client):
    """Confirms a message, then asks for the next one."""

    def begin(self, rounds: int) -> None:
        self.socket.sendall((b"\x55\x99\x5e\xff" + struct.pack(">I", len(PAYLOAD)) + PAYLOAD) * (rounds + 1))
        self.socket.sendall(RECEIVE)
        self._take()

    def round(self) -> None:
        self.socket.sendall(CONFIRM)
        self.socket.sendall(RECEIVE)
        self._take()

    def _take(self) -> None:
        header = self.read(8)
        assert header[2] == 0x5E, header
        self.read(int.from_bytes(header[4:]))


class PhpmqWorker(Client):
    """Publishes the result of a message, then acknowledges it. One is unacknowledged at a time."""

    def begin(self, rounds: int) -> None:
        self.socket.sendall(self._message(1, (2, PAYLOAD)))
        self.socket.sendall(self._message(2, (4, b"1")))
        self._id = self._take()

    def round(self) -> None:
        self.socket.sendall(self._message(1, (2, PAYLOAD)))
        self.socket.sendall(self._message(4, (3, self._id)))
        self._id = self._take()

    def _message(self, kind: int, *packets: tuple[int, bytes]) -> bytes:
        named = ((1, self.queue.encode()), *packets)
        return b"H01%03d%02d" % (kind, len(named)) + b"".join(b"P%02d%029d" % (n, len(c)) + c for n, c in named)

    def _take(self) -> bytes:
        header = self.read(8)
        packets = {}
        for _ in range(int(header[6:])):
            packet = self.read(32)
            packets[packet[:3]] = self.read(int(packet[3:]))
        return packets[b"P03"]


class KokaqWorker(Client):
    """Locks a message, and deletes it by a one-way request before it locks the next one."""

    def begin(self, rounds: int) -> None:
        self.socket.sendall(_kokaq(CREATE, self._names()))
        self._take()
        self.socket.sendall(_kokaq(PUSH, self._names(PAYLOAD), one_way=True) * (rounds + 1))
        self.socket.sendall(_kokaq(ACQUIRE, self._names()))
        self._uuid = self._take()[UUID]

    def round(self) -> None:
        uuid = b"\x02\x04\x20\x00" + struct.pack(">IBB", 1, UUID, 16) + self._uuid
        self.socket.sendall(_kokaq(DELETE, uuid, tag=2, one_way=True))
        self.socket.sendall(_kokaq(ACQUIRE, self._names()))
        self._uuid = self._take()[UUID]

    def _names(self, payload: bytes = b"") -> bytes:
        namespace, _, name = (part.encode() for part in self.queue.partition("/"))
        sizes = len(namespace), len(name), len(payload)
        return struct.pack(">BHBBBH", 1, 0x0420, 0, *sizes) + namespace + name + payload

    def _take(self) -> dict[int, bytes]:
        """The fields of the next answer."""
        tag = self.read(12)[11]
        fields = {}
        if tag & 2:
            for _ in range(int.from_bytes(self.read(8)[4:])):
                number, size = self.read(2)
                fields[number] = self.read(size)
        if tag & 1:
            namespace, name, size = struct.unpack(">4xBBH", self.read(8))
            self.read(namespace + name + size)
        return fields


def _kokaq(opcode: int, component: bytes, *, tag: int = 1, one_way: bool = False) -> bytes:
    kind = 0xC0 if one_way else 0x40
    return b"\x04\x20\x01" + bytes((kind, 0, 0, 0, 1, opcode, 2, 0, tag)) + component


#: Each protocol's client and its default queue.
WORKERS: dict[str, tuple[type[Client], str]] = {
    "phpmq": (PhpmqWorker, "small-writes"),
    "kokaq": (KokaqWorker, "default/small-writes"),
    "sspq": (SspqWorker, ""),
}


def rate(make: Callable[[], Client], rounds: int, seconds: float) -> float:
    """Rounds per second of one connection, until ``rounds`` are done or ``seconds`` have passed."""
    with closing(make()) as client:
        client.begin(rounds)
        started = perf_counter()
        done = 0
        while done < rounds and (done % 10 or perf_counter() - started < seconds):
            client.round()
            done += 1
        return done / (perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.small_writes", description="Small writes, one by one.")
    parser.add_argument("--quick", action="store_true", help="shorter and fewer runs")
    quick = parser.parse_args().quick
    rounds, turns = (500, 3) if quick else (5000, 7)
    sys.stdout.write(f"{'':8}  naive/s  nodelay/s  ratio  aim\n")
    with tempfile.TemporaryDirectory() as folder, broker(folder) as addresses:
        for protocol, (kind, queue) in WORKERS.items():
            best = {False: 0.0, True: 0.0}
            for _ in range(turns):
                for nodelay, earlier in best.items():
                    make = partial(kind, addresses[protocol], queue, nodelay=nodelay)
                    best[nodelay] = max(earlier, rate(make, rounds, 1.0))
            ratio = best[False] / best[True]
            verdict = "met" if ratio >= AIM else "MISSED"
            sys.stdout.write(f"{protocol:8}  {best[False]:7,.0f}  {best[True]:9,.0f}  {ratio:5.2f}  {AIM}  {verdict}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
