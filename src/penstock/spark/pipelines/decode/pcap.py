"""Reads files of captured packets, pcap and pcapng, as streams. Pure: no Spark.

Both are in the byte order of the machine that wrote them. A pcap file::

     0           4     6     8           12          16          20          24
    +-----------+-----+-----+-----------+-----------+-----------+-----------+
    | magic     | 2   | 4   | zone      | accuracy  | snap size | link type |
    +-----------+-----+-----+-----------+-----------+-----------+-----------+
    | seconds   | fraction  | kept      | original  | packet, ``kept`` bytes …     and so on
    +-----------+-----------+-----------+-----------+---- - -

A pcapng file consists of blocks. Those of sections, interfaces and packets are read, others skipped::

     0           4           8                       size - 4    size
    +-----------+-----------+---- - - ---------------+-----------+
    | type      | size      | body, padded to 4      | size      |
    +-----------+-----------+---- - - ---------------+-----------+

``Damaged`` is raised at the first place that can't be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, unpack_from
from typing import BinaryIO, NamedTuple

from penstock.spark.pipelines.decode.packets import CapturedPacket

#: Magic numbers, read as little-endian: byte order, and fractions per microsecond.
_MAGICS = {0xA1B2C3D4: ("<", 1), 0xA1B23C4D: ("<", 1000), 0xD4C3B2A1: (">", 1), 0x4D3CB2A1: (">", 1000)}
#: No link has larger packets: a larger one means a damaged file.
MAX_PACKET = 16 * 2**20

#: Types of blocks. That of a section is the same in both byte orders; its body begins with a mark of the order.
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
#: The last time of the year 9999, in microseconds: Arrow and Spark have no later ones.
_LATEST = 253_402_300_799_999_999
#: Options of an interface: the resolution of its times, and the seconds to add to them.
_RESOLUTION, _SECONDS_ADDED = 9, 14


class Damaged(Exception):
    """The file can't be read beyond ``offset``."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.offset = offset
        self.reason = reason


def is_capture(head: bytes) -> bool:
    """Whether a file with this beginning contains captured packets."""
    return len(head) >= 4 and (unpack_from("<I", head)[0] in _MAGICS or unpack_from("<I", head)[0] == _SECTION)


def packets(file: BinaryIO) -> Iterator[CapturedPacket]:
    """The packets of a file, in its order."""
    magic = file.read(4)
    if len(magic) < 4:
        raise Damaged(len(magic), "the file ends inside its header")
    number = unpack_from("<I", magic)[0]
    return _blocks(file, magic) if number == _SECTION else _records(file, *_MAGICS[number])


# --------------------------------------------------------------------------------------------------------------- pcap


