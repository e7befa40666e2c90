"""Reassembles TCP connections from segments: each byte once, in order, with gaps reported. Pure: no Spark.

Each direction is ordered separately. A segment that comes too early waits; a retransmission is cut to its new bytes (of
two versions of a byte the first counts). Bytes that never come are a gap, which is certain when the capture ends, when
the same ends open another connection, or when more than ``MAX_WAITING`` bytes wait behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from penstock.spark.pipelines.decode.captures import ENOUGH, TO_CLIENT, TO_SERVER, Guess, Half, captures, guess
from penstock.spark.pipelines.decode.frames import Frames, FrameSource
from penstock.spark.pipelines.decode.packets import LINKS, SYN, CapturedPacket, End, Fragment, TcpSegment, segment_of
from penstock.spark.pipelines.decode.pcap import Damaged, packets

#: More bytes than any real window allows a peer to send ahead of acknowledgements.
MAX_WAITING = 16 * 2**20
_WRAP = 2**32


class StreamOrder:
    """Orders the bytes of one direction, for ``half``."""

    def __init__(self, half: Half) -> None:
        self.half = half
        self.next: int | None = None
        #: Early segments, by their distance from the first byte of the stream.
        self._waiting: dict[int, tuple[bytes, int | None]] = {}
        self._waiting_bytes = 0
        self._done = 0

    def take(self, segment: TcpSegment) -> None:
        """Add a segment of this direction."""
        sequence = segment.sequence
        if segment.flags & SYN:
            sequence = (sequence + 1) % _WRAP
            self.next = sequence if self.next is None else self.next
        if self.next is None:
            self.next = sequence
        if segment.data:
            distance = (sequence - self.next + _WRAP // 2) % _WRAP - _WRAP // 2
            self._place(self._done + distance, segment.data, segment.at)
        if self._waiting_bytes > MAX_WAITING:
            self._jump(segment.at)

    def _place(self, start: int, data: bytes, at: int | None) -> None:
        if start <= self._done:
            self._feed(data[self._done - start :], at)
            self._drain()
        elif start not in self._waiting or len(self._waiting[start][0]) < len(data):
            self._waiting_bytes += len(data) - len(self._waiting.get(start, (b"", None))[0])
            self._waiting[start] = data, at

    def _feed(self, data: bytes, at: int | None) -> None:
        if data:
            self._move(len(data))
            self.half.feed(data, at)

    def _move(self, size: int) -> None:
        assert self.next is not None
        self._done += size
        self.next = (self.next + size) % _WRAP

    def _drain(self) -> None:
        """Feed the segments that are no longer too early."""
        while self._waiting and (start := min(self._waiting)) <= self._done:
            data, at = self._waiting.pop(start)
            self._waiting_bytes -= len(data)
            self._feed(data[self._done - start :], at)

    def _jump(self, at: int | None) -> None:
        """Report missing bytes as a gap, and resume after it."""
        missing = min(self._waiting) - self._done
        self._move(missing)
        self.half.gap(missing, at)
        self._drain()

    def finish(self, at: int | None) -> None:
        """End this direction."""
        while self._waiting:
            self._jump(at)
        self.half.end(at)


class TcpConnection:
    """Both directions. The opening of the connection, or else its data, shows which end is the server."""

    def __init__(self, frames: Frames, file: str, number: int, first: TcpSegment, protocol: str | None) -> None:
        self._frames = frames
        self._protocol = protocol
        opened = first.flags & SYN
        answer = opened and first.flags & 16
        self.client: End | None = None if not opened else first.target if answer else first.source
        self.start = first.sequence if opened and not answer else None
        names = sorted((first.source, first.target), key=lambda end: -end.port)
        if self.client is not None:
            names = [self.client, first.source if answer else first.target]
        suffix = f" #{number}" if number > 1 else ""
        self._source = FrameSource(file, f"{names[0]} > {names[1]}{suffix}", protocol)
        self._server = names[1]
        self._orders: dict[End, StreamOrder] = {}
        self.at = first.at

    def take(self, segment: TcpSegment) -> None:
        """Add a segment of either direction."""
        self.at = segment.at
        order = self._orders.get(segment.source)
        if order is None:
            order = self._orders[segment.source] = StreamOrder(self._half(segment))
        if segment.data and order.half.found.protocol is None:
            self._settle(order, segment)
        order.take(segment)

    def _half(self, segment: TcpSegment) -> Half:
        half = Half(self._frames, self._source)
        if self.client is not None:
            direction = TO_SERVER if segment.source == self.client else TO_CLIENT
            half.source = half.source._replace(direction=direction)
            half.found = Guess(self._protocol, direction)
        return half

    def _settle(self, order: StreamOrder, segment: TcpSegment) -> None:
        """Read answers in the variant of their requests, and identify the ends by their data."""
        direction = order.half.found.direction
        found = guess(segment.data[:ENOUGH], self._protocol, direction)
        others = [each.half for end, each in self._orders.items() if end != segment.source]
        if direction is None and not (found.protocol and captures()[found.protocol].shows_direction):
            # Both directions look alike, or a byte can mean either: the lower port is the server's.
            direction = TO_CLIENT if segment.source == self._server else TO_SERVER
            found = guess(segment.data[:ENOUGH], self._protocol, direction)
        if found.direction == TO_CLIENT and others and others[0].found.direction == TO_SERVER:
            found = found._replace(variant=others[0].variant)
        if found.protocol is not None and len(segment.data) >= ENOUGH:
            order.half.settle(found)

    def finish(self) -> None:
        """End both directions."""
        for order in self._orders.values():
            order.finish(self.at)


def read_capture(
    file: BinaryIO,
    name: str,
    *,
    protocol: str | None = None,
    ports: frozenset[int] = frozenset(),
    payloads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The frames of all connections of a packet capture; of those with one of these ports, if any are given."""
    frames = Frames(payloads=payloads)
    table = _Connections(frames, name, protocol, ports)
    try:
        for packet in packets(file):
            table.take(packet)
            if frames.full:
                yield frames.batch()
    except Damaged as damage:
        table.finish()
        frames.fail(FrameSource(name), None, damage.offset, 0, "damaged-capture", str(damage))
    table.finish()
    if len(frames):
        yield frames.batch()


