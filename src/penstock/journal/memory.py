"""The log in memory: for tests, and for brokers that are told to keep nothing (``--ephemeral``)."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from penstock.journal.errors import Fenced, Gone, LogClosed
from penstock.journal.format.block import Batch, Block, encode
from penstock.journal.format.rows import Message, gather, gather_numbers
from penstock.journal.log import FIRST_POSITION


class MemoryLog:
    """Keeps encoded blocks, so that it gives back just what the file log would. See ``log.Log`` for the contract."""

    def __init__(self, *, most_bytes: int | None = None, identity: int | None = None) -> None:
        """``most_bytes`` bounds what is kept: older blocks go, whether they are trimmed or not."""
        self._most_bytes = most_bytes
        self._identity = int.from_bytes(os.urandom(8), "little") if identity is None else identity
        self._blocks: list[Block] = []  # replaced when blocks go, so that a reader keeps what it iterates over
        self._bytes = 0
        self._chain = 0
        self._end = FIRST_POSITION
        self._epoch = 0
        self._floor = 0
        self._closed = False

    @property
    def identity(self) -> int:
        """See Log."""
        return self._identity

    @property
    def start(self) -> int:
        """See Log."""
        return self._blocks[0].first if self._blocks else self._end

    @property
    def end(self) -> int:
        """See Log."""
        return self._end

    @property
    def committed(self) -> int:
        """See Log. In memory everything is as durable as it gets."""
        return self._end

    @property
    def epoch(self) -> int:
        """See Log."""
        return self._epoch

    @property
    def wants_roll(self) -> bool:
        """See Log. The first block of all has the catalogue."""
        return self._end == FIRST_POSITION

    @property
    def bytes(self) -> int:
        """What is kept."""
        return self._bytes

    @property
    def floor(self) -> int:
        """See Log."""
        return max(self._floor, self.start)

    def set_floor(self, position: int) -> None:
        """See Log."""
        self._floor = position

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """See Log. There is nothing to roll."""
        self._check_usable()
        if epoch != self._epoch or not expected_position == batch.first == self._end:
            raise Fenced(
                f"the log is at position {self._end}, epoch {self._epoch}; this append was meant for"
                f" {expected_position}, epoch {epoch}, and starts at {batch.first}"
            )
        encoded = encode(batch, epoch, self._chain, synced=True)
        block = Block(encoded.header, memoryview(encoded.data), 0)
        self._chain = block.header.crc
        self._blocks.append(block)
        self._bytes += block.header.length
        self._end = block.end
        if self._most_bytes is not None and self._bytes > self._most_bytes:
            self._shrink(self._most_bytes)

    def sync(self) -> None:
        """See Log."""
        self._check_usable()

    def seal(self, epoch: int) -> None:
        """See Log."""
        self._check_usable()
        if epoch <= self._epoch:
            raise Fenced(f"the log is at epoch {self._epoch}; {epoch} is not a newer one")
        self._epoch = epoch

    def read(self, start: int) -> Iterator[Block]:
        """See Log."""
        blocks, limit = self._blocks, self._end
        at = bisect_right(blocks, start, key=attrgetter("end"))
        while at < len(blocks) and blocks[at].end <= limit:
            yield blocks[at]
            at += 1

    def locate(self, position: int) -> Block:
        """The block that has this position. Raises Gone."""
        blocks = self._blocks
        at = bisect_right(blocks, position, key=attrgetter("first")) - 1
        if at < 0 or position >= blocks[at].end:
            raise Gone(f"position {position} is not in the log, which goes from {self.start} to {self._end - 1}")
        return blocks[at]

    def message(self, position: int) -> Message:
        """The message at a position. Raises Gone."""
        return self.messages([position])[0]

    def messages(self, positions: Iterable[int]) -> list[Message]:
        """See Log."""
        return gather(positions, self.locate)

    def numbers(self, name: str, positions: Iterable[int]) -> list[int]:
        """See Log."""
        return gather_numbers(name, positions, self.locate)

    def trim(self, before: int) -> None:
        """See Log."""
        self._check_usable()
        self._drop(bisect_right(self._blocks, before, key=attrgetter("end")))

    def close(self) -> None:
        """See Log."""
        self._closed = True

    def _shrink(self, size: int) -> None:
        """Drop the oldest blocks, down to nine tenths: it copies the list, which must not happen on every append."""
        count, kept = 0, self._bytes
        while kept > size * 9 // 10 and count < len(self._blocks) - 1:
            kept -= self._blocks[count].header.length
            count += 1
        self._drop(count)

    def _drop(self, count: int) -> None:
        self._bytes -= sum(block.header.length for block in self._blocks[:count])
        self._blocks = self._blocks[count:]

    def _check_usable(self) -> None:
        if self._closed:
            raise LogClosed("the log was closed")
