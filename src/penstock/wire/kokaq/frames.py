"""The vocabulary of Kokaq: its numbers, its variants, and the frames that decoders return and encoders take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from itertools import chain
from typing import Any, Final, overload

from msgspec import Struct as Frame
from msgspec.structs import replace

from penstock.wire.kokaq.fields import COMPONENT_START, Metadata
from penstock.wire.kokaq.runs import MetadataRun

MAGIC: Final = 0x0420
VERSION: Final = 1
#: The largest payload of one message: its size field has two bytes.
WIRE_MAX_PAYLOAD: Final = 2**16 - 1
#: The longest namespace or queue name in bytes: its size field has one byte.
WIRE_MAX_NAME: Final = 255


class MessageType(IntEnum):
    """What a message is about; the values are those of the canonical numbering."""

    OPERATIONAL = 0
    ADMIN = 1
    CONTROL = 2


class Opcode(IntEnum):
    """The operations. 0x05 is also ReleasePeekLock when it carries a UUID: see ``Request.operation``."""

    NOP = 0x00
    CREATE = 0x01
    DELETE = 0x02
    GET = 0x03
    PEEK = 0x04
    POP = 0x05
    PUSH = 0x07
    ACQUIRE_PEEK_LOCK = 0x08
    RELEASE_PEEK_LOCK = 0x09


class Status(IntEnum):
    """How a request ended."""

    SUCCESS = 0
    FAIL = 1
    PARTIAL_SUCCESS = 2
    UNKNOWN = 3


class Reason(IntEnum):
    """Why it ended so."""

    OK = 1
    BAD = 2
    EXISTS = 3
    NOT_ALLOWED = 4
    INFRA = 5


class Numbering(Enum):
    """The protocol's table and its listing number types and request flags differently."""

    CANONICAL = "canonical"
    LISTING = "listing"


class BitOrder(Enum):
    """Which end of the type byte holds the message type."""

    LOW = "low"
    HIGH = "high"


# A member is looked up in many steps: these are asked for with every message.
_CANONICAL = Numbering.CANONICAL
_LOW = BitOrder.LOW


class Variant(Frame, frozen=True, gc=False):
    """How a peer writes the type byte."""

    numbering: Numbering
    bit_order: BitOrder

    def __str__(self) -> str:
        return f"{self.numbering.value} numbering, type in the {self.bit_order.value} bits"

    def request_byte(self, message_type: MessageType, two_way: bool) -> int:
        """The type byte of a request."""
        flags = 3 if not two_way else 1 if self.numbering is _CANONICAL else 2
        return self._byte(message_type, flags)

    def response_byte(self, message_type: MessageType) -> int:
        """The type byte of a response."""
        return self._byte(message_type, 0 if self.numbering is _CANONICAL else 1)

    def _byte(self, message_type: MessageType, flags: int) -> int:
        number = message_type if self.numbering is _CANONICAL else message_type + 1
        return flags << 6 | number if self.bit_order is _LOW else number << 2 | flags


class Tags(Enum):
    """Which component has which tag: the protocol's drawings of components and its listings differ.

    ``payload`` and ``metadata`` are the tags of the components, and their bits in the operation header's tag;
    ``metadata_start`` is a metadata component up to its field count, ``pushed_middle`` what stands before the UUID of a
    plain answer to Push: the operation header's tag, the component's header, the field's tag and size.
    """

    DRAWN = "drawn"  # payload 1, metadata 2: as we send
    LISTED = "listed"  # metadata 1, payload 2

    def __init__(self, name: str) -> None:
        self.payload = 1 if name == "drawn" else 2
        self.metadata = 3 - self.payload
        self.metadata_start = bytes((self.metadata,)) + COMPONENT_START
        self.pushed_middle = bytes((self.metadata,)) + self.metadata_start + bytes.fromhex("00000001 0510")


CANONICAL = Variant(Numbering.CANONICAL, BitOrder.LOW)
VARIANTS = tuple(Variant(numbering, order) for numbering in Numbering for order in BitOrder)


class Request(Frame, frozen=True, gc=False):
    """One request. ``namespace``, ``queue`` and ``payload`` are all None where there was no payload component.

    ``problem`` says why the request, though it could be read, cannot be carried out: an unknown opcode, a bad metadata
    field, a name that is not UTF-8 (its bad bytes are then shown escaped). It is answered Fail/Bad.

    ``nop_opaque`` is the second opaque byte, which only a Nop has, in the place of the tag: nothing follows a Nop.
    ``tags`` is how the payload component was tagged; DRAWN if there was none.
    """

    message_type: MessageType
    two_way: bool
    opaque: bytes
    opcode: int
    client: int = 0
    op_opaque: int = 0
    metadata: Metadata | None = None
    namespace: str | None = None
    queue: str | None = None
    payload: bytes | None = None
    problem: str | None = None
    nop_opaque: int = 0
    tags: Tags = Tags.DRAWN

    @property
    def operation(self) -> Opcode | None:
        """What the opcode means here (answers repeat the opcode as received), or None if it is unknown."""
        if self.opcode == Opcode.POP and self.metadata is not None and self.metadata.uuid is not None:
            return Opcode.RELEASE_PEEK_LOCK
        return OPCODES.get(self.opcode)


class Pushes(Frame, frozen=True, gc=False):
    """A run of sound Push requests to one queue, without metadata. Every such request decodes to this, even a lone one.

    The three sequences are equally long; ``op_opaques`` has one byte for each. ``tags`` is how all are tagged.
    """

    message_type: MessageType
    two_way: bool
    client: int
    namespace: str
    queue: str
    opaques: tuple[bytes, ...]
    op_opaques: bytes
    payloads: tuple[bytes, ...]
    tags: Tags = Tags.DRAWN


