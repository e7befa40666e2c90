"""Bridges over lost events, which keep the chain of a repaired journal intact.

Blocks and segments are chained by checksums, so that nothing can be missing unnoticed. Where events are lost, a repair
inserts a *bridge*: a segment that begins at the last lost position, with a ``CATALOGUE`` row that lists the queues, as
in every segment, and the lost positions (``"lost": [first, end]``). Its footer has the flag ``BRIDGE``, for readers.

The bridge is chained to what precedes it. Valid segments after it stay unchanged: they contain the checksum of the
block that preceded them, and the bridge's footer has the same (``RECHAINED``). Blocks that move into the bridge's
segment get a new chain, and the footer of that segment keeps the old checksum of the last one.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from penstock.journal.format.catalogue import SegmentCatalogue
from penstock.journal.format.encoding import Encoded, encode
from penstock.schema import Kind


class CatalogueRow(NamedTuple):
    """A batch of one row, which lists all queues."""

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
    """A block of one row at the last lost position.

    ``seen`` is the end of the lost events: numbering may resume higher.
    """
    detail = catalogue.encode(lost, seen)
    row = CatalogueRow(lost[1] - 1, array("q", [at]), {"detail": [detail]})
    return encode(row, epoch, previous, synced=True)
