"""Reading a journal from another process, while a broker writes it, compacts it, stops and starts again.

The reader takes no lock and writes nothing. The ``tail`` file has the committed position and the beginning of the
history, and the reader never reads outside of these. ``span_reader`` does the rest.
"""

from __future__ import annotations

import os
from collections import OrderedDict

from typing_extensions import override

from penstock.journal.contract import Checkpoint, Span, Tail
from penstock.journal.errors import JournalDamaged, JournalRefused
from penstock.journal.files.checkpoints import CheckpointReader
from penstock.journal.files.disk import File, RealDisk, SharedDisk
from penstock.journal.files.mapped_segment import MappedSegment, Verified, read_ends
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.files.tail import TailReader
from penstock.journal.format.block import BlockError
from penstock.journal.format.segment import BRIDGE, Footer, SegmentHeader, is_segment
from penstock.journal.span_reader import SpanReader

#: How many segments are kept mapped: each takes a file descriptor.
KEPT = 64


class JournalReader(SpanReader):
    """A view of the journal in a folder. Threads may share one."""

    def __init__(self, folder: SharedDisk | str | os.PathLike[str], *, identity: int | None = None) -> None:
        """Raises JournalRefused if there is no journal, Replaced if it is not the one with this identity."""
        if isinstance(folder, str | os.PathLike):
            folder = RealDisk(folder, read_only=True)
        super().__init__(folder.where)
        self._disk: SharedDisk = folder
        self._segments: OrderedDict[tuple[str, int], MappedSegment] = OrderedDict()
        self._ends: dict[tuple[str, int], tuple[SegmentHeader, Footer | None]] = {}
        self._verified: dict[tuple[str, int], Verified] = {}
        self._open_tail()
        self.identity = self._tail.read().identity if identity is None else identity
        self.tail()

    @override
    def _look(self) -> Tail:
        """Takes a few microseconds."""
        if self._inode() != self._tail_inode:
            self._open_tail()
        return self._tail.read()

    @override
    def checkpoint(self, stop: int) -> Checkpoint | None:
        return CheckpointReader(self._disk, self.identity).newest_before(stop)

    @override
    def close(self) -> None:
        """Close the files. Blocks that were read stay valid."""
        self._segments.clear()
        self._tail.close()

    @override
    def _file(self, name: str) -> File:
        return self._disk.open(name)

    @override
    def _spans(self, committed: int) -> list[Span]:
        """Skips a segment that begins at ``committed``, since it may not have a header yet."""
        keys = sorted(key for key in self._disk.numbered() if is_segment(key[0]))
        keys = [key for key in keys if int(key[0][:16], 16) < committed]
        with self._lock:
            found = {key: self._ends.get(key) or self._look_at(key) for key in keys}
            self._ends = {key: ends for key, ends in found.items() if ends is not None and ends[1] is not None}
            self._verified = {key: verified for key, verified in self._verified.items() if key in found}
        spans: list[Span] = []
        after = committed
        for key, ends in reversed(found.items()):
            if ends is None:
                break  # it was trimmed just now, like those before it
            header, footer = ends
            end = min(after if footer is None else footer.end, committed)
            end = max(end, header.first)
            bridged = footer is not None and bool(footer.flags & BRIDGE)
            finished = footer is not None
            spans.append(Span(key, header.first, end, header.after, header.created, finished, bridged))
            after = header.after
        return spans[::-1]

    def _look_at(self, key: tuple[str, int]) -> tuple[SegmentHeader, Footer | None] | None:
        """The header and footer of a segment; None if it is gone. The caller caches those of finished segments."""
        try:
            file = self._disk.descriptor(key[0])
        except FileNotFoundError:
            return None
        try:
            return read_ends(file)
        except BlockError as error:
            first = int(key[0][:16], 16)
            raise JournalDamaged(self.where, key[0], 0, (first, first + 1), error.reason) from None
        finally:
            os.close(file)

    @override
    def _segment(self, span: Span) -> MappedSegment:
        with self._lock:
            segment = self._segments.get(span.key)
            if segment is None or (segment.footer is None and span.finished):
                verified = self._verified.setdefault(span.key, Verified())
                name = span.key[0]
                segment = self._segments[span.key] = MappedSegment(self._disk.descriptor(name), name, verified)
                if len(self._segments) > KEPT:
                    self._segments.popitem(last=False)
            self._segments.move_to_end(span.key)
            return segment

    @override
    def _path(self, segment: MappedSegment) -> str:
        return self._disk.path(segment.name)

    def _open_tail(self) -> None:
        try:
            self._tail_inode = self._inode()  # first: if the file is replaced after this, the next look notices
            self._tail = TailReader(self._disk)
        except (FileNotFoundError, NotADirectoryError):
            raise JournalRefused(f"{self.where} is not the data folder of a broker: it has no {TAIL} file") from None
        except ValueError:
            raise JournalRefused(
                f"{self.where} is being created, or its {TAIL} was cut: start a broker on it"
            ) from None

    def _inode(self) -> int:
        return self._disk.number(TAIL)
