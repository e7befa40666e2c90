"""Bytes to Kokaq frames, for servers (requests) and clients (responses).

Every message, all numbers big-endian::

     0      1      2      3      4      5      6      7
    +------+------+------+------+------+------+------+------+
    | 0x04 | 0x20 | ver 1| type | opaque, copied back       |   common header
    +------+------+------+------+------+------+------+------+
    |opcode|client|opaque| tag  |                               operation header; in a response the second
    +------+------+------+------+                               byte is status << 4 | reason

The two low bits of the operation header's tag say how many components follow: none, one or two. A component::

    +------+------+------+------+------+------+------+------+---- - - - ----+---- - - - ---+---- - -
    | tag  | 0x04   0x20 |opaque| ns   |queue | payload size| namespace     | queue        | payload
    +------+------+------+------+------+------+------+------+---- - - - ----+---- - - - ---+---- - -
    | tag  | 0x04   0x20 |opaque| field count               | fields (see ``fields``)
    +------+------+------+------+------+------+------+------+---- - -

A component with two name sizes of 0 is metadata, any other is payload: peers disagree on which tag is which.

The type byte holds the message type and whether this is a response, a two-way or a one-way request. Peers write it in
four variants (:class:`Variant`). A server learns its peer's from the requests: see ``_Stage``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace
from mypy_extensions import mypyc_attr

from penstock.wire.kokaq.fields import MAX_FIELDS, MAX_METADATA, Metadata, parse_fields
from penstock.wire.kokaq.frames import (
    CANONICAL,
    MAGIC,
    OPCODES,
    PUSHED_OP,
    RUN_OPCODES,
    START,
    VERSION,
    WIRE_MAX_NAME,
    WIRE_MAX_PAYLOAD,
    BitOrder,
    Deliveries,
    KokaqRequest,
    KokaqResponse,
    MessageType,
    Numbering,
    Opcode,
    Pushed,
    Pushes,
    Reason,
    Request,
    Requests,
    Response,
    Status,
    Tags,
    Variant,
)
from penstock.wire.kokaq.push_runs import MANY, pushes_of_one_size
from penstock.wire.kokaq.runs import MetadataRun
from penstock.wire.kokaq.shapes import place_of_uuid, shape_at
from penstock.wire.stream import StreamDecoder, too_large

FrameT = TypeVar("FrameT")


class _Body(NamedTuple):
    """What the components of a message hold, and the first problem found in them.

    ``raw`` is the metadata as it came, from its field count on, ``tags`` how the payload is tagged.
    """

    metadata: Metadata | None = None
    namespace: str | None = None
    queue: str | None = None
    payload: bytes | None = None
    problem: str | None = None
    raw: bytes = b""
    tags: Tags = Tags.DRAWN


_NO_BODY: Final = _Body()
_SUCCESS_OK: Final = Status.SUCCESS << 4 | Reason.OK
#: How many components the operation header's tag announces.
_COMPONENTS: Final = {0b00: 0, 0b01: 1, 0b10: 1, 0b11: 2}
_COMPONENT_TAGS: Final = (1, 2)
_NOP: Final = int(Opcode.NOP)
_PUSH_OPCODE: Final = int(Opcode.PUSH)
_TAGS: Final = {tags.payload: tags for tags in Tags}
_PUSHED_MIDDLES: Final = frozenset(tags.pushed_middle for tags in Tags)
_COMMON: Final = Struct(">I4s")
_HEADERS: Final = Struct(">I4s4s")
_COMPONENT: Final = Struct(">BHxBBH")
# Both headers and a payload component's header. The 7 bytes from the operation header's tag to the queue name's size
# are the same in a run of pushes to one queue, so they are compared as one.
_PUSH: Final = Struct(">I4sHB7sH")
_PUSH_STARTS: Final = frozenset(bytes((tag, own, 0x04, 0x20)) for tag in (1, 2) for own in _COMPONENT_TAGS)
# A Push answer with a UUID alone: the 11 bytes are the tag, the component's header, and the field's tag and size.
_PUSHED: Final = Struct(">I4sHB11s16s")


@lru_cache(maxsize=2 * WIRE_MAX_NAME)
def _push_and_names(size: int) -> Struct:
    """``_PUSH`` and the names, which are together ``size`` bytes: unpacking them too is the quickest way to compare."""
    return Struct(f"{_PUSH.format}{size}s")


@mypyc_attr(allow_interpreted_subclasses=True)
class _Decoder(StreamDecoder[FrameT]):
    """What requests and responses have in common: the headers around the type byte, and the components."""

    protocol = "Kokaq"

    def __init__(self, max_payload: int = WIRE_MAX_PAYLOAD) -> None:
        super().__init__()
        self.max_payload = max_payload

    def _start(self, head: int) -> int:
        """Check the first four bytes and return the type byte."""
        if head >> 16 != MAGIC:
            raise self._bad("bad-magic", f"a message starts with 0x0420, not 0x{head >> 16:04x}")
        if (version := head >> 8 & 0xFF) != VERSION:
            raise self._bad("bad-version", f"the protocol version is 1, not {version}", at=2)
        return head & 0xFF

    def _components(self, tag: int) -> Generator[int, bytes, _Body]:
        """Read the components that the operation header, the field read last, announces with its ``tag``."""
        if tag not in _COMPONENTS:
            raise self._bad("bad-tag", f"the operation header's tag is 0 to 3, not {tag}", at=3)
        body = _NO_BODY
        for _ in range(_COMPONENTS[tag]):
            own_tag, magic, namespace, queue, size = _COMPONENT.unpack((yield 8))
            if own_tag not in _COMPONENT_TAGS:
                raise self._bad("bad-component-tag", f"a component's tag is 1 or 2, not {own_tag}")
            if magic != MAGIC:
                raise self._bad("bad-component-magic", f"a component's magic is 0x0420, not 0x{magic:04x}", at=1)
            if namespace or queue:
                body = yield from self._payload(body, namespace, queue, size, _TAGS[own_tag])
            else:
                body = yield from self._metadata(body, size)
        return body

    def _payload(self, body: _Body, namespace: int, queue: int, size: int, tags: Tags) -> Generator[int, bytes, _Body]:
        if body.payload is not None:
            raise self._bad("duplicate-component", "a message has at most one payload component", at=4)
        if size > self.max_payload:
            reason = f"a payload of {size} bytes is over the limit of {self.max_payload}"
            error = self._bad("payload-too-large", reason, at=6, peer_at_fault=False)
            raise too_large(error, size, self.max_payload)
        names = yield namespace + queue
        payload = (yield size) if size else b""
        return _with_payload(body, names, namespace, payload, tags)

    def _metadata(self, body: _Body, count: int) -> Generator[int, bytes, _Body]:
        if body.metadata is not None:
            raise self._bad("duplicate-component", "a message has at most one metadata component", at=4)
        if count > MAX_FIELDS:
            reason = f"{count} metadata fields are over the limit of {MAX_FIELDS}"
            raise self._bad("too-many-fields", reason, at=4, peer_at_fault=False)
        parts = []
        total = 0
        for _ in range(count):
            parts.append((yield 2))
            size = parts[-1][1]
            total += 2 + size
            if total > MAX_METADATA:
                reason = f"metadata of {total} bytes or more is over the limit of {MAX_METADATA}"
                raise self._bad("metadata-too-large", reason, at=1, peer_at_fault=False)
            if size:
                parts.append((yield size))
        return _with_metadata(body, count, b"".join(parts))

    def _whole_components(self, data: bytes, pos: int, tag: int) -> tuple[int, _Body] | None:
        """The components at ``pos`` and where they end, or None if they are incomplete or must be refused."""
        end = len(data)
        body = _NO_BODY
        for _ in range(_COMPONENTS[tag]):
            start = pos + 8
            if start > end:
                return None
            own_tag, magic, namespace, queue, size = _COMPONENT.unpack_from(data, pos)
            if own_tag not in _COMPONENT_TAGS or magic != MAGIC:
                return None
            if namespace or queue:
                at = start + namespace + queue
                pos = at + size
                if body.payload is not None or size > self.max_payload or pos > end:
                    return None
                body = _with_payload(body, data[start:at], namespace, data[at:pos], _TAGS[own_tag])
            else:
                pos = _fields_end(data, start, size)
                if body.metadata is not None or not start <= pos <= start + MAX_METADATA:
                    return None
                body = _with_metadata(body, size, data[start:pos])
        return pos, body


def _fields_end(data: bytes, pos: int, count: int) -> int:
    """Where ``count`` metadata fields at ``pos`` end, or -1 if they are too many or not all there."""
    end = len(data)
    if count > MAX_FIELDS:
        return -1
    for _ in range(count):
        if pos + 2 > end:
            return -1
        pos += 2 + data[pos + 1]
    return pos if pos <= end else -1


def _with_metadata(body: _Body, count: int, fields: bytes) -> _Body:
    metadata, problem = parse_fields(fields)
    raw = count.to_bytes(4, "big") + fields
    return _Body(metadata, body.namespace, body.queue, body.payload, body.problem or problem, raw, body.tags)


def _with_payload(body: _Body, names: bytes, split: int, payload: bytes, tags: Tags) -> _Body:
    namespace, queue, problem = _read_names(names, split)
    return _Body(body.metadata, namespace, queue, payload, body.problem or problem, body.raw, tags)


@lru_cache(maxsize=1024)
def _read_names(names: bytes, split: int) -> tuple[str, str, str | None]:
    try:
        return names[:split].decode(), names[split:].decode(), None
    except UnicodeDecodeError:
        namespace, queue = (part.decode(errors="backslashreplace") for part in (names[:split], names[split:]))
        return namespace, queue, "a namespace or queue name is not UTF-8"


class _Stage:
    """What a server knows of its peer's variant.

    The bit order shows in the first request, the numbering in the first two-way one.

    ========  =======================  ==============================================  ==============================
    stage     known                    type bytes that are understood                  type bytes that lead further
    ========  =======================  ==============================================  ==============================
    first     nothing                  none                                            all requests of all variants
    ordered   the bit order            one-way, in canonical numbering; its type 3,    two-way of either numbering, to
              (two such stages)        which only the listing has, is Control          settled
    settled   the variant              all requests of the variant                     none
              (four such stages)
    ========  =======================  ==============================================  ==============================

    A byte that leads further is then read in the new stage. Nothing is answered before a two-way request came, so no
    answer is ever written in a variant that was only assumed.
    """

    def __init__(self, variant: Variant, known: str, types: Mapping[int, tuple[MessageType, bool]]) -> None:
        self.variant = variant
        self.known = known
        self.types = types
        self.further: dict[int, _Stage] = {}


def _ordered_stage(order: BitOrder) -> _Stage:
    canonical, listing = (Variant(numbering, order) for numbering in (Numbering.CANONICAL, Numbering.LISTING))
    one_way = {listing.request_byte(MessageType.CONTROL, False): (MessageType.CONTROL, False)}
    one_way |= {canonical.request_byte(each, False): (each, False) for each in MessageType}
    stage = _Stage(canonical, f"type in the {order.value} bits", one_way)
    for variant in (canonical, listing):
        both_ways = {variant.request_byte(each, way): (each, way) for each in MessageType for way in (True, False)}
        settled = _Stage(variant, str(variant), both_ways)
        stage.further |= {byte: settled for byte, (_, two_way) in both_ways.items() if two_way}
    return stage


def _first_stage() -> _Stage:
    first = _Stage(CANONICAL, "any variant", {})
    for ordered in map(_ordered_stage, BitOrder):
        first.further |= ordered.further
        first.further |= dict.fromkeys(ordered.types, ordered)
    return first


_FIRST_STAGE: Final = _first_stage()


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerDecoder(_Decoder[KokaqRequest]):
    """Decodes what a server receives, and learns from it which variant the client speaks."""

    def __init__(self, max_payload: int = WIRE_MAX_PAYLOAD) -> None:
        super().__init__(max_payload)
        self._stage = _FIRST_STAGE
        #: Whether all the pushes that were read may be alike.
        self._may_be_of_one_size = True

    @property
    def variant(self) -> Variant:
        """The variant to answer in. It is certain as soon as a two-way request came: before, nothing is answered."""
        return self._stage.variant

    def _message(self) -> Generator[int, bytes, KokaqRequest]:
        head, opaque = _COMMON.unpack((yield 8))
        type_byte = self._start(head)
        self._stage = self._stage.further.get(type_byte, self._stage)
        reading = self._stage.types.get(type_byte)
        if reading is None:
            reason = f"0x{type_byte:02x} is not the type byte of a request ({self._stage.known})"
            raise self._bad("bad-type-byte", reason, at=3)
        operation = yield 4
        body = (yield from self._components(operation[3])) if operation[0] != _NOP else _NO_BODY
        return _request(reading, opaque, operation, body)

    def _run(self, data: bytes, pos: int, frames: list[KokaqRequest]) -> int:
        """Take the complete requests that teach nothing about the variant; those that are alike are one frame."""
        last = len(data) - 12
        self._may_be_of_one_size = True
        while pos <= last:
            after = self._pushes(data, pos, frames)
            if after == pos:
                after = self._single(data, pos, frames)
            if after == pos:
                break
            pos = after
        return pos

    def _pushes(self, data: bytes, pos: int, frames: list[KokaqRequest]) -> int:
        """Take the run of pushes without metadata that are like the one at ``pos``."""
        end, limit = len(data), self.max_payload
        if pos + 20 > end:
            return pos
        head: int
        op: int
        middle: bytes
        size: int
        head, opaque, op, op_opaque, middle, size = _PUSH.unpack_from(data, pos)
        reading = self._stage.types.get(head & 0xFF)
        if reading is None or head >> 8 != START or op >> 8 != _PUSH_OPCODE or middle[:4] not in _PUSH_STARTS:
            return pos
        prefix = 20 + middle[5] + middle[6]
        start = pos + prefix
        stop = start + size
        if stop > end or size > limit:
            return pos
        names = data[pos + 20 : start]
        namespace, queue, problem = _read_names(names, middle[5])
        if problem or not names:
            return pos
        kind = *reading, op & 0xFF, namespace, queue
        tags = _TAGS[middle[1]]
        if not data.startswith(data[pos : pos + 4], stop):
            frames.append(Pushes(*kind, (opaque,), bytes((op_opaque,)), (data[start:stop],), tags))
            return stop
        if self._may_be_of_one_size and end - pos >= MANY * (stop - pos):
            found = pushes_of_one_size(data, pos, prefix, size)
            if found is not None:
                frames.append(Pushes(*kind, *found, tags))
                return pos + len(found[0]) * (stop - pos)
            self._may_be_of_one_size = False  # it looked at all that was read: not again before the next read
        unpack = _push_and_names(len(names)).unpack_from
        last = end - prefix
        opaques: list[bytes] = []
        op_opaques: list[int] = []
        payloads: list[bytes] = []
        its_head: int
        its_opaque: bytes
        its_op: int
        its_op_opaque: int
        its_middle: bytes
        its_names: bytes
        while pos <= last:
            its_head, its_opaque, its_op, its_op_opaque, its_middle, size, its_names = unpack(data, pos)
            if its_head != head or its_op != op or its_middle != middle or its_names != names:
                break
            start = pos + prefix
            stop = start + size
            if stop > end or size > limit:
                break
            opaques.append(its_opaque)
            op_opaques.append(its_op_opaque)
            payloads.append(data[start:stop])
            pos = stop
        frames.append(Pushes(*kind, tuple(opaques), bytes(op_opaques), tuple(payloads), tags))
        return pos

    def _single(self, data: bytes, pos: int, frames: list[KokaqRequest]) -> int:
        """Take the one request at ``pos``, whatever it is, if it is complete and sound."""
        head, opaque, operation = _HEADERS.unpack_from(data, pos)
        reading = self._stage.types.get(head & 0xFF)
        tag = operation[3] if operation[0] != _NOP else 0
        if reading is None or head >> 8 != START or tag not in _COMPONENTS:
            return pos
        found = self._whole_components(data, pos + 12, tag)
        if found is None:
            return pos
        after, body = found
        frame = _request(reading, opaque, operation, body)
        if operation[0] in RUN_OPCODES and data.startswith(data[pos : pos + 4], after):
            after, frame = _alike_requests(data, pos, after, frame)
        frames.append(frame)
        return after


def _alike_requests(data: bytes, first: int, pos: int, frame: KokaqRequest) -> tuple[int, KokaqRequest]:
    """Take the requests at ``pos`` that look like the one at ``first``, which was read into ``frame``."""
    if not isinstance(frame, Request) or frame.problem is not None:
        return pos, frame
    named = frame.metadata is not None and frame.metadata.uuid is not None
    uuid_at = place_of_uuid(data[first:pos], named=named)
    if uuid_at is None:
        return pos, frame
    size = pos - first
    behind_at = min(uuid_at + 16, size)
    head, op = data[first : first + 4], data[first + 8 : first + 10]
    between, behind = data[first + 11 : first + uuid_at], data[first + behind_at : pos]
    end = len(data)
    while (stop := pos + size) <= end:
        if data[pos + 11 : pos + uuid_at] != between or data[pos + behind_at : stop] != behind:
            break
        if data[pos : pos + 4] != head or data[pos + 8 : pos + 10] != op:
            break
        pos = stop
    if pos == first + size:
        return pos, frame
    opaques = tuple([data[at : at + 4] for at in range(first + 4, pos, size)])
    uuids = tuple([data[at : at + 16] for at in range(first + uuid_at, pos, size)]) if named else ()
    return pos, Requests(frame, opaques, data[first + 10 : pos : size], uuids)


def _request(reading: tuple[MessageType, bool], opaque: bytes, operation: bytes, body: _Body) -> KokaqRequest:
    opcode, client, op_opaque, last = operation
    metadata, namespace, queue, payload, problem, _, tags = body
    if opcode == _NOP:
        return Request(*reading, opaque, opcode, client, op_opaque, nop_opaque=last)
    if opcode not in OPCODES:
        problem = f"opcode 0x{opcode:02x} is unknown"
    elif opcode == Opcode.PUSH and metadata is None and payload is not None and problem is None:
        assert namespace is not None
        assert queue is not None
        return Pushes(*reading, client, namespace, queue, (opaque,), bytes((op_opaque,)), (payload,), tags)
    return Request(*reading, opaque, opcode, client, op_opaque, metadata, namespace, queue, payload, problem, tags=tags)


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientDecoder(_Decoder[KokaqResponse]):
    """Decodes what a client that speaks ``variant`` receives.

    A large message comes as several responses: :class:`Reassembler` puts them together.
    """

    def __init__(self, max_payload: int = WIRE_MAX_PAYLOAD, variant: Variant = CANONICAL) -> None:
        super().__init__(max_payload)
        self.variant = variant
        self._types = {variant.response_byte(each): each for each in MessageType}

    def _message(self) -> Generator[int, bytes, KokaqResponse]:
        head, opaque = _COMMON.unpack((yield 8))
        type_byte = self._start(head)
        message_type = self._types.get(type_byte)
        if message_type is None:
            reason = f"0x{type_byte:02x} is not the type byte of a response ({self.variant})"
            raise self._bad("bad-type-byte", reason, at=3)
        operation = yield 4
        body = (yield from self._components(operation[3])) if not _ends_in_opaque(operation) else _NO_BODY
        return _response(message_type, opaque, operation, body)

    def _run(self, data: bytes, pos: int, frames: list[KokaqResponse]) -> int:
        """Take the complete responses, plain answers to Push and deliveries that look alike as one batch."""
        last = len(data) - 12
        while pos <= last:
            after = self._pushed(data, pos, frames)
            if after == pos:
                after = self._deliveries(data, pos, frames)
            if after == pos:
                break
            pos = after
        return pos

    def _pushed(self, data: bytes, pos: int, frames: list[KokaqResponse]) -> int:
        """Take the run of answers to Push, as we send them, that starts at ``pos``."""
        head = int.from_bytes(data[pos : pos + 4], "big")
        message_type = self._types.get(head & 0xFF)
        if message_type is None or head >> 8 != START:
            return pos
        opaques: list[bytes] = []
        op_opaques = bytearray()
        uuids: list[bytes] = []
        last = len(data) - _PUSHED.size
        while pos <= last:
            its_head, opaque, op, op_opaque, middle, uuid = _PUSHED.unpack_from(data, pos)
            if its_head != head or op != PUSHED_OP or middle not in _PUSHED_MIDDLES:
                break
            opaques.append(opaque)
            op_opaques.append(op_opaque)
            uuids.append(uuid)
            pos += _PUSHED.size
        if uuids:
            frames.append(Pushed(message_type, tuple(opaques), bytes(op_opaques), tuple(uuids)))
        return pos

    def _deliveries(self, data: bytes, pos: int, frames: list[KokaqResponse]) -> int:
        """Take the one response at ``pos``, whatever it is, and if it is a delivery those behind it that look alike."""
        head, opaque, operation = _HEADERS.unpack_from(data, pos)
        message_type = self._types.get(head & 0xFF)
        tag = operation[3] if not _ends_in_opaque(operation) else 0
        if message_type is None or head >> 8 != START or tag not in _COMPONENTS:
            return pos
        found = self._whole_components(data, pos + 12, tag)
        if found is None:
            return pos
        after, body = found
        frame = _response(message_type, opaque, operation, body)
        if isinstance(frame, Deliveries) and data.startswith(data[pos : pos + 4], after):
            after, frame = self._alike(data, pos, after, frame)
        frames.append(frame)
        return after

    def _alike(self, data: bytes, first: int, pos: int, frame: Deliveries) -> tuple[int, Deliveries]:
        """Take the deliveries at ``pos`` that look like the one at ``first``, which was read into ``frame``."""
        shape = shape_at(data, first)
        if shape is None:
            return pos, frame
        mask, unpack, prefix = shape.mask, shape.record.unpack_from, shape.record.size
        number = int.from_bytes
        expected = number(data[first : first + prefix], "big") & mask
        opaques, op_opaques = [*frame.opaques], [*frame.op_opaques]
        metadata, payloads = [*frame.metadata.raw], [*frame.payloads]
        end, limit = len(data), self.max_payload
        while (start := pos + prefix) <= end and number(data[pos:start], "big") & mask == expected:
            opaque, op_opaque, raw, size = unpack(data, pos)
            stop = start + size
            if stop > end or size > limit:
                break
            opaques.append(opaque)
            op_opaques.append(op_opaque)
            metadata.append(raw)
            payloads.append(data[start:stop])
            pos = stop
        grown = replace(
            frame,
            opaques=tuple(opaques),
            op_opaques=bytes(op_opaques),
            metadata=MetadataRun(tuple(metadata)),
            payloads=tuple(payloads),
        )
        return pos, grown


def _response(message_type: MessageType, opaque: bytes, operation: bytes, body: _Body) -> KokaqResponse:
    opcode, outcome, op_opaque, last = operation
    metadata, namespace, queue, payload, problem, raw, _ = body
    if outcome == _SUCCESS_OK and metadata is not None and problem is None:
        if namespace is not None and queue is not None and payload is not None:
            kind = message_type, opcode, namespace, queue
            return Deliveries(*kind, (opaque,), bytes((op_opaque,)), MetadataRun((raw,)), (payload,))
        if opcode == Opcode.PUSH and metadata.uuid is not None and metadata == Metadata(uuid=metadata.uuid):
            return Pushed(message_type, (opaque,), bytes((op_opaque,)), (metadata.uuid,))
    nop_opaque = last if _ends_in_opaque(operation) else 0
    return Response(message_type, opaque, opcode, outcome >> 4, outcome & 15, op_opaque, *body[:5], nop_opaque)


def _ends_in_opaque(operation: bytes) -> bool:
    """Whether the last byte of an answer's operation header is a Nop's second opaque byte, and no tag.

    A Nop that fails may be answered with a reason in metadata: 0 to 3 are then a tag.
    """
    opcode, outcome, _, last = operation
    return opcode == _NOP and (outcome >> 4 == Status.SUCCESS or last not in _COMPONENTS)
