"""Kokaq frames to bytes, for clients (requests) and servers (responses). The layout is drawn in ``decode``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from functools import lru_cache
from operator import countOf
from struct import Struct
from typing import Final

from msgspec.structs import replace

from penstock.wire.kokaq.fields import COMPONENT_START, write_fields
from penstock.wire.kokaq.frames import (
    CANONICAL,
    OPCODES,
    PUSHED_OP,
    START,
    WIRE_MAX_NAME,
    WIRE_MAX_PAYLOAD,
    Deliveries,
    KokaqRequest,
    KokaqResponse,
    Opcode,
    Pushed,
    Pushes,
    Reason,
    Request,
    Requests,
    Response,
    Responses,
    Status,
    Tags,
    Variant,
    singles,
)

_HEADERS: Final = Struct(">I4sBBBB")
_PUSHED_START: Final = PUSHED_OP.to_bytes(2, "big")
_NOP_ANSWER: Final = "a successful answer to Nop has no components: its last byte is an opaque one"


def encode_requests(frames: Iterable[KokaqRequest], variant: Variant = CANONICAL) -> bytes:
    """The bytes of these requests, as a client that speaks ``variant`` sends them.

    Raises ``ValueError`` for what cannot be expressed or what a server would have to answer Fail/Bad at sight: sizes
    and numbers out of range, an unknown opcode, names without a payload component, a Nop with components, a frame with
    a problem.
    """
    parts: list[bytes] = []
    for frame in frames:
        if isinstance(frame, Pushes):
            parts += _pushes_parts(frame, variant)
        elif isinstance(frame, Requests):
            parts += _requests_parts(frame, variant)
        else:
            parts += _request_parts(frame, variant)
    return b"".join(parts)


def encode_responses(
    frames: Iterable[KokaqResponse | Responses], variant: Variant = CANONICAL, tags: Tags = Tags.DRAWN
) -> bytes:
    """The bytes of these responses to a client that speaks ``variant``, with ``tags`` on their components.

    Raises ``ValueError`` as :func:`encode_requests` does. Split a payload that is too large for one response with
    :func:`in_pieces` first.
    """
    parts: list[bytes] = []
    for frame in frames:
        if isinstance(frame, Pushed):
            parts += _pushed_parts(frame, variant, tags)
        elif isinstance(frame, Deliveries):
            parts += _deliveries_parts(frame, variant, tags)
        elif isinstance(frame, Responses):
            parts += _alike_parts(b"".join(_response_parts(frame.first, variant, tags)), frame)
        else:
            parts += _response_parts(frame, variant, tags)
    return b"".join(parts)


def response_parts(
    frames: Iterable[KokaqResponse | Responses], variant: Variant = CANONICAL, tags: Tags = Tags.DRAWN
) -> list[bytes | memoryview]:
    """The same bytes in parts, where payloads may be larger than one response can hold.

    Those go out in pieces, as :func:`in_pieces` cuts them, and are views: a payload of 16 MiB is not copied.
    """
    parts: list[bytes | memoryview] = []
    for frame in frames:
        if isinstance(frame, Response) and frame.payload is not None and len(frame.payload) > WIRE_MAX_PAYLOAD:
            parts += _piece_parts(frame, memoryview(frame.payload), variant, tags)
        else:
            parts.append(encode_responses((frame,), variant, tags))
    return parts


def _piece_parts(frame: Response, payload: memoryview, variant: Variant, tags: Tags) -> list[bytes | memoryview]:
    """Two parts a piece: all up to the payload, and a view of that."""
    last = replace(frame, metadata=None)
    middle = replace(last, status=Status.PARTIAL_SUCCESS)
    rest = len(payload) % WIRE_MAX_PAYLOAD or WIRE_MAX_PAYLOAD
    count = -(-len(payload) // WIRE_MAX_PAYLOAD)
    heads = [_piece_head(middle, WIRE_MAX_PAYLOAD, variant, tags)] * count
    heads[0] = _piece_head(replace(middle, metadata=frame.metadata), WIRE_MAX_PAYLOAD, variant, tags)
    heads[-1] = _piece_head(last, rest, variant, tags)
    parts: list[bytes | memoryview] = []
    for number, head in enumerate(heads):
        at = number * WIRE_MAX_PAYLOAD
        parts += head, payload[at : at + WIRE_MAX_PAYLOAD]
    return parts


def _piece_head(frame: Response, size: int, variant: Variant, tags: Tags) -> bytes:
    return b"".join(_response_head(frame, size, variant, tags))


def _request_parts(frame: Request, variant: Variant) -> list[bytes]:
    if frame.opcode not in OPCODES:
        raise ValueError(f"opcode 0x{frame.opcode:02x} is unknown")
    if frame.opcode == Opcode.NOP and _has_components(frame):
        raise ValueError("a Nop has no components: its last byte is an opaque one")
    head = START << 8 | variant.request_byte(frame.message_type, frame.two_way)
    payload = frame.payload
    parts = _head_parts(frame, None if payload is None else len(payload), head, frame.client, "the client", frame.tags)
    return parts if payload is None else [*parts, payload]


def _response_parts(frame: Response, variant: Variant, tags: Tags) -> list[bytes]:
    payload = frame.payload
    parts = _response_head(frame, None if payload is None else len(payload), variant, tags)
    return parts if payload is None else [*parts, payload]


def _response_head(frame: Response, size: int | None, variant: Variant, tags: Tags) -> list[bytes]:
    if not 0 <= frame.status <= 15 or not 0 <= frame.reason <= 15:
        raise ValueError(f"status and reason are 0 to 15, not {frame.status} and {frame.reason}")
    if not frame.opcode and frame.status == Status.SUCCESS and _has_components(frame):
        raise ValueError(_NOP_ANSWER)
    head = START << 8 | variant.response_byte(frame.message_type)
    return _head_parts(frame, size, head, frame.status << 4 | frame.reason, "the outcome", tags)


def _has_components(frame: Request | Response) -> bool:
    return frame.metadata is not None or frame.payload is not None


def _head_parts(
    frame: Request | Response, size: int | None, head: int, second: int, second_name: str, tags: Tags
) -> list[bytes]:
    """All of a message up to its payload of ``size``, None for a message without one."""
    if frame.problem is not None:
        raise ValueError(f"a frame with a problem cannot be sent: {frame.problem}")
    _check_opaques((frame.opaque,))
    for name, value in (("the opcode", frame.opcode), (second_name, second), ("the opaque byte", frame.op_opaque)):
        _check_byte(name, value)
    parts = [b""]
    tag = 0
    if frame.metadata is not None:
        tag |= tags.metadata
        parts += [tags.metadata_start, write_fields(frame.metadata)]
    if size is not None:
        tag |= tags.payload
        parts += _sized({size}, *_component(frame.namespace or "", frame.queue or "", tags.payload)).values()
    elif frame.namespace is not None or frame.queue is not None:
        raise ValueError(
            "names travel in a payload component: give the frame a payload, b'' if there is nothing to send"
        )
    if frame.nop_opaque:
        _check_byte("the opaque byte", frame.nop_opaque)
        if tag or frame.opcode != Opcode.NOP:
            raise ValueError("a second opaque byte is in the place of the tag: only a Nop without components has one")
    parts[0] = _HEADERS.pack(head, frame.opaque, frame.opcode, second, frame.op_opaque, tag or frame.nop_opaque)
    return parts


@lru_cache(maxsize=1024)
def _component(namespace: str, queue: str, tag: int) -> tuple[bytes, bytes]:
    """A payload component up to its payload size, and the names that follow the size."""
    names = namespace.encode(), queue.encode()
    if not names[0] and not names[1]:
        raise ValueError("a payload component needs a namespace or a queue: without both it would read as metadata")
    for name in names:
        if len(name) > WIRE_MAX_NAME:
            raise ValueError(f"a name of {len(name)} bytes is over the protocol's limit of {WIRE_MAX_NAME}")
    return bytes((tag, *COMPONENT_START, len(names[0]), len(names[1]))), names[0] + names[1]


def _sized(sizes: set[int], before: bytes, behind: bytes) -> dict[int, bytes]:
    """The payload size field for each of these sizes, with what stands before and behind it."""
    if sizes and (largest := max(sizes)) > WIRE_MAX_PAYLOAD:
        raise ValueError(f"a payload of {largest} bytes is over the protocol's limit of {WIRE_MAX_PAYLOAD}")
    return {size: before + size.to_bytes(2, "big") + behind for size in sizes}


def _check_byte(name: str, value: int) -> None:
    if not 0 <= value <= 255:
        raise ValueError(f"{name} is a byte, 0 to 255, not {value}")


def _check_opaques(opaques: tuple[bytes, ...]) -> None:
    if countOf(map(len, opaques), 4) != len(opaques):
        raise ValueError("an opaque has 4 bytes")


def _check_lengths(*columns: Sized) -> None:
    if len(set(map(len, columns))) > 1:
        raise ValueError("a batch has as many opaques and opaque bytes as messages")


def _distinct(op_opaques: bytes) -> set[int]:
    """The opaque bytes that occur. Mostly all are the same, which is quickly seen."""
    return set(op_opaques[:1] if op_opaques.count(op_opaques[:1]) == len(op_opaques) else op_opaques)


def _pushes_parts(frame: Pushes, variant: Variant) -> list[bytes]:
    """Four parts a push: four bytes, its opaque, all up to the payload, the payload."""
    opaques, op_opaques, payloads = frame.opaques, frame.op_opaques, frame.payloads
    _check_lengths(opaques, op_opaques, payloads)
    _check_opaques(opaques)
    _check_byte("the client", frame.client)
    component, names = _component(frame.namespace, frame.queue, frame.tags.payload)
    sizes = list(map(len, payloads))
    op = Opcode.PUSH, frame.client
    starts = {byte: bytes((*op, byte, frame.tags.payload)) + component for byte in _distinct(op_opaques)}
    head = (START << 8 | variant.request_byte(frame.message_type, frame.two_way)).to_bytes(4, "big")
    parts = [head] * (4 * len(payloads))
    parts[1::4] = opaques
    if len(starts) == 1:
        (start,) = starts.values()
        parts[2::4] = _each(_sized(set(sizes), start, names), sizes)
    else:
        ends = _sized(set(sizes), b"", names)
        parts[2::4] = [starts[byte] + ends[size] for byte, size in zip(op_opaques, sizes, strict=True)]
    parts[3::4] = payloads
    return parts


def _each(made: dict[int, bytes], keys: Sequence[int]) -> list[bytes]:
    """The value for each key; ``made`` has no other keys. Usually there is but one."""
    return [*made.values()] * len(keys) if len(made) == 1 else list(map(made.__getitem__, keys))


def _pushed_parts(frame: Pushed, variant: Variant, tags: Tags) -> list[bytes]:
    opaques, op_opaques, uuids = frame.opaques, frame.op_opaques, frame.uuids
    head = (START << 8 | variant.response_byte(frame.message_type)).to_bytes(4, "big")
    if len(opaques) == len(op_opaques) == len(uuids) == 1 and len(opaques[0]) == 4 and len(uuids[0]) == 16:
        return [head, opaques[0], _PUSHED_START, op_opaques, tags.pushed_middle, uuids[0]]
    _check_lengths(opaques, op_opaques, uuids)
    _check_opaques(opaques)
    if countOf(map(len, uuids), 16) != len(uuids):
        raise ValueError("a UUID has 16 bytes")
    middles = {byte: _PUSHED_START + bytes((byte,)) + tags.pushed_middle for byte in _distinct(op_opaques)}
    parts = [head] * (4 * len(uuids))
    parts[1::4] = opaques
    parts[2::4] = _each(middles, op_opaques)
    parts[3::4] = uuids
    return parts


def _requests_parts(frame: Requests, variant: Variant) -> list[bytes]:
    if frame.uuids:
        _check_lengths(frame.opaques, frame.op_opaques, frame.uuids)
        return [part for request in singles([frame]) for part in _request_parts(request, variant)]
    return _alike_parts(b"".join(_request_parts(frame.first, variant)), frame)


def _alike_parts(first: bytes, frame: Requests | Responses) -> list[bytes]:
    """Three parts a message: four bytes, its opaque, all else. ``first`` is one of them as bytes."""
    opaques, op_opaques = frame.opaques, frame.op_opaques
    _check_lengths(opaques, op_opaques)
    _check_opaques(opaques)
    parts = [first[:4]] * (3 * len(opaques))
    parts[1::3] = opaques
    rests = {byte: b"%b%c%b" % (first[8:10], byte, first[11:]) for byte in _distinct(op_opaques)}
    parts[2::3] = _each(rests, op_opaques)
    return parts


def _deliveries_parts(frame: Deliveries, variant: Variant, tags: Tags) -> list[bytes]:
    """Six parts a delivery: four bytes, its opaque, all up to the metadata, that, all up to the payload, and that."""
    opaques, op_opaques, payloads = frame.opaques, frame.op_opaques, frame.payloads
    _check_lengths(opaques, op_opaques, frame.metadata, payloads)
    _check_opaques(opaques)
    _check_byte("the opcode", frame.opcode)
    if not frame.opcode and payloads:
        raise ValueError(_NOP_ANSWER)
    outcome, tag = Status.SUCCESS << 4 | Reason.OK, tags.metadata | tags.payload
    starts = {byte: bytes((frame.opcode, outcome, byte, tag)) + tags.metadata_start for byte in _distinct(op_opaques)}
    sizes = list(map(len, payloads))
    head = (START << 8 | variant.response_byte(frame.message_type)).to_bytes(4, "big")
    parts = [head] * (6 * len(payloads))
    parts[1::6] = opaques
    parts[2::6] = _each(starts, op_opaques)
    parts[3::6] = frame.metadata.raw
    parts[4::6] = _each(_sized(set(sizes), *_component(frame.namespace, frame.queue, tags.payload)), sizes)
    parts[5::6] = payloads
    return parts
