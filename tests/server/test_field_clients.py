"""Existing clients, byte for byte: the public PHP library, and the public Python SSPQ client."""

from __future__ import annotations

import pytest

from server.conftest import Rig
from support.brokers import Peer
from support.raw import CONFIRM, RECEIVE, publish, send, sspq

ZEROS = b"0" * 26


class PhpClient:
    """Writes compact, 32-wide messages in chunks of 1,024 bytes; reads a fixed number of packets."""

    def __init__(self, peer: Peer, packets: int) -> None:
        self.peer = peer
        self.packets = packets

    def write(self, message: bytes) -> None:
        for at in range(0, len(message), 1024):
            self.peer.send(message[at : at + 1024])

    def publish(self, queue: str, content: bytes, ttl: bytes | None = None) -> None:
        name = queue.encode()
        head = (b"H0100102P01" if ttl is None else b"H0100103P01") + str(len(name)).zfill(29).encode() + name
        tail = b"" if ttl is None else b"P05" + str(len(ttl)).zfill(29).encode() + ttl
        self.write(head + b"P02" + str(len(content)).zfill(29).encode() + content + tail)

    def consume(self, queue: str, count: int) -> None:
        name, digits = queue.encode(), str(count).encode()
        head = b"H0100202P01" + str(len(name)).zfill(29).encode() + name
        self.write(head + b"P04" + str(len(digits)).zfill(29).encode() + digits)

    def acknowledge(self, queue: str, number: bytes) -> None:
        name = queue.encode()
        self.write(b"H0100402P01" + str(len(name)).zfill(29).encode() + name + b"P03" + ZEROS + b"032" + number)

    def read(self) -> dict[bytes, bytes]:
        """Read a message as the library does: an 8-byte header, then its fixed number of packets."""
        assert self.peer.read(8)[:6] == b"H01003"
        packets = {}
        for _ in range(self.packets):
            header = self.peer.read(32)
            packets[header[:3]] = self.peer.read(int(header[3:]))
        return packets


def test_a_php_client_that_publishes_and_hangs_up(rig: Rig) -> None:
    """fire and forget: connect, write, fclose."""
    for size in (0, 1, 1023, 1024, 1025, 100_000):
        client = PhpClient(rig.phpmq(), 3)
        client.publish(rig.name, b"x" * size)
        client.peer.close()
    rig.kokaq().wait_for_depth(rig.queue, 6)


@pytest.mark.parametrize("ttl", [b"0", b"3600"])
def test_a_php_client_that_knows_four_packets(rig: Rig, ttl: bytes) -> None:
    """The library of the newest document: producer and consumer use separate connections, with four packets."""
    producer = PhpClient(rig.phpmq(), 4)
    consumer = PhpClient(rig.phpmq(), 4)
    producer.publish(rig.name, b"x" * 5000, ttl)
    consumer.consume(rig.name, 1)
    for _ in range(3):
        packets = consumer.read()
        assert (packets[b"P01"], packets[b"P02"], packets[b"P05"]) == (rig.name.encode(), b"x" * 5000, ttl)
        producer.publish(rig.name, b"x" * 5000, ttl)
        consumer.acknowledge(rig.name, packets[b"P03"])
    consumer.read()


def test_a_php_client_that_knows_three_packets(rig: Rig) -> None:
    """The public library, unmodified, at the default listener: its consumer only sends 002, and reads three packets."""
    producer = PhpClient(rig.phpmq(), 3)
    consumer = PhpClient(rig.phpmq(), 3)
    consumer.consume(rig.name, 5)
    for number in range(20):
        producer.publish(rig.name, b"Hello %d" % number)
        packets = consumer.read()
        assert packets.keys() == {b"P01", b"P02", b"P03"}
        assert packets[b"P02"] == b"Hello %d" % number
        consumer.acknowledge(rig.name, packets[b"P03"])


@pytest.mark.parametrize("pinned", [False, True])
def test_a_php_consumer_that_knows_three_packets_in_mixed_company(tcp_rig: Rig, pinned: bool) -> None:
    """While others publish with a TTL, it has published on its own connection, or uses a listener with dialect=32."""
    client = PhpClient(tcp_rig.special("phpmq 32") if pinned else tcp_rig.phpmq(), 3)
    if not pinned:
        client.publish(tcp_rig.name + "x", b"")
    client.consume(tcp_rig.name, 5)
    for _ in range(3):
        tcp_rig.phpmq().send(publish(tcp_rig.name, b"Hello", 60))
        packets = client.read()
        assert packets.keys() == {b"P01", b"P02", b"P03"}
        client.acknowledge(tcp_rig.name, packets[b"P03"])


class SspqClient:
    """Reads with one recv for the header and one for the payload, and trusts their lengths."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.socket = peer.socket

    def send(self, message: bytes, retries: int = 0) -> None:
        self.socket.sendall(b"\x55\x99\x5e" + bytes((retries,)) + len(message).to_bytes(4, "big") + message)

    def receive(self) -> bytes:
        self.socket.sendall(b"\x55\x99\xec\x00\x00\x00\x00\x00")
        header = self.socket.recv(8)
        assert header[:3] == b"\x55\x99\x5e"
        size = int.from_bytes(header[4:], "big")
        return self.socket.recv(size) if size else b""


@pytest.mark.parametrize("size", [1, 100, 1400, 8000])
def test_an_sspq_client_that_reads_once_gets_small_messages_whole(rig: Rig, size: int) -> None:
    """A package leaves in one write, so a client that mistakes a short read for the whole works most of the time."""
    producer, consumer = SspqClient(rig.sspq()), SspqClient(rig.sspq())
    for number in range(20):
        producer.send(bytes((number,)) * size, 3)
        assert consumer.receive() == bytes((number,)) * size
        consumer.socket.sendall(b"\x55\x99\xc0\x00\x00\x00\x00\x00")


def test_an_sspq_client_that_sends_and_hangs_up(rig: Rig) -> None:
    """no reply to SEND: it just closes."""
    for number in range(50):
        client = SspqClient(rig.sspq())
        client.send(b"%d" % number)
        client.peer.close()
    rig.kokaq().wait_for_depth(f"default/{rig.sspq_name}", 50)


def test_an_sspq_client_that_hangs_up_without_confirming(rig: Rig) -> None:
    """disconnect without CONFIRM: the message comes again, as often as its sender said."""
    SspqClient(rig.sspq()).send(b"work", 2)
    for _ in range(3):
        client = SspqClient(rig.sspq())
        assert client.receive() == b"work"
        client.peer.close()
    dead = rig.sspq().send(sspq(0xDE)).expect(send(b"work"))
    dead.send(sspq(CONFIRM))


def test_an_sspq_worker_that_confirms_and_asks_again(rig: Rig) -> None:
    producer = rig.sspq().send(*[send(b"%d" % number, 255) for number in range(200)])
    worker = SspqClient(rig.sspq())
    for number in range(200):
        assert worker.receive() == b"%d" % number
        worker.socket.sendall(sspq(CONFIRM))
    producer.send(sspq(RECEIVE), send(b"last")).expect(send(b"last"))