class _Connections:
    """All connections of a file. A connection that opens again between the same ends is a new one."""

    def __init__(self, frames: Frames, file: str, protocol: str | None, ports: frozenset[int]) -> None:
        self._frames = frames
        self._file = file
        self._protocol = protocol
        self._ports = ports
        self._open: dict[frozenset[End], TcpConnection] = {}
        self._numbers: dict[frozenset[End], int] = {}
        self._unknown_links: set[int] = set()

    def take(self, packet: CapturedPacket) -> None:
        """Add the next packet. An unreadable one becomes a row."""
        if packet.link not in LINKS:
            self._skip(packet)
            return
        segment = segment_of(packet)
        if isinstance(segment, Fragment):
            text = "a fragment of an IP packet: fragments are not reassembled"
            self._frames.fail(FrameSource(self._file), segment.at, segment.offset, 0, "fragment", text)
        elif segment is not None and (not self._ports or {segment.source.port, segment.target.port} & self._ports):
            self._connect(segment)

    def _skip(self, packet: CapturedPacket) -> None:
        """Report an unknown type of link once: other links of the same file may be known."""
        if packet.link not in self._unknown_links:
            self._unknown_links.add(packet.link)
            text = f"packets of link type {packet.link} are skipped; known types are {', '.join(map(str, LINKS))}"
            self._frames.fail(FrameSource(self._file), packet.at, packet.offset, 0, "unknown-link", text)

    def _connect(self, segment: TcpSegment) -> None:
        ends = frozenset((segment.source, segment.target))
        known = self._open.get(ends)
        opens = segment.flags & SYN and not segment.flags & 16
        if known is not None and opens and known.start != segment.sequence:
            known.finish()
            known = None
        if known is None:
            number = self._numbers[ends] = self._numbers.get(ends, 0) + 1
            known = self._open[ends] = TcpConnection(self._frames, self._file, number, segment, self._protocol)
        known.take(segment)

    def finish(self) -> None:
        for connection in self._open.values():
            connection.finish()
        self._open.clear()
