"""SSPQ: the smallest of the three. The full specification is docs/protocols/sspq.md.

One package, in either direction, all numbers big-endian::

     0      1      2      3      4      5      6      7      8
    +------+------+------+------+------+------+------+------+---- - -
    | 0x55 | 0x99 | type |retry | payload size              | payload
    +------+------+------+------+------+------+------+------+---- - -

Both sides send the same packages, so one decoder and one encoder serve the server, the client and captures.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from enum import IntEnum
from operator import countOf
from struct import Struct

from msgspec import Struct as Frame

from penstock.wire.stream import StreamDecoder, too_large

MAGIC = 0x5599
#: Retry counter that never runs out.
FOREVER = 255
#: The largest payload that the size field can express.
WIRE_MAX_PAYLOAD = 2**32 - 1
#: What a broker takes unless told otherwise: large enough for documents, small enough to hold a few in memory.
DEFAULT_MAX_PAYLOAD = 16 * 2**20

#: How many payload sizes, counted from 0, have a ready-made size field: about 400 KB, made once.
READY_SIZES = 4096

_HEADER = Struct(">II")
_SIZE = Struct(">I")
_SEND_HEAD = 0x55995E00


class PackageType(IntEnum):
    """The package types. Every other byte decodes to :class:`Other`."""

    SEND = 0x5E
    RECEIVE = 0xEC
    CONFIRM = 0xC0
    DEAD_RECEIVE = 0xDE
    NO_RECEIVE = 0x0E


class Send(Frame, frozen=True, gc=False):
    """A run of SEND packages with one retry counter: messages published (to a server) or delivered (to a client)."""

    retries: int
    payloads: tuple[bytes, ...]


class Receive(Frame, frozen=True, gc=False):
    """The client asks for one message."""


class Confirm(Frame, frozen=True, gc=False):
    """The client is done with the message it was given."""


class DeadReceive(Frame, frozen=True, gc=False):
    """The client asks for one dead letter."""


class NoReceive(Frame, frozen=True, gc=False):
    """The server will not answer the request with a message."""


class Other(Frame, frozen=True, gc=False):
    """A package of a type that SSPQ does not know. Its payload was skipped."""

    kind: int


SspqFrame = Send | Receive | Confirm | DeadReceive | NoReceive | Other

_EMPTY_FRAMES: dict[int, SspqFrame] = {
    PackageType.RECEIVE: Receive(),
    PackageType.CONFIRM: Confirm(),
    PackageType.DEAD_RECEIVE: DeadReceive(),
    PackageType.NO_RECEIVE: NoReceive(),
}


def _empty_package(kind: int) -> bytes:
    return _HEADER.pack(MAGIC << 16 | kind << 8, 0)


class _Sizes(dict[int, bytes]):
    """The size field of a package. Those of small payloads, where packing would cost the most, are ready-made."""

    def __missing__(self, size: int) -> bytes:
        if size > WIRE_MAX_PAYLOAD:
            raise ValueError(f"a payload of {size} bytes cannot be expressed; the size field holds {WIRE_MAX_PAYLOAD}")
        return _SIZE.pack(size)


_EMPTY_PACKAGES = {type(frame): _empty_package(kind) for kind, frame in _EMPTY_FRAMES.items()}
_SEND_PREFIXES = [_SIZE.pack(_SEND_HEAD | retries) for retries in range(256)]
_SIZES = _Sizes((size, _SIZE.pack(size)) for size in range(READY_SIZES))


class Decoder(StreamDecoder[SspqFrame]):
    """Decodes what either side of an SSPQ connection receives.

    Packages larger than ``max_payload`` are refused at their header, whatever their type.
    """

    protocol = "SSPQ"

    def __init__(self, max_payload: int = DEFAULT_MAX_PAYLOAD) -> None:
        super().__init__()
        self.max_payload = max_payload

    def _message(self) -> Generator[int, bytes, SspqFrame]:
        header = yield 8
        head, size = _HEADER.unpack(header)
        if head >> 16 != MAGIC:
            raise self._bad("bad-magic", f"a package starts with 0x5599, not 0x{head >> 16:04x}")
        if size > self.max_payload:
            reason = f"a payload of {size} bytes is over the limit of {self.max_payload}"
            raise too_large(self._bad("payload-too-large", reason, at=4, peer_at_fault=False), size, self.max_payload)
        kind = head >> 8 & 0xFF
        if kind == PackageType.SEND:
            payload = (yield size) if size else b""
            return Send(head & 0xFF, (payload,))
        yield from self._skip(size)
        return _EMPTY_FRAMES.get(kind) or Other(kind)

    def _run(self, data: bytes, pos: int, frames: list[SspqFrame]) -> int:
        """Take the complete SENDs and empty packages at ``pos``, SENDs of one retry counter as one batch."""
        unpack = _HEADER.unpack_from
        limit = self.max_payload
        end = len(data)
        last_header = end - 8
        batch_head = -1
        payloads: list[bytes] = []
        while pos <= last_header:
            head, size = unpack(data, pos)
            start = pos + 8
            stop = start + size
            if head == batch_head:
                if stop > end or size > limit:
                    break
                payloads.append(data[start:stop])
            else:
                if payloads:
                    frames.append(Send(batch_head & 0xFF, tuple(payloads)))
                    payloads.clear()
                    batch_head = -1
                if head & 0xFFFFFF00 == _SEND_HEAD:
                    batch_head = head
                    continue
                frame = _EMPTY_FRAMES.get(head >> 8 & 0xFF)
                if frame is None or head >> 16 != MAGIC or size:
                    break
                frames.append(frame)
            pos = stop
        if payloads:
            frames.append(Send(batch_head & 0xFF, tuple(payloads)))
        return pos


def encode(frames: Iterable[SspqFrame]) -> bytes:
    """The bytes of these frames, for either direction.

    Raises ``ValueError`` for what the wire cannot express: a retry counter or package type that is not a byte, a
    payload over ``WIRE_MAX_PAYLOAD``, and an :class:`Other` that bears the type of a package with a frame of its own.
    """
    parts: list[bytes] = []
    for frame in frames:
        if isinstance(frame, Send):
            parts += _send_parts(frame)
        elif isinstance(frame, Other):
            parts.append(_other(frame.kind))
        else:
            parts.append(_EMPTY_PACKAGES[type(frame)])
    return b"".join(parts)


def singles(frames: Iterable[SspqFrame]) -> Iterator[SspqFrame]:
    """The same frames with every batch taken apart."""
    for frame in frames:
        if isinstance(frame, Send):
            for payload in frame.payloads:
                yield Send(frame.retries, (payload,))
        else:
            yield frame


def _send_parts(frame: Send) -> list[bytes]:
    """What the packages of a batch are joined from: prefix, size and payload by turns, or the packages themselves."""
    payloads = frame.payloads
    prefix = _send_prefix(frame.retries)
    sizes = list(map(len, payloads))
    if sizes and sizes[0] < READY_SIZES and countOf(sizes, sizes[0]) == len(sizes):
        # One header for all: the separator of a join that starts with an empty part. Joined to other frames these
        # payloads are copied twice, but while they are small the number of parts costs more than their bytes.
        return [(prefix + _SIZES[sizes[0]]).join((b"", *payloads))]
    parts = [prefix] * (3 * len(payloads))
    parts[1::3] = map(_SIZES.__getitem__, sizes)
    parts[2::3] = payloads
    return parts


def _send_prefix(retries: int) -> bytes:
    if not 0 <= retries <= 255:
        raise ValueError(f"the retry counter is a byte, 0 to 255, not {retries}")
    return _SEND_PREFIXES[retries]


def _other(kind: int) -> bytes:
    if not 0 <= kind <= 255:
        raise ValueError(f"the package type is a byte, 0 to 255, not {kind}")
    if kind == PackageType.SEND or kind in _EMPTY_FRAMES:
        raise ValueError(f"0x{kind:02x} is {PackageType(kind).name}, a known type, and has a frame of its own")
    return _empty_package(kind)
