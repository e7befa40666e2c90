"""Packets to TCP segments: removes the headers of link, IP and TCP. Pure: no Spark.

Packets that are not TCP, or end before their data, are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address
from struct import unpack_from
from typing import NamedTuple

_TCP = 6
_IPV6_EXTENSIONS = {0, 43, 60}
_FRAGMENT = 44

#: The flag of a segment that opens a connection.
SYN = 2


class CapturedPacket(NamedTuple):
    """A captured packet: its time (microseconds; None: unknown), offset in the file, type of link, and bytes."""

    at: int | None
    offset: int
    link: int
    data: bytes


class End(NamedTuple):
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TcpSegment(NamedTuple):
    """A TCP segment, as far as it was captured: a missing end becomes a gap."""

    at: int | None
    source: End
    target: End
    sequence: int
    flags: int
    data: bytes


class Fragment(NamedTuple):
    """A fragment of an IP packet. Fragments are not reassembled."""

    at: int | None
    offset: int


def segment_of(packet: CapturedPacket) -> TcpSegment | Fragment | None:
    """The segment that a packet carries; None if it has none. Its link must be one of ``LINKS``."""
    start = LINKS[packet.link](packet.data)
    return None if start is None else _ip(packet.data, start, packet.at, packet.offset)


# ------------------------------------------------------------------------------------ links: where the IP packet begins


def _ethernet(packet: bytes) -> int | None:
    at = 12
    while packet[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    return at + 2 if packet[at : at + 2] in (b"\x08\x00", b"\x86\xdd") else None


def _loopback(packet: bytes) -> int | None:
    """Four bytes with the address family, in the machine's byte order. IP itself shows its version."""
    return 4


def _raw(packet: bytes) -> int | None:
    return 0


def _cooked(packet: bytes) -> int | None:
    return 16 if packet[14:16] in (b"\x08\x00", b"\x86\xdd") else None


def _cooked2(packet: bytes) -> int | None:
    return 20 if packet[:2] in (b"\x08\x00", b"\x86\xdd") else None


#: Finders of the offset of the IP packet (None: there is none), by the link types of capture files.
LINKS: dict[int, Callable[[bytes], int | None]] = {
    0: _loopback,
    1: _ethernet,
    12: _raw,
    14: _raw,
    101: _raw,
    108: _loopback,
    113: _cooked,
    228: _raw,
    229: _raw,
    276: _cooked2,
}


# -------------------------------------------------------------------------------------------------------- IP and TCP


def _ip(packet: bytes, start: int, at: int | None, offset: int) -> TcpSegment | Fragment | None:
    """The segment in an IP packet that begins at ``start``; None if it has none."""
    version = packet[start] >> 4 if len(packet) > start else 0
    if version == 4 and len(packet) >= start + 20:
        total, fragment, protocol = unpack_from(">2xH2xHxB", packet, start)
        if fragment & 0x3FFF:
            return Fragment(at, offset) if protocol == _TCP else None
        hosts = [".".join(map(str, packet[start + side : start + side + 4])) for side in (12, 16)]
        tcp = start + (packet[start] & 15) * 4
    elif version == 6 and len(packet) >= start + 40:
        length, protocol = unpack_from(">4xHB", packet, start)
        total = length + 40
        hosts = [str(IPv6Address(packet[start + side : start + side + 16])) for side in (8, 24)]
        tcp = start + 40
        while protocol in _IPV6_EXTENSIONS and len(packet) >= tcp + 8:
            protocol, size = packet[tcp], packet[tcp + 1]
            tcp += 8 + 8 * size
        if protocol == _FRAGMENT:
            return Fragment(at, offset)
    else:
        return None
    if protocol != _TCP or len(packet) < tcp + 20:
        return None
    # A length of 0 means that the network card segments the packet: it extends to the end.
    end = start + total if total else len(packet)
    return _tcp(packet, tcp, end, (hosts[0], hosts[1]), at)


def _tcp(packet: bytes, start: int, end: int, hosts: tuple[str, str], at: int | None) -> TcpSegment:
    source, target, sequence, size, flags = unpack_from(">HHI4xBB", packet, start)
    data = start + (size >> 4) * 4
    return TcpSegment(at, End(hosts[0], source), End(hosts[1], target), sequence, flags, packet[data:end])
