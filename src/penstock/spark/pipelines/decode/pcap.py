"""Packet captures: pcap files to TCP segments. Pure: no Spark.

A file, in the byte order of the machine that wrote it::

     0           4     6     8           12          16          20          24
    +-----------+-----+-----+-----------+-----------+-----------+-----------+
    | magic     | 2   | 4   | zone      | accuracy  | snap size | link type |
    +-----------+-----+-----+-----------+-----------+-----------+-----------+
    | seconds   | fraction  | kept      | original  | packet, ``kept`` bytes …     and so on
    +-----------+-----------+-----------+-----------+---- - -

What is no TCP, or has no data, is passed over. ``Damaged`` is raised where the file can't be followed any further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from struct import Struct, unpack_from
from typing import BinaryIO, NamedTuple

#: Magic numbers, read as little-endian: byte order, and how many fractions make a microsecond.
_MAGICS = {
    0xA1B2C3D4: ("<", 1),
    0xA1B23C4D: ("<", 1000),
    0xD4C3B2A1: (">", 1),
    0x4D3CB2A1: (">", 1000),
}
#: The magic of pcapng, which is another format.
_PCAPNG = 0x0A0D0D0A
#: No link has larger packets. More is a damaged file.
MAX_PACKET = 16 * 2**20
_TCP = 6
_IPV6_EXTENSIONS = {0, 43, 60}
_FRAGMENT = 44

#: The flag of a segment that opens a connection.
SYN = 2


class Damaged(Exception):
    """The file can't be read beyond ``offset``."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.offset = offset
        self.reason = reason


class End(NamedTuple):
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Segment(NamedTuple):
    """A TCP segment, as far as it was captured: what is missing at its end shows as a gap."""

    at: int
    source: End
    target: End
    sequence: int
    flags: int
    data: bytes


class Fragment(NamedTuple):
    """A piece of a fragmented IP packet, which is not put together."""

    at: int
    offset: int


def is_pcap(head: bytes) -> bool:
    """Whether a file that begins so is a packet capture (of any sort)."""
    return len(head) >= 4 and (unpack_from("<I", head)[0] in _MAGICS or unpack_from("<I", head)[0] == _PCAPNG)


def segments(file: BinaryIO) -> Iterator[Segment | Fragment]:
    """The TCP segments of a file, in its order."""
    head = file.read(24)
    if len(head) >= 4 and unpack_from("<I", head)[0] == _PCAPNG:
        raise Damaged(0, "this is pcapng, not pcap: convert it with `editcap -F pcap OLD NEW`")
    if len(head) < 24:
        raise Damaged(len(head), "the file ends inside of its header")
    order, fractions = _MAGICS[unpack_from("<I", head)[0]]
    link = unpack_from(order + "I", head, 20)[0] & 0x0FFFFFFF
    if link not in _LINKS:
        known = ", ".join(map(str, _LINKS))
        raise Damaged(20, f"link type {link} is not known; those that are: {known}")
    for at, offset, packet in _packets(file, Struct(order + "IIII"), fractions):
        found = _LINKS[link](packet)
        if found is not None:
            segment = _ip(packet, found, at, offset)
            if segment is not None:
                yield segment


def _packets(file: BinaryIO, header: Struct, fractions: int) -> Iterator[tuple[int, int, bytes]]:
    offset = 24
    while head := file.read(16):
        if len(head) < 16:
            raise Damaged(offset, "the file ends inside of a packet's header")
        seconds, fraction, kept, _ = header.unpack(head)
        if kept > MAX_PACKET:
            raise Damaged(offset + 8, f"a packet of {kept} bytes is larger than any can be")
        packet = file.read(kept)
        if len(packet) < kept:
            raise Damaged(offset + 16, f"the file ends {kept - len(packet)} byte(s) before the end of a packet")
        yield seconds * 1_000_000 + fraction // fractions, offset, packet
        offset += 16 + kept


# ------------------------------------------------------------------------------------ links: where the IP packet begins


def _ethernet(packet: bytes) -> int | None:
    at = 12
    while packet[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    return at + 2 if packet[at : at + 2] in (b"\x08\x00", b"\x86\xdd") else None


def _loopback(packet: bytes) -> int | None:
    """Four bytes with the family, in the order of whichever machine it was; IP says itself which version it is."""
    return 4


def _raw(packet: bytes) -> int | None:
    return 0


def _cooked(packet: bytes) -> int | None:
    return 16 if packet[14:16] in (b"\x08\x00", b"\x86\xdd") else None


def _cooked2(packet: bytes) -> int | None:
    return 20 if packet[:2] in (b"\x08\x00", b"\x86\xdd") else None


_LINKS: dict[int, Callable[[bytes], int | None]] = {
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


def _ip(packet: bytes, start: int, at: int, offset: int) -> Segment | Fragment | None:
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
    # A length of 0 is what a network card is given that cuts packets itself: it is all that is there.
    end = start + total if total else len(packet)
    return _tcp(packet, tcp, end, (hosts[0], hosts[1]), at)


def _tcp(packet: bytes, start: int, end: int, hosts: tuple[str, str], at: int) -> Segment:
    source, target, sequence, size, flags = unpack_from(">HHI4xBB", packet, start)
    data = start + (size >> 4) * 4
    return Segment(at, End(hosts[0], source), End(hosts[1], target), sequence, flags, packet[data:end])
