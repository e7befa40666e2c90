"""Packet captures, synthetic and recorded."""

from __future__ import annotations

import socket
import struct
import threading
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

SYN, ACK, FIN = 2, 16, 1


class Talk(NamedTuple):
    """A segment to write: its sender (client or server), first byte, and payload."""

    client: bool
    offset: int
    data: bytes
    flags: int = ACK


def pcap(packets: list[bytes], *, order: str = "<", nanoseconds: bool = False, link: int = 1, cut: int = 0) -> bytes:
    """A capture of these packets, one millisecond apart. ``cut``: bytes missing at the end of each."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)]
    for number, packet in enumerate(packets):
        kept = packet[: len(packet) - cut]
        fraction = number * 1000 * (1000 if nanoseconds else 1)
        parts.append(struct.pack(order + "IIII", 1_750_000_000, fraction, len(kept), len(packet)) + kept)
    return b"".join(parts)


class Block(Enum):
    """Block types of pcapng that contain packets."""

    ENHANCED = 6
    SIMPLE = 3
    OLD = 2


class Interface(NamedTuple):
    """An interface of pcapng: its link type, time resolution (the option's byte), and time offset in seconds."""

    link: int
    fineness: int | None
    seconds: int | None


def interface(link: int, fineness: int | None = None, seconds: int | None = None) -> Interface:
    return Interface(link, fineness, seconds)


def pcapng(
    interfaces: list[Interface],
    packets: list[tuple[int, bytes]],
    *,
    order: str = "<",
    block: Block = Block.ENHANCED,
) -> bytes:
    """A section with these packets, by interface number, one millisecond apart."""

    def one(kind: int, body: bytes) -> bytes:
        size = struct.pack(order + "I", len(body) + -len(body) % 4 + 12)
        return struct.pack(order + "I", kind) + size + body + bytes(-len(body) % 4) + size

    parts = [one(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))]
    for link, fineness, seconds in interfaces:
        options = b"" if fineness is None else struct.pack(order + "HHB3x", 9, 1, fineness)
        options += b"" if seconds is None else struct.pack(order + "HHq", 14, 8, seconds)
        parts.append(one(1, struct.pack(order + "HHI", link, 0, 65535) + options + bytes(4 if options else 0)))
    parts.append(one(5, bytes(12)))  # statistics, which are ignored
    for at, (number, packet) in enumerate(packets):
        times = struct.pack(order + "II", *divmod(_ticks(interfaces[number] if interfaces else None, at), 2**32))
        sizes = struct.pack(order + "II", len(packet), len(packet))
        heads = {
            Block.ENHANCED: struct.pack(order + "I", number) + times + sizes,
            Block.OLD: struct.pack(order + "HH", number, 0) + times + sizes,
            Block.SIMPLE: struct.pack(order + "I", len(packet)),
        }
        parts.append(one(block.value, heads[block] + packet))
    return b"".join(parts)


def _ticks(interface: Interface | None, number: int) -> int:
    """The time of a packet in the units of its interface."""
    fineness = 6 if interface is None or interface.fineness is None else interface.fineness
    units: int = 2 ** (fineness & 0x7F) if fineness & 0x80 else 10**fineness
    seconds = 1_750_000_000 - ((interface.seconds if interface else None) or 0)
    return (seconds * 1000 + number) * units // 1000


def ethernet(packet: bytes, *, vlan: bool = False) -> bytes:
    kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
    return bytes(12) + (b"\x81\x00\x00\x07" if vlan else b"") + kind + packet


def packet(
    talk: Talk,
    *,
    hosts: tuple[str, str] = ("10.0.0.1", "10.0.0.2"),
    ports: tuple[int, int] = (40000, 9100),
    start: int = 1000,
) -> bytes:
    """An IP packet with this segment. Both directions count from ``start``; byte 0 comes after the SYN."""
    sides = (0, 1) if talk.client else (1, 0)
    sequence = (start + talk.offset + (0 if talk.flags & SYN else 1)) % 2**32
    tcp = struct.pack(">HHIIBBHHH", ports[sides[0]], ports[sides[1]], sequence, 0, 5 << 4, talk.flags, 65535, 0, 0)
    body = tcp + talk.data
    source, target = (ip_address(hosts[side]).packed for side in sides)
    if len(source) == 4:
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 6, 0) + source + target + body
    return struct.pack(">IHBB", 6 << 28, len(body), 6, 64) + source + target + body


class Listener:
    """A proxy between a client and a broker that records both directions, in order and in the original pieces."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.said: list[tuple[int, bool, bytes]] = []
        self._threads: list[threading.Thread] = []
        self._sockets = [self._socket]
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for source, target, is_client in ((client, server, True), (server, client, False)):
                thread = threading.Thread(target=self._pump, args=(number, source, target, is_client))
                thread.start()
                self._threads.append(thread)
            number += 1

    def _pump(self, number: int, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        try:
            while data := source.recv(65536):
                with self._lock:
                    self.said.append((number, is_client, data))
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)
        for thread in self._threads:
            thread.join(10)
        for each in self._sockets:
            each.close()

    def side(self, is_client: bool, number: int = 0) -> bytes:
        return b"".join(data for which, who, data in self.said if who is is_client and which == number)
