"""Bridges over lost events, which keep the chain of a repaired journal intact.

Blocks and segments are chained by checksums, so that nothing can be missing unnoticed. Where events are lost, a repair
inserts a *bridge*: a segment that begins at the last lost position, with a ``CATALOGUE`` row that lists the queues, as
in every segment, and the lost positions (``"lost": [first, end]``). Its footer has the flag ``BRIDGE``, for readers.

The bridge is chained to what precedes it. Valid segments after it stay unchanged: they contain the checksum of the
block that preceded them, and the bridge's footer has the same (``RECHAINED``). Blocks that move into the bridge's
segment get a new chain, and the footer of that segment keeps the old checksum of the last one.
"""

from __future__ import annotations

from penstock.journal.format.block import OneEvent
from penstock.journal.format.catalogue import SegmentCatalogue
from penstock.journal.format.encoding import Encoded, encode
from penstock.schema import Kind


def bridge_block(
    catalogue: SegmentCatalogue, lost: tuple[int, int], at: int, epoch: int, previous: int, *, seen: int
) -> Encoded:
    """A block of one row at the last lost position.

    ``seen`` is the end of the lost events: numbering may resume higher.
    """
    event = OneEvent.make(lost[1] - 1, Kind.CATALOGUE, at, catalogue.encode(lost, seen))
    return encode(event, epoch, previous, synced=True)
