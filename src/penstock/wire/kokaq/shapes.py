"""Runs of messages of one shape: each is compared as a whole, and read with one unpacking.

A server delivers consecutive messages with the same metadata fields in the same sizes. The tags and sizes of those
fields (the *shape*) make everything up to the payload a record of fixed length::

    type … opaque  opcode, outcome  opaque  tag, component, count  (tag, size  value)…  component  size  names
    ------------------------------------------------------------------------------------------------------
    same    own    same             own     same                   same        own      same       own   same

A record whose *same* bytes equal those of a delivery that was read field by field is valid as well, since its fields
then have the same places and kinds. The exact code reads everything that does not fit the shape, and finds all errors.

Requests that take or settle messages differ only in their opaques and the UUID.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from penstock.wire.kokaq.fields import KNOWN, MAX_FIELDS, TAGS
from penstock.wire.kokaq.frames import RUN_OPCODES


class Shape(NamedTuple):
    """How to compare and how to unpack such a record."""

    #: The record as a number, with this mask, is the same in a run.
    mask: int
    #: Unpacks a delivery to opaque, opaque byte, metadata from its field count on, payload size.
    record: Struct


def shape_at(data: bytes, pos: int) -> Shape | None:
    """The shape of the sound delivery at ``pos``, if its metadata comes first, as we send it."""
    count = int.from_bytes(data[pos + 16 : pos + 20], "big")
    if count > MAX_FIELDS:
        return None
    heads = []
    pos += 20
    for _ in range(count):
        heads.append(data[pos : pos + 2])
        pos += 2 + data[pos + 1]
    return _shape_of(b"".join(heads), data[pos + 4] + data[pos + 5])


@lru_cache(maxsize=256)
def _shape_of(tags_and_sizes: bytes, names: int) -> Shape | None:
    """The shape of deliveries with these fields, which must be sound, and names of together ``names`` bytes.

    None if one of the fields is an integer that could hold too large a value.
    """
    fields = b""
    for tag, size in zip(tags_and_sizes[::2], tags_and_sizes[1::2], strict=True):
        known = KNOWN.get(tag)
        if known is not None and known.width and size > known.width:
            return None
        # Text is the same in a run, which spares looking whether it is UTF-8.
        own = b"\xff" if known is not None and known.text else b"\x00"
        fields += b"\xff\xff" + own * size
    start = bytes.fromhex("ffffffff 00000000 ffff00ff ffffffff ffffffff")
    mask = start + fields + bytes.fromhex("ffffffffffff 0000") + b"\xff" * names
    record = Struct(f">4x4s2xB5x{4 + len(fields)}s6xH{names}x")
    return Shape(int.from_bytes(mask, "big"), record)


def place_of_uuid(request: bytes, *, named: bool) -> int | None:
    """Where the UUID is in a sound request of a run, which is ``named`` by one or not: see ``RUN_OPCODES``.

    The end of the request for one that has no UUID and needs none; None for one that is not of those, or whose metadata
    does not come first.
    """
    if named is not RUN_OPCODES[request[8]]:
        return None
    if not named:
        return len(request)
    if request[16:18] != b"\0\0":
        return None
    at = 20
    while request[at] != TAGS["uuid"]:
        at += 2 + request[at + 1]
    return at + 2
