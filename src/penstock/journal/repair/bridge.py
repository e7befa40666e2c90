"""Bridges over lost events: how a repaired journal still hangs together.

Blocks and segments are chained by checksums, so that nothing is missing unnoticed. Where a repair has to go on after
something that is lost, it puts a *bridge* there: a segment that begins at the last lost position, with a ``CATALOGUE``
row that lists the queues, as in every segment, and names the lost positions (``"lost": [first, end]``). The flag
``BRIDGE`` in its footer tells readers.

The bridge is chained to what is before it. What is after it stays as it is: a sound segment names the checksum that it
was begun after, and the bridge's footer says so too (``RECHAINED``). Blocks that are moved behind a bridge are chained
anew, and the footer of their new segment keeps the checksum that the last of them had.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from penstock.journal.format.catalogue import SegmentCatalogue
from penstock.journal.format.encoding import Encoded, encode
from penstock.schema import Kind


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
    catalogue: SegmentCatalogue, lost: tuple[int, int], at: int, epoch: int, previous: int, *, seen: int
) -> Encoded:
    """The block of one row at the last lost position.

    ``seen`` is where the events end that were lost: numbering may go on higher.
    """
    detail = catalogue.encode(lost, seen)
    row = CatalogueRow(lost[1] - 1, array("q", [at]), {"detail": [detail]})
    return encode(row, epoch, previous, synced=True)
