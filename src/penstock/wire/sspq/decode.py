"""Bytes to SSPQ frames, for either side. The layout is drawn in ``__init__``."""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Final

from mypy_extensions import mypyc_attr

from penstock.wire.sspq.frames import (
    DEFAULT_MAX_PAYLOAD,
    EMPTY_FRAMES,
    MAGIC,
    SEND_HEAD,
    Other,
    PackageType,
    Send,
    SspqFrame,
)
from penstock.wire.stream import StreamDecoder, too_large

_HEADER: Final = Struct(">II")
#: What a package without payload says that is written as usual, by its bytes.
_PLAIN: Final[dict[bytes, SspqFrame]] = {
    _HEADER.pack(MAGIC << 16 | kind << 8, 0): EMPTY_FRAMES[kind] for kind in EMPTY_FRAMES
}


@mypyc_attr(allow_interpreted_subclasses=True)
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
        return EMPTY_FRAMES.get(kind) or Other(kind)

    def _run(self, data: bytes, pos: int, frames: list[SspqFrame]) -> int:
        """Take the complete SENDs and empty packages at ``pos``, SENDs of one retry counter as one batch."""
        unpack = _HEADER.unpack_from
        limit = self.max_payload
        end = len(data)
        last_header = end - 8
        batch_head = -1
        payloads: list[bytes] = []
        while pos <= last_header:
            if not payloads and (plain := _PLAIN.get(data[pos : pos + 8])) is not None:
                frames.append(plain)
                pos += 8
                continue
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
                if head & 0xFFFFFF00 == SEND_HEAD:
                    batch_head = head
                    continue
                frame = EMPTY_FRAMES.get(head >> 8 & 0xFF)
                if frame is None or head >> 16 != MAGIC or size:
                    break
                frames.append(frame)
            pos = stop
        if payloads:
            frames.append(Send(batch_head & 0xFF, tuple(payloads)))
        return pos
