"""The vocabulary of PHPMQ: its numbers and limits, styles, and the frames that decoders return and encoders take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum, StrEnum

from msgspec import Struct as Frame

#: The broker's default limit: large enough for documents, small enough to hold a few in memory.
DEFAULT_MAX_PAYLOAD = 16 * 2**20
#: Names are at most this long in all three protocols, so that every queue can be reached by each of them.
MAX_NAME = 255
#: A message ID has 32 characters. Other lengths decode too (no message has such an ID, so the server ignores them), but
#: there is no reason to hold more than for a name.
MAX_ID = 255
#: The length of the IDs that servers give.
ID_SIZE = 32
#: The most digits that a number in a content may have: as many as the longest number in a header.
MAX_DIGITS = 33
#: The largest time to live, in seconds: 136 years, and it fits Kokaq's field.
MAX_TTL = 2**32 - 1

#: The line ends there are, and what to call them.
LINE_ENDS = {b"": "nothing", b"\n": "LF", b"\r\n": "CRLF"}


class MessageType(IntEnum):
    """The message types."""

    PUBLISH = 1
    CONSUME = 2
    DISPATCH = 3
    ACKNOWLEDGE = 4
    REQUEUE = 5
    REJECT = 6


class Packet(IntEnum):
    """The packet types."""

    QUEUE = 1
    CONTENT = 2
    ID = 3
    COUNT = 4
    TTL = 5


class Dialect(StrEnum):
    """What a connection can be pinned to. The first two fix the width, and dispatches without a TTL."""

    WIDE = "36"
    NARROW = "32"
    TTL = "ttl"


class Style(Frame, frozen=True, gc=False):
    r"""How messages are written: the width of packet headers, the line end (``b""``, LF or CRLF), TTLs in dispatches.

    ``dispatch_ttl`` None leaves that to each dispatch.

    The defaults are those of the newest protocol document and of the public PHP library.
    """

    width: int = 32
    line_end: bytes = b""
    dispatch_ttl: bool | None = True

    def __post_init__(self) -> None:
        if self.width not in (32, 36):
            raise ValueError(f"packet headers are 32 or 36 wide, not {self.width}")
        if self.line_end not in LINE_ENDS:
            raise ValueError(f"a line end is b'', LF or CRLF, not {self.line_end!r}")


class Publish(Frame, frozen=True, gc=False):
    """A run of 001 for one queue with one time to live. ``ttl`` None is a 001 of two packets, 0 is never."""

    queue: str
    payloads: tuple[bytes, ...]
    ttl: int | None


class Consume(Frame, frozen=True, gc=False):
    """002: the client wants up to ``count`` unacknowledged messages of the queue at a time."""

    queue: str
    count: int


class Dispatch(Frame, frozen=True, gc=False):
    """A run of 003 from one queue. ``ttls`` None are dispatches of three packets."""

    queue: str
    ids: tuple[bytes, ...]
    payloads: tuple[bytes, ...]
    ttls: tuple[int, ...] | None


class Acknowledge(Frame, frozen=True, gc=False):
    """A run of 004 for one queue: the client has processed these messages."""

    queue: str
    ids: tuple[bytes, ...]


class Requeue(Frame, frozen=True, gc=False):
    """005: back to the end of the queue, with a new time to live."""

    queue: str
    id: bytes
    ttl: int


class Reject(Frame, frozen=True, gc=False):
    """A run of 006 for one queue: to the dead letters."""

    queue: str
    ids: tuple[bytes, ...]


PhpmqFrame = Publish | Consume | Dispatch | Acknowledge | Requeue | Reject


def singles(frames: Iterable[PhpmqFrame]) -> Iterator[PhpmqFrame]:
    """The same frames, with every run split into single messages."""
    for frame in frames:
        match frame:
            case Publish(queue, payloads, ttl):
                yield from (Publish(queue, (payload,), ttl) for payload in payloads)
            case Dispatch(queue, ids, payloads, None):
                yield from (Dispatch(queue, (i,), (p,), None) for i, p in zip(ids, payloads, strict=True))
            case Dispatch(queue, ids, payloads, ttls):
                every = zip(ids, payloads, ttls or (), strict=True)
                yield from (Dispatch(queue, (i,), (p,), (t,)) for i, p, t in every)
            case Acknowledge(queue, ids):
                yield from (Acknowledge(queue, (i,)) for i in ids)
            case Reject(queue, ids):
                yield from (Reject(queue, (i,)) for i in ids)
            case _:
                yield frame
