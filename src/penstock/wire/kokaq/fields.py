"""The metadata of a Kokaq message: its fields, their valid values, and their bytes. See docs/protocols/kokaq.md.

A metadata component's body is a sequence of fields, each a tag, a size, and a value of that size::

     0      1      2                      2 + size
    +------+------+---- - - - ----+------+------+---- - -
    | tag  | size | value         | tag  | size | value
    +------+------+---- - - - ----+------+------+---- - -

The component's header has their number. The end of a field is known even if its value is invalid, so an invalid value
spoils its message but not the stream: it is a *problem*, not a :class:`~penstock.wire.stream.WireError`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from msgspec import Struct as Frame
from msgspec.structs import astuple

#: Most fields of one component. The protocol and our additions define 16, so this leaves plenty for third-party
#: additions, while the four-byte count of the wire could announce billions.
MAX_FIELDS = 64
#: Most bytes of one component's fields. All 16 known fields at their longest are about 4 KiB; the rest is room for
#: unknown ones. 64 fields of the largest size would be 16 KiB.
MAX_METADATA = 8 * 1024


class Field(Frame, frozen=True, gc=False):
    """A field with an unknown tag, kept unchanged."""

    tag: int
    value: bytes


class Metadata(Frame, frozen=True, gc=False):
    """The fields of one metadata component; None stands for a missing field.

    Times are Unix time: ``created_at`` and ``expires_at`` in seconds, ``modified_at`` in nanoseconds. Durations:
    ``time_to_live`` in seconds, ``handling_time`` in microseconds, ``lock_duration`` and ``delay`` in milliseconds.
    """

    time_to_live: int | None = None
    version: int | None = None
    created_at: int | None = None
    expires_at: int | None = None
    uuid: bytes | None = None
    source: str | None = None
    modified_at: int | None = None
    request_id: bytes | None = None
    correlation_id: bytes | None = None
    handling_time: int | None = None
    priority: int | None = None
    lock_duration: int | None = None
    depth: int | None = None
    dead_reason: str | None = None
    max_deliveries: int | None = None
    delay: int | None = None
    others: tuple[Field, ...] = ()


class Known(NamedTuple):
    """A known field. ``read`` and ``write`` raise ValueError with a text that continues after the field's name."""

    name: str
    #: The bytes of an integer as we send it; a received value must fit into as many. 0 for other types.
    width: int
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    text: bool = False


def _integer(name: str, width: int) -> Known:
    most = 256**width - 1
    pack = Struct(">I" if width == 4 else ">Q").pack

    def read(value: bytes) -> int:
        if not 1 <= len(value) <= 8:
            raise ValueError(f"has {len(value)} bytes, an integer has 1 to 8")
        number = int.from_bytes(value, "big")
        if number > most:
            raise ValueError(f"is {number}, above {most}")
        return number

    def write(number: int) -> bytes:
        if not 0 <= number <= most:
            raise ValueError(f"is {number}, outside of 0 to {most}")
        return pack(number)

    return Known(name, width, read, write)


def _identifier(name: str) -> Known:
    def check(value: bytes) -> bytes:
        if len(value) != 16:
            raise ValueError(f"has {len(value)} bytes, not 16")
        return value

    return Known(name, 0, check, check)


def _short(value: bytes) -> bytes:
    if len(value) > 255:
        raise ValueError(f"has {len(value)} bytes, the most is 255")
    return value


def _text(name: str) -> Known:
    def read(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError("is not UTF-8") from None

    return Known(name, 0, read, lambda text: _short(text.encode()), text=True)


#: The fields by their tag, in the order of Metadata's attributes, which is also the order in which they are sent.
KNOWN = {
    0x01: _integer("time_to_live", 4),
    0x02: _integer("version", 4),
    0x03: _integer("created_at", 4),
    0x04: _integer("expires_at", 4),
    0x05: _identifier("uuid"),
    0x06: _text("source"),
    0x07: _integer("modified_at", 8),
    0x08: _identifier("request_id"),
    0x09: Known("correlation_id", 0, _short, _short),
    0x0A: _integer("handling_time", 4),
    # Our additions, from 0x40 up so that they never collide with the protocol's own.
    0x40: _integer("priority", 8),
    0x41: _integer("lock_duration", 4),
    0x42: _integer("depth", 8),
    0x43: _text("dead_reason"),
    0x44: _integer("max_deliveries", 4),
    0x45: _integer("delay", 4),
}
assert tuple(known.name for known in KNOWN.values()) == Metadata.__struct_fields__[:-1]
#: The tags by the name of their field.
TAGS = {known.name: tag for tag, known in KNOWN.items()}
#: A component's header between its tag and its sizes: the magic, and an opaque byte of 0.
COMPONENT_START = b"\x04\x20\x00"
_WRITERS = tuple((tag, known.write) for tag, known in KNOWN.items())


def parse_fields(raw: bytes) -> tuple[Metadata, str | None]:
    """Read a component's fields, whose sizes must add up to ``raw``.

    The second value is the problem with the first invalid field, if there is one. Invalid fields are left out.
    """
    found: dict[str, Any] = {}
    others: list[Field] = []
    seen: set[int] = set()
    problem: str | None = None
    pos = 0
    while pos < len(raw):
        tag = raw[pos]
        start = pos + 2
        pos = start + raw[pos + 1]
        try:
            if tag in seen:
                raise ValueError("occurs twice")
            seen.add(tag)
            if (known := KNOWN.get(tag)) is None:
                others.append(Field(tag, raw[start:pos]))
            else:
                found[known.name] = known.read(raw[start:pos])
        except ValueError as error:
            problem = problem or f"field {_title(tag)} {error}"
    return Metadata(**found, others=tuple(others)), problem


def write_fields(metadata: Metadata) -> bytes:
    """A metadata component from its field count on: known fields in the order of their tags, then unknown ones.

    Raises ``ValueError`` for a value that its field cannot hold, and above the limits of this module.
    """
    fields = []
    # The last attribute, others, has no writer, so zip stops before it.
    for (tag, write), value in zip(_WRITERS, astuple(metadata), strict=False):
        if value is not None:
            try:
                written = write(value)
            except ValueError as error:
                raise ValueError(f"field {_title(tag)} {error}") from None
            fields.append(bytes((tag, len(written))) + written)
    others = metadata.others
    if others:
        _check_others(others)
        fields += [bytes((field.tag, len(field.value))) + field.value for field in others]
        if len(fields) > MAX_FIELDS:
            raise ValueError(f"{len(fields)} metadata fields are over the limit of {MAX_FIELDS}")
        if (size := sum(map(len, fields))) > MAX_METADATA:
            raise ValueError(f"metadata of {size} bytes is over the limit of {MAX_METADATA}")
    return b"".join([len(fields).to_bytes(4, "big"), *fields])


def _check_others(others: tuple[Field, ...]) -> None:
    tags = [field.tag for field in others]
    if len(set(tags)) < len(tags):
        raise ValueError("a metadata field occurs twice")
    for field in others:
        if field.tag in KNOWN:
            raise ValueError(f"field {_title(field.tag)} is known and has an attribute of its own")
        if not 0 <= field.tag <= 255:
            raise ValueError(f"a field tag is a byte, 0 to 255, not {field.tag}")
        if len(field.value) > 255:
            raise ValueError(f"field {_title(field.tag)} has {len(field.value)} bytes, the most is 255")


def _title(tag: int) -> str:
    known = KNOWN.get(tag)
    return f"0x{tag:02x} ({known.name})" if known else f"0x{tag:02x}"
