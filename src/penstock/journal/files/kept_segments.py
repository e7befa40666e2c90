"""Trimmed segments that are kept for damaged live messages: ``NAME.seg.kept``.

They are not part of the log: only single messages are read from them. After such a file was repaired or put back, its
messages are readable again, compaction copies them forward, and the file is removed; see ``server.maintenance``.
"""

from __future__ import annotations

from contextlib import closing

from penstock.journal.files.disk import Disk
from penstock.journal.files.segment_reader import read_footer
from penstock.journal.format.segment import HEADER_SIZE, KEPT, Segment, SegmentHeader, is_kept


def load_kept(disk: Disk, identity: int) -> list[Segment]:
    """The kept segments of a folder, oldest first. Unreadable and foreign files are ignored."""
    segments: list[Segment] = []
    for name in sorted(filter(is_kept, disk.names())):
        with closing(disk.open(name)) as file:
            header = SegmentHeader.decode(file.read(HEADER_SIZE, 0))
            footer = read_footer(file, int(name[:16], 16))
        if header is None or footer is None or header.identity != identity:
            continue
        segment = Segment(header)
        segment.finish(footer)
        segment.name += KEPT
        segments.append(segment)
    return segments
