"""SSPQ: the smallest of the three. The full specification is docs/protocols/sspq.md.

One package, in either direction, all numbers big-endian::

     0      1      2      3      4      5      6      7      8
    +------+------+------+------+------+------+------+------+---- - -
    | 0x55 | 0x99 | type |retry | payload size              | payload
    +------+------+------+------+------+------+------+------+---- - -

Both sides send the same packages, so one decoder and one encoder serve the server, the client and captures.

* ``frames`` has the vocabulary: package types, limits, and the frames themselves.
* ``decode`` turns bytes into frames, ``encode`` turns frames into bytes.
"""

from penstock.wire.sspq.decode import Decoder
from penstock.wire.sspq.encode import encode, send_package
from penstock.wire.sspq.frames import (
    DEFAULT_MAX_PAYLOAD,
    FOREVER,
    MAGIC,
    WIRE_MAX_PAYLOAD,
    Confirm,
    DeadReceive,
    NoReceive,
    Other,
    PackageType,
    Receive,
    Send,
    SspqFrame,
    singles,
)

__all__ = [
    "DEFAULT_MAX_PAYLOAD",
    "FOREVER",
    "MAGIC",
    "WIRE_MAX_PAYLOAD",
    "Confirm",
    "DeadReceive",
    "Decoder",
    "NoReceive",
    "Other",
    "PackageType",
    "Receive",
    "Send",
    "SspqFrame",
    "encode",
    "send_package",
    "singles",
]
