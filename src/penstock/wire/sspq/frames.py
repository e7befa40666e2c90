"""SSPQ packages: types, limits, and frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum

from msgspec import Struct as Frame

MAGIC = 0x5599
#: The retry counter that never runs out.
FOREVER = 255
#: The largest payload that the size field can express.
WIRE_MAX_PAYLOAD = 2**32 - 1
#: The broker's default limit: large enough for documents, small enough to hold a few in memory.
DEFAULT_MAX_PAYLOAD = 16 * 2**20
#: The first four bytes of a SEND, with 0 in place of the retry counter.
SEND_HEAD = 0x55995E00


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
    """The client has processed the message that it received."""


class DeadReceive(Frame, frozen=True, gc=False):
    """The client asks for one dead letter."""


class NoReceive(Frame, frozen=True, gc=False):
    """The server will not answer the request with a message."""


class Other(Frame, frozen=True, gc=False):
    """A package of a type that SSPQ does not know. Its payload was skipped."""

    kind: int


SspqFrame = Send | Receive | Confirm | DeadReceive | NoReceive | Other

EMPTY_FRAMES: dict[int, SspqFrame] = {
    PackageType.RECEIVE: Receive(),
    PackageType.CONFIRM: Confirm(),
    PackageType.DEAD_RECEIVE: DeadReceive(),
    PackageType.NO_RECEIVE: NoReceive(),
}


def singles(frames: Iterable[SspqFrame]) -> Iterator[SspqFrame]:
    """The same frames, with every run split into single messages."""
    for frame in frames:
        if isinstance(frame, Send):
            for payload in frame.payloads:
                yield Send(frame.retries, (payload,))
        else:
            yield frame