class Requests(Frame, frozen=True, gc=False):
    """A run of two or more requests like ``first`` that differ in their opaques and, where they carry one, their UUID.

    So come requests to take messages (AcquirePeekLock and Pop without a UUID) and to settle them (Delete with one): see
    ``RUN_OPCODES``. ``uuids`` is empty where there are none. Lone requests decode to a Request.
    """

    first: Request
    opaques: tuple[bytes, ...]
    op_opaques: bytes
    uuids: tuple[bytes, ...] = ()

    def part(self, start: int, stop: int | None = None) -> Requests:
        """Some of them. ``first`` stays, as a pattern."""
        of = slice(start, stop)
        return Requests(self.first, self.opaques[of], self.op_opaques[of], self.uuids[of])


class Response(Frame, frozen=True, gc=False):
    """One response. ``status`` and ``reason`` are a Status and a Reason where the number is known.

    As in a request, ``problem`` describes a bad field or name, and the rest stays readable. ``nop_opaque`` is as in a
    request, too; an answer to Nop other than Success may have components in its place.
    """

    message_type: MessageType
    opaque: bytes
    opcode: int
    status: int
    reason: int
    op_opaque: int = 0
    metadata: Metadata | None = None
    namespace: str | None = None
    queue: str | None = None
    payload: bytes | None = None
    problem: str | None = None
    nop_opaque: int = 0


class Pushed(Frame, frozen=True, gc=False):
    """A run of Success/Ok answers to Push that carry a UUID and nothing else. Every such answer decodes to this."""

    message_type: MessageType
    opaques: tuple[bytes, ...]
    op_opaques: bytes
    uuids: tuple[bytes, ...]


class Responses(Frame, frozen=True, gc=False):
    """A run of responses like ``first`` that differ in their opaques: for encoders. Each decodes to a Response."""

    first: Response
    opaques: tuple[bytes, ...]
    op_opaques: bytes


class Deliveries(Frame, frozen=True, gc=False):
    """A run of sound Success/Ok answers to one opcode, with metadata and payload, from one queue.

    Every such answer decodes to this, even a lone one. The last four sequences are equally long.
    """

    message_type: MessageType
    opcode: int
    namespace: str
    queue: str
    opaques: tuple[bytes, ...]
    op_opaques: bytes
    metadata: MetadataRun
    payloads: tuple[bytes, ...]


KokaqRequest = Request | Pushes | Requests
KokaqResponse = Response | Pushed | Deliveries

#: The opcodes by their number.
OPCODES = {opcode.value: opcode for opcode in Opcode}
#: Requests that come in runs, and whether they carry a UUID then: see :class:`Requests`.
RUN_OPCODES = {Opcode.ACQUIRE_PEEK_LOCK.value: False, Opcode.POP.value: False, Opcode.DELETE.value: True}
#: The first three bytes of every message as a number: magic and version.
START = MAGIC << 8 | VERSION
#: The first two bytes of the operation header of a plain answer to Push, as a number: see :class:`Pushed`.
PUSHED_OP = Opcode.PUSH << 8 | Status.SUCCESS << 4 | Reason.OK


@overload
def singles(frames: Iterable[KokaqRequest]) -> Iterator[Request]: ...
@overload
def singles(frames: Iterable[KokaqResponse | Responses]) -> Iterator[Response]: ...
def singles(
    frames: Iterable[KokaqRequest] | Iterable[KokaqResponse | Responses],
) -> Iterator[Request] | Iterator[Response]:
    """The same frames, with every run split into single requests or responses."""
    return chain.from_iterable(map(_apart, frames))


def _apart(frame: KokaqRequest | KokaqResponse | Responses) -> Iterable[Any]:
    if isinstance(frame, Pushes):
        common = frame.message_type, frame.two_way
        columns = zip(frame.opaques, frame.op_opaques, frame.payloads, strict=True)
        return [
            Request(
                *common, opaque, Opcode.PUSH, frame.client, byte, None, frame.namespace, frame.queue, payload,
                tags=frame.tags,
            )
            for opaque, byte, payload in columns
        ]  # fmt: skip
    if isinstance(frame, Requests):
        return _requests_apart(frame)
    if isinstance(frame, Responses):
        opaques = zip(frame.opaques, frame.op_opaques, strict=True)
        return [replace(frame.first, opaque=opaque, op_opaque=byte) for opaque, byte in opaques]
    if isinstance(frame, Pushed):
        outcome = Opcode.PUSH, Status.SUCCESS, Reason.OK
        return [
            Response(frame.message_type, opaque, *outcome, byte, Metadata(uuid=uuid))
            for opaque, byte, uuid in zip(frame.opaques, frame.op_opaques, frame.uuids, strict=True)
        ]
    if isinstance(frame, Deliveries):
        kind = frame.opcode, Status.SUCCESS, Reason.OK
        rows = zip(frame.opaques, frame.op_opaques, frame.metadata, frame.payloads, strict=True)
        return [
            Response(frame.message_type, opaque, *kind, byte, metadata, frame.namespace, frame.queue, payload)
            for opaque, byte, metadata, payload in rows
        ]
    return (frame,)


def _requests_apart(frame: Requests) -> list[Request]:
    columns = zip(frame.opaques, frame.op_opaques, strict=True)
    requests = [replace(frame.first, opaque=opaque, op_opaque=byte) for opaque, byte in columns]
    if not frame.uuids:
        return requests
    assert frame.first.metadata is not None
    named = [replace(frame.first.metadata, uuid=uuid) for uuid in frame.uuids]
    return [replace(request, metadata=metadata) for request, metadata in zip(requests, named, strict=True)]
