"""Bridges over lost events: how a repaired journal still hangs together.

Blocks and segments are chained by checksums, so that nothing is missing unnoticed. Where a repair has to go on after
something that is lost, it puts a *bridge* there: a segment that begins at the last lost position, with a ``CATALOGUE``
row that lists the queues, as in every segment, and names the lost positions (``"lost": [first, end]``). A flag in its
footer tells readers. The bridge is chained to what is before it; to what is after it, its checksum is made to fit: the
header of a block has four reserved bytes, and there is exactly one value of them for any checksum that is wished for.
So sound segments stay as they are, and no check has to look away.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from penstock.journal.format.block import HEADER_SIZE, encode
from penstock.journal.format.block import Header as BlockHeader
from penstock.journal.format.catalogue import Catalogue
from penstock.journal.format.checksum import crc32
from penstock.schema import Kind

_PREVIOUS = slice(68, 72)
_FREE = 72  # the reserved bytes in front of the header's checksum


class CatalogueRow(NamedTuple):
    """A batch of one row: all queues."""

    first: int
    at: array[int]
    columns: dict[str, array[int] | list[bytes]]
    kinds: bytearray = bytearray([Kind.CATALOGUE])
    queues: array[int] = array("I", [0])
    source: array[int] = array("H", [0])
    sources: list[bytes] = [b"penstock"]  # noqa: RUF012  # never changed


def bridge_block(
    catalogue: Catalogue, lost: tuple[int, int], at: int, epoch: int, previous: int, wanted: int | None, *, seen: int
) -> bytes:
    """The block of one row at the last lost position. ``wanted`` is the checksum that what follows expects, if any.

    ``seen`` is where the events end that were lost: numbering may go on higher.
    """
    detail = catalogue.encode(lost, seen)
    row = CatalogueRow(lost[1] - 1, array("q", [at]), {"detail": [detail]})
    raw = b"".join(encode(row, epoch, previous, synced=True))
    return raw if wanted is None else forge(raw[:HEADER_SIZE], previous, wanted) + raw[HEADER_SIZE:]


def forge(header: bytes, previous: int, wanted: int) -> bytes:
    """The block header chained to another block, with the checksum that is wished for."""
    raw = bytearray(header[: HEADER_SIZE - 4])
    raw[_PREVIOUS] = previous.to_bytes(4, "little")
    raw[_FREE:] = bytes(4)
    plain = crc32(raw)
    value, difference = 0, plain ^ wanted
    for bit, effect in _independent(raw, plain):
        if difference ^ effect < difference:
            difference ^= effect
            value ^= bit
    raw[_FREE:] = value.to_bytes(4, "little")
    assert crc32(raw) == wanted
    return bytes(raw) + wanted.to_bytes(4, "little")


def _independent(raw: bytearray, plain: int) -> Iterator[tuple[int, int]]:
    """Values of the free bytes and what each changes in the checksum: for each bit of it, one that is its highest.

    A checksum is linear: two changes together change what each of them changes.
    """
    basis: list[tuple[int, int]] = []
    for bit in range(32):
        raw[_FREE:] = (1 << bit).to_bytes(4, "little")
        value, effect = 1 << bit, crc32(raw) ^ plain
        for other, known in basis:
            if effect ^ known < effect:
                value, effect = value ^ other, effect ^ known
        basis.append((value, effect))
        basis.sort(key=lambda pair: pair[1], reverse=True)
    yield from basis


def forged_header(header: BlockHeader, raw: bytes, previous: int) -> bytes:
    """A block's header chained to another block, with the checksum that it had: what follows it stays as it is."""
    return raw[:HEADER_SIZE] if header.previous == previous else forge(raw[:HEADER_SIZE], previous, header.crc)
