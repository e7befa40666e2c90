"""PHPMQ: text with fixed-width numbers. The full specification is docs/protocols/phpmq.md.

* ``frames`` has the vocabulary: numbers, limits, styles, and the frames themselves.
* ``decode`` turns bytes into frames and learns how the peer writes, ``encode`` turns frames into bytes.
* ``forms`` has what both need to know of a width and a line end.
"""

from penstock.wire.phpmq.decode import ClientDecoder, ServerDecoder
from penstock.wire.phpmq.encode import encode
from penstock.wire.phpmq.frames import (
    DEFAULT_MAX_PAYLOAD,
    ID_SIZE,
    MAX_DIGITS,
    MAX_ID,
    MAX_NAME,
    MAX_TTL,
    Acknowledge,
    Consume,
    Dialect,
    Dispatch,
    MessageType,
    Packet,
    PhpmqFrame,
    Publish,
    Reject,
    Requeue,
    Style,
    singles,
)

__all__ = [
    "DEFAULT_MAX_PAYLOAD",
    "ID_SIZE",
    "MAX_DIGITS",
    "MAX_ID",
    "MAX_NAME",
    "MAX_TTL",
    "Acknowledge",
    "ClientDecoder",
    "Consume",
    "Dialect",
    "Dispatch",
    "MessageType",
    "Packet",
    "PhpmqFrame",
    "Publish",
    "Reject",
    "Requeue",
    "ServerDecoder",
    "Style",
    "encode",
    "singles",
]
