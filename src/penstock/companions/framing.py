"""Messages on the private Unix socket, on which companion processes send requests to the broker.

Both directions have the same layout, and there is one answer for each request, in order:

    ┌───────────────┬─────────────────────────┐
    │ length  u32le │ MessagePack, that long  │
    └───────────────┴─────────────────────────┘

The answer is a value of the type that the request's docstring names, or a ``Refusal``. Arrays of numbers are
little-endian bytes, so that numpy reads them in place.
"""

from __future__ import annotations

from struct import Struct
from typing import Literal, TypeVar

import msgspec

#: Longest frame: the payloads of the largest write over Flight, and its other fields.
FRAME_BYTES = 80 * 2**20

LENGTH = Struct("<I")
T = TypeVar("T")

RefusalCode = Literal[
    "away",
    "bad-request",
    "conflict",
    "denied",
    "differs",
    "internal",
    "no-queue",
    "not-found",
    "refused",
    "stale",
    "standby",
    "taken-over",
]
#: The beginning of an encoded refusal, after the number of its fields.
_REFUSED = b"\xa4type\xa7refusal"


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="refusal"):
    """The request was not carried out. ``field`` is the input at fault, such as "path.queue"."""

    code: RefusalCode
    text: str
    field: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all requests. It may be sent again if the connection breaks before the answer."""


class Change(Request, frozen=True, kw_only=True):
    """Base of requests that must not be sent twice. ``by`` names the user in the journal."""

    by: str = ""


class BrokerRefused(Exception):
    """The broker answered with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def framed(message: object) -> list[bytes]:
    """The parts of a frame."""
    data = msgspec.msgpack.encode(message)
    return [LENGTH.pack(len(data)), data]


def size_of_frame(head: bytes | bytearray) -> int:
    """The size of the message after this head. Raises ConnectionError for one that is too long."""
    size: int = LENGTH.unpack(head)[0]
    if size > FRAME_BYTES:
        raise ConnectionError(f"a frame has at most {FRAME_BYTES} bytes, not {size}")
    return size


def decode_answer(data: bytes | bytearray, kind: type[T]) -> T:
    """Decode an answer as ``kind``. Raises BrokerRefused if it is a refusal."""
    if data[1 : 1 + len(_REFUSED)] == _REFUSED:
        raise BrokerRefused(msgspec.msgpack.decode(data, type=Refusal))
    return msgspec.msgpack.decode(data, type=kind)
