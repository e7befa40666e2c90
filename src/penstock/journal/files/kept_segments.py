"""Segments that were trimmed but for the damaged messages in them: ``NAME.seg.kept``.

They are no part of the log: nothing is read from them but single messages. Once such a file is put right, its messages
can be read again, are carried forward, and the file goes; see ``server.upkeep``.
"""

from __future__ import annotations

from penstock.journal.files.disk import Disk
from penstock.journal.files.segment_reader import read_footer
from penstock.journal.format.segment import HEADER_SIZE, KEPT, Segment, SegmentHeader, is_kept


def load_kept(disk: Disk, identity: int) -> list[Segment]:
    """Those in a folder, oldest first. One whose ends can't be read is left alone, as a file of somebody else's is."""
    segments: list[Segment] = []
    for name in sorted(filter(is_kept, disk.names())):
        file = disk.open(name)
        try:
            header = SegmentHeader.decode(file.read(HEADER_SIZE, 0))
            footer = read_footer(file, int(name[:16], 16))
        finally:
            file.close()
        if header is None or footer is None or header.identity != identity:
            continue
        segment = Segment(header)
        segment.finish(footer)
        segment.name += KEPT
        segments.append(segment)
    return segments
