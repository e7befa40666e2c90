"""SSPQ frames to bytes, for either side. The layout is drawn in ``__init__``."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from penstock.wire.sspq.frames import (
    EMPTY_FRAMES,
    MAGIC,
    SEND_HEAD,
    WIRE_MAX_PAYLOAD,
    Other,
    PackageType,
    Send,
    SspqFrame,
)

#: How many payload sizes, counted from 0, have a ready-made size field: about 400 KB, made once.
READY_SIZES: Final = 4096

_HEADER: Final = Struct(">II")
_SIZE: Final = Struct(">I")


def _empty_package(kind: int) -> bytes:
    return _HEADER.pack(MAGIC << 16 | kind << 8, 0)


_EMPTY_PACKAGES: Final = {type(frame): _empty_package(kind) for kind, frame in EMPTY_FRAMES.items()}
_SEND_PREFIXES: Final = [_SIZE.pack(SEND_HEAD | retries) for retries in range(256)]
#: The size fields of small payloads, where packing would cost the most.
_READY: Final = [_SIZE.pack(size) for size in range(READY_SIZES)]


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


def send_package(retries: int, payload: bytes) -> bytes:
    """The bytes of a SEND alone. Raises ``ValueError`` as ``encode`` does."""
    return b"".join((_send_prefix(retries), size_field(len(payload)), payload))


def _send_parts(frame: Send) -> list[bytes]:
    """What the packages of a batch are joined from: prefix, size and payload by turns, or the packages themselves."""
    payloads = frame.payloads
    prefix = _send_prefix(frame.retries)
    sizes = list(map(len, payloads))
    if sizes and sizes[0] < READY_SIZES and sizes.count(sizes[0]) == len(sizes):
        # One header for all: the separator of a join that starts with an empty part. Joined to other frames these
        # payloads are copied twice, but while they are small the number of parts costs more than their bytes.
        return [(prefix + _READY[sizes[0]]).join((b"", *payloads))]
    parts = [prefix] * (3 * len(payloads))
    parts[1::3] = map(size_field, sizes)
    parts[2::3] = payloads
    return parts


def size_field(size: int) -> bytes:
    """The size field of a package with a payload of ``size`` bytes."""
    if size < READY_SIZES:
        return _READY[size]
    if size > WIRE_MAX_PAYLOAD:
        raise ValueError(f"a payload of {size} bytes cannot be expressed; the size field holds {WIRE_MAX_PAYLOAD}")
    return _SIZE.pack(size)


def _send_prefix(retries: int) -> bytes:
    if not 0 <= retries <= 255:
        raise ValueError(f"the retry counter is a byte, 0 to 255, not {retries}")
    return _SEND_PREFIXES[retries]


def _other(kind: int) -> bytes:
    if not 0 <= kind <= 255:
        raise ValueError(f"the package type is a byte, 0 to 255, not {kind}")
    if kind == PackageType.SEND or kind in EMPTY_FRAMES:
        raise ValueError(f"0x{kind:02x} is {PackageType(kind).name}, a known type, and has a frame of its own")
    return _empty_package(kind)