def _records(file: BinaryIO, order: str, fractions: int) -> Iterator[CapturedPacket]:
    head = file.read(20)
    if len(head) < 20:
        raise Damaged(4 + len(head), "the file ends inside its header")
    link = unpack_from(order + "I", head, 16)[0] & 0x0FFFFFFF
    header = Struct(order + "IIII")
    offset = 24
    while head := file.read(16):
        if len(head) < 16:
            raise Damaged(offset, "the file ends inside a packet's header")
        seconds, fraction, kept, _ = header.unpack(head)
        if kept > MAX_PACKET:
            raise Damaged(offset + 8, f"a packet of {kept} bytes is over the limit of {MAX_PACKET}")
        data = file.read(kept)
        if len(data) < kept:
            raise Damaged(offset + 16, f"the file ends {kept - len(data)} byte(s) before the end of a packet")
        yield CapturedPacket(seconds * 1_000_000 + fraction // fractions, offset, link, data)
        offset += 16 + kept


# ------------------------------------------------------------------------------------------------------------- pcapng


class _Interface(NamedTuple):
    """An interface of a section. Its times are in ``units`` per second, to which ``added`` seconds are added."""

    link: int
    snap: int
    units: int
    added: int

    def time(self, high: int, low: int) -> int:
        """Microseconds since 1970."""
        return ((high << 32) + low) * 1_000_000 // self.units + self.added * 1_000_000


class _Block(NamedTuple):
    """A block: its type, its offset, the byte order of its section, and its body."""

    kind: int
    offset: int
    order: str
    body: bytes

    def numbers(self, form: str, at: int = 0) -> tuple[int, ...]:
        """Unpack numbers of the body. Raises ``Damaged`` if it is too short."""
        form = self.order + form
        if len(self.body) < at + Struct(form).size:
            raise Damaged(self.offset, f"a block of type {self.kind} is too short for its fields")
        return unpack_from(form, self.body, at)


def _blocks(file: BinaryIO, head: bytes) -> Iterator[CapturedPacket]:
    interfaces: list[_Interface] = []
    for block in _each_block(file, head):
        if block.kind == _SECTION:
            interfaces = []
        elif block.kind == _INTERFACE:
            interfaces.append(_interface(block))
        elif block.kind in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
            yield _packet(block, interfaces)


def _each_block(file: BinaryIO, head: bytes) -> Iterator[_Block]:
    order, offset = "<", 0
    head += file.read(8)
    while head:
        if len(head) < 12:
            raise Damaged(offset, "the file ends inside a block's header")
        kind = unpack_from(order + "I", head)[0]
        if kind == _SECTION:
            if head[8:12] not in _ORDERS:
                raise Damaged(
                    offset + 8, f"a section begins with {head[8:12].hex(' ')}, which is not a byte-order mark"
                )
            order = _ORDERS[head[8:12]]
        size = unpack_from(order + "I", head, 4)[0]
        if size % 4 or not 12 <= size <= MAX_PACKET:
            raise Damaged(offset + 4, f"a block of {size} bytes: a multiple of 4, 12 to {MAX_PACKET}, was expected")
        rest = file.read(size - 12)
        if len(rest) < size - 12:
            raise Damaged(offset, f"the file ends {size - 12 - len(rest)} byte(s) before the end of a block")
        body = head[8:] + rest
        if unpack_from(order + "I", body, size - 12)[0] != size:
            raise Damaged(offset + size - 4, f"a block of {size} bytes has another size at its end")
        yield _Block(kind, offset, order, body[:-4])
        offset += size
        head = file.read(12)


def _interface(block: _Block) -> _Interface:
    link, _, snap = block.numbers("HHI")
    units, added, at = 1_000_000, 0, 8
    while at + 4 <= len(block.body):
        option, size = block.numbers("HH", at)
        if option == _RESOLUTION:
            (power,) = block.numbers("B", at + 4)
            units = 2 ** (power & 0x7F) if power & 0x80 else 10**power
        elif option == _SECONDS_ADDED:
            (added,) = block.numbers("q", at + 4)
        at += 4 + size + -size % 4
    return _Interface(link, snap, units, added)


def _packet(block: _Block, interfaces: list[_Interface]) -> CapturedPacket:
    """The packet of a block of any of three types. A simple one has no time, and belongs to the first interface."""
    number, at = 0, None
    if block.kind == _SIMPLE_PACKET:
        (kept,), start = block.numbers("I"), 4
    elif block.kind == _PACKET:
        (number, *times, kept), start = block.numbers("IIII"), 20
    else:
        (number, _, *times, kept), start = block.numbers("HHIII"), 20
    if number >= len(interfaces):
        raise Damaged(block.offset, f"a packet of interface {number}, but {len(interfaces)} are described")
    interface = interfaces[number]
    if block.kind == _SIMPLE_PACKET:
        kept = min(kept, interface.snap or kept)
    elif not 0 <= (at := interface.time(*times)) <= _LATEST:
        raise Damaged(block.offset, "a packet's time is before 1970, or after 9999")
    if start + kept > len(block.body):
        raise Damaged(block.offset, f"a packet of {kept} bytes is larger than its block")
    return CapturedPacket(at, block.offset, interface.link, block.body[start : start + kept])
