"""The newest messages, kept in memory so that delivering them does not read the disk.

Large batches are kept as they were staged, so neither keeping nor evicting one costs anything per message; small ones
are merged (:mod:`penstock.server.engine.kept_batches`). A batch is evicted as soon as each of its messages was looked
up, since most are delivered once.

Behind a backlog the newest messages are the last to be delivered, so keeping them gains nothing. The cache stays small
until a message is requested that a full cache would still hold; then it grows to its limit. If batches are evicted
without ever having been requested, it shrinks again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

from penstock.core.events import EventBatch
from penstock.journal.format.rows import MessageRow
from penstock.server.engine.kept_batches import (
    FEW,
    FEW_BYTES,
    MOST_GATHERED,
    GatheredBatches,
    PlainMessage,
    WholeBatch,
)

T = TypeVar("T")

#: Default limit of bytes, including the cost of the rows.
DEFAULT_BYTES: Final = 64 * 2**20
#: Bytes that are kept even if none are requested.
LEAST_BYTES: Final = 4 * 2**20
#: Evicted batches are noted in stretches of this many bytes.
MISSED_BYTES: Final = 2**20

KeptMessages = WholeBatch | GatheredBatches


class RecentMessages:
    """Batches, newest last, up to a number of bytes."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        #: How many are kept now: see the module's description.
        self._wanted = self._least = min(LEAST_BYTES, max_bytes)
        #: None: each of its messages was looked up.
        self._batches: list[KeptMessages | None] = []
        self._firsts: list[int] = []
        #: The last of them, if it takes more small batches.
        self._gathering: GatheredBatches | None = None
        #: The one that a single message was looked up in last: the next one is mostly there, too.
        self._asked: KeptMessages | None = None
        self.bytes = 0
        #: Batches of which every message was looked up: they go with the next one that comes, as more than its payload
        #: may be asked of a message.
        self._delivered: list[KeptMessages] = []
        #: Stretches of batches that would be here if all were kept: where each begins, and its bytes.
        self._missed: deque[tuple[int, int]] = deque()
        self._missed_bytes = 0

    def add(self, batch: EventBatch) -> None:
        """Keep a batch that was just staged for the log, and evict the oldest ones beyond the limit."""
        self._forget_delivered()
        if not batch.messages:
            return
        self._keep(batch)
        self._forget_oldest(len(self._batches) - 1)

    def committed(self, position: int) -> None:
        """Messages below this position can be read from the log: evict what is beyond the limit."""
        if self.bytes > self._wanted:
            count = bisect_left(self._firsts, position)
            last = self._batches[count - 1] if count else None
            self._forget_oldest(count if last is None or last.end <= position else count - 1)

    def _forget_oldest(self, most: int) -> None:
        """Evict batches beyond the limit, ``most`` at most."""
        drop = 0
        while drop < most and (self._batches[drop] is None or self.bytes > self._wanted):
            self._drop(self._batches[drop])
            drop += 1
        del self._batches[:drop], self._firsts[:drop]
        while self._missed and self.bytes + self._missed_bytes > self._max_bytes:
            self._missed_bytes -= self._missed.popleft()[1]

    def _keep(self, batch: EventBatch) -> None:
        if batch.messages > FEW or batch.size > FEW_BYTES:
            self._gathering = None
            self._append(WholeBatch(batch))
            return
        if self._gathering is None or self._gathering.messages > MOST_GATHERED - FEW:
            self._gathering = GatheredBatches(batch.first)
            self._append(self._gathering)
        self._gathering.add(batch)
        self.bytes += batch.size

    def _append(self, kept: KeptMessages) -> None:
        self._batches.append(kept)
        self._firsts.append(kept.first)
        self.bytes += kept.size

    def _drop(self, recent: KeptMessages | None) -> None:
        """Evict the oldest batch. If none of it was ever requested, keep less from now on."""
        if recent is None:
            return
        self.bytes -= recent.size
        self._unlink(recent)
        if not recent.lookups:
            self._wanted = max(self._least, self._wanted // 2)
        self._missed_bytes += recent.size
        if self._missed and self._missed[-1][1] < MISSED_BYTES:
            first, before = self._missed.pop()
            self._missed.append((first, before + recent.size))
        else:
            self._missed.append((recent.first, recent.size))

    def _forget_delivered(self) -> None:
        for recent in self._delivered:
            at = self._holding(recent.first)
            if at is not None and self._batches[at] is recent:
                self.bytes -= recent.size
                self._batches[at] = None
            self._unlink(recent)
        self._delivered.clear()

    def _unlink(self, recent: KeptMessages) -> None:
        if recent is self._gathering:
            self._gathering = None
        if recent is self._asked:
            self._asked = None

    def payloads(self, positions: Sequence[int]) -> list[bytes | None]:
        """The payloads of messages, None for those that are not here."""
        if len(positions) == 1:
            return [self._payload(positions[0])]
        return self._by_batch(positions, _payloads, self._looked_up)

    def _payload(self, position: int) -> bytes | None:
        recent = self._asked
        if recent is None or not recent.first <= position < recent.end:
            at = self._holding(position)
            if at is None:
                return None
            recent = self._asked = cast(KeptMessages, self._batches[at])
        self._looked_up(recent, 1)
        return recent.payload(position)

    def numbers(self, name: str, positions: Sequence[int]) -> list[int | None]:
        """A fixed-width column of messages, None for those that are not here."""
        return self._by_batch(positions, lambda recent, here: recent.numbers(name, here))

    def _by_batch(
        self,
        positions: Sequence[int],
        take: Callable[[KeptMessages, Sequence[int]], Sequence[T | None]],
        note: Callable[[KeptMessages, int], None] | None = None,
    ) -> list[T | None]:
        found: list[T | None] = []
        start = 0
        ascending = sorted(positions) == positions  # usually: then a batch's positions are not checked singly
        while start < len(positions):
            at = self._holding(positions[start])
            stop = start + 1
            if at is None:
                found.append(None)
            else:
                recent = cast(KeptMessages, self._batches[at])
                first, end = recent.first, recent.end
                if ascending:
                    stop = bisect_left(positions, end, stop)
                else:
                    while stop < len(positions) and first <= positions[stop] < end:
                        stop += 1
                found += take(recent, positions[start:stop])
                if note is not None:
                    note(recent, stop - start)
            start = stop
        return found

    def _looked_up(self, recent: KeptMessages, count: int) -> None:
        before = recent.lookups
        recent.lookups += count
        if before < recent.messages <= recent.lookups:
            self._delivered.append(recent)

    def span(self, position: int) -> tuple[int, int] | None:
        """The positions, end excluded, of the batch that has a message; None if it is not here."""
        at = self._holding(position)
        if at is None:
            return None
        kept = cast(KeptMessages, self._batches[at])
        return kept.first, kept.end

    def plain(self, positions: Sequence[int]) -> list[PlainMessage | None]:
        """Messages without any of ``SPECIAL``; None for those that are not here, or have some."""
        return self._by_batch(positions, self._plain)

    def _plain(self, recent: KeptMessages, positions: Sequence[int]) -> Sequence[PlainMessage | None]:
        found = recent.plain(positions)
        if not found:
            return [None] * len(positions)
        self._looked_up(recent, len(positions))
        return found

    def message(self, position: int) -> MessageRow | None:
        """A message with all that was published with it, if it is here."""
        at = self._holding(position)
        if at is None:
            return None
        recent = cast(KeptMessages, self._batches[at])
        self._looked_up(recent, 1)
        return recent.message(position)

    def _holding(self, position: int) -> int | None:
        """The index of the batch with this position. If a full cache would hold it, let the cache grow."""
        at = bisect_right(self._firsts, position) - 1
        if at < 0:
            if self._missed and position >= self._missed[0][0]:
                self._wanted = self._max_bytes
            return None
        recent = self._batches[at]
        return at if recent is not None and position < recent.end else None


def _payloads(kept: KeptMessages, positions: Sequence[int]) -> list[bytes]:
    return kept.payloads(positions)
