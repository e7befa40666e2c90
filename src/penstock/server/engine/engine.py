"""The core on a log: a broker that survives.

The engine is used from one thread, the one that gives the broker its commands. In a running broker the thread of
``commits`` writes the batches; ``write`` is for callers without one::

    broker command …                        stages events, leaves effects
    staged = engine.stage(now)              everything since the last time
    engine.write(staged)                    one block each, durable on return unless the log commits with `sync`
    engine.advance()                        moves `broker.committed`; effects that waited for it are released
    for effect in engine.released(): …      report to peers what is durable

Nothing is reported to a peer before it is durable: that is all a restart relies on.

Without a ``backlog`` messages that are not in memory are read from the log at once; with one, asking for them raises
NotInMemory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, takewhile
from typing import cast

import msgspec
import numpy as np

from penstock.core.broker import Broker
from penstock.core.recovery.meta import Meta
from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.core.state import DeliveryEffect, Effect
from penstock.journal.committer import Staged
from penstock.journal.contract import Checkpoint, Lease, Log
from penstock.journal.format.block import Block
from penstock.journal.format.rows import MessageRow
from penstock.server.engine.backlog import Backlog, Damage, look_at
from penstock.server.engine.cache import DEFAULT_BYTES, RecentMessages
from penstock.server.engine.kept_batches import SPECIAL, PlainMessage


class Engine:
    """A broker and its log."""

    def __init__(self, log: Log, table: Table, now: int, *, cache_bytes: int = DEFAULT_BYTES) -> None:
        """Continue at the end of the log. ``table`` is the state at that point."""
        self.log = log
        self.epoch = log.epoch + 1
        log.seal(self.epoch)
        self.broker: Broker = restore(table, log.end, now)
        #: The most of a commit: see ``Log.block_bytes``.
        self._block_bytes = log.block_bytes
        self.broker.log.bound(self._block_bytes)
        #: Where the payload of a message lies, if it was carried forward.
        self.moved: dict[int, int] = locations(table)
        self._moving: deque[tuple[int, dict[int, int]]] = deque()
        self.recent = RecentMessages(cache_bytes)
        #: Reads for an event loop, which does not read itself.
        self.backlog: Backlog | None = None
        self._waiting: list[tuple[int, int, Effect]] = []
        self._serial = count()
        self._released: list[Effect] = []
        #: Called when batches were staged.
        self.on_staged: Callable[[], None] = lambda: None
        self._roll_at = log.end
        #: Batches on their way to the log: where each ends, and its payload bytes.
        self._in_flight: deque[tuple[int, int]] = deque()
        self._in_flight_bytes = 0
        self.broker.catalogue(now)
        self.broker.start(now, {"epoch": self.epoch})
        self.broker.tick(now)

    def stage(self, now: int) -> list[Staged]:
        """Take everything that happened since the last time. The batches must be written in order, all of them.

        When the log asks for a new extent, the batch after these begins it, with a catalogue as its first row.
        """
        if self.broker.effects:
            self.collect()
        batches = self.broker.log.take()
        if self.log.block_bytes != self._block_bytes:  # now, as nothing is staged
            self._block_bytes = self.log.block_bytes
            self.broker.log.bound(self._block_bytes)
        for batch in batches:
            self.recent.add(batch)
            self._in_flight.append((batch.end, batch.size))
            self._in_flight_bytes += batch.size
        staged = [Staged(batch, batch.first == self._roll_at, batch.size) for batch in batches]
        if self._roll_at < self.broker.committed and self.log.wants_roll:
            self._roll_at = self.broker.log.next_position
            self.broker.catalogue(now)
        self.on_staged()
        return staged

    def write(self, staged: Iterable[Staged]) -> None:
        """Append staged batches in the calling thread. Raises LogError; then nothing may be confirmed any more."""
        for each in staged:
            self.log.append(each.batch, each.batch.first, self.epoch, roll=each.roll)

    def advance(self) -> None:
        """Release what waited for the log. Call it after ``write``, or ``log.sync`` where that commits."""
        committed = self.broker.committed = self.log.committed
        while self._in_flight and self._in_flight[0][0] <= committed:
            self._in_flight_bytes -= self._in_flight.popleft()[1]
        self.recent.committed(committed)
        while self._waiting and self._waiting[0][0] <= committed:
            self._released.append(heappop(self._waiting)[2])
        while self._moving and self._moving[0][0] <= committed:
            self.moved.update(self._moving.popleft()[1])

    def commit(self, now: int) -> None:
        """Stage, write and advance, for callers without a thread."""
        self.write(self.stage(now))
        self.advance()

    @property
    def awaited(self) -> bool:
        """Whether effects wait for a commit."""
        return bool(self._waiting)

    @property
    def writing(self) -> bool:
        """Whether a staged batch is not committed yet."""
        return bool(self._in_flight)

    @property
    def unwritten(self) -> int:
        """Payload bytes that were published and are not committed yet."""
        return self.broker.log.size + self._in_flight_bytes

    def move(self, places: dict[int, int]) -> None:
        """Messages were carried forward: read them at these places, once the copies are durable."""
        self._moving.append((max(places.values(), default=0) + 1, places))

    def forget_moves(self, live: dict[int, int], before: int) -> None:
        """Forget the places of messages carried forward before a position, except live ones."""
        self.moved = {position: place for position, place in self.moved.items() if place >= before or position in live}

    def released(self) -> list[Effect]:
        """The effects that may be reported now, in order."""
        if self.broker.effects:
            self.collect()
        released, self._released = self._released, []
        return released

    def payloads(self, positions: Sequence[int]) -> list[bytes]:
        """The payloads of live messages, from memory or from the log."""
        found = self.recent.payloads(positions)
        if all(payload is not None for payload in found):  # "in" would compare None with each of them
            return cast(list[bytes], found)
        missing = [position for position, payload in zip(positions, found, strict=True) if payload is None]
        stored = iter(self.messages(missing))
        return [next(stored).payload if payload is None else payload for payload in found]

    def numbers(self, name: str, positions: Sequence[int]) -> list[int]:
        """A fixed-width column of live messages, as they were published. As for ``payloads``."""
        places = [self.moved.get(position, position) for position in positions] if self.moved else positions
        found = self.recent.numbers(name, places)
        if None not in found:
            return cast(list[int], found)
        missing = [place for place, number in zip(places, found, strict=True) if number is None]
        if self.backlog is not None:
            stored = iter([cast(int, getattr(row, name)) for row in self.backlog.messages(missing)])
        else:
            stored = iter(self.log.numbers(name, missing))
        return [next(stored) if number is None else number for number in found]

    def messages(self, positions: Sequence[int]) -> list[MessageRow]:
        """Live messages with all that was published with them, from memory or the log. They must be committed."""
        places = [self.moved.get(position, position) for position in positions]
        found = [self.recent.message(place) for place in places]
        missing = [place for place, message in zip(places, found, strict=True) if message is None]
        stored = iter(self._stored(missing) if missing else ())
        return [next(stored) if message is None else message for message in found]

    def _stored(self, places: list[int]) -> list[MessageRow]:
        return self.log.messages(places) if self.backlog is None else self.backlog.messages(places)

    def leading(self, positions: Sequence[int], missing: Container[int]) -> int:
        """How many positions stand before the first that lies at one of these places."""
        for number, position in enumerate(positions):
            if self.moved.get(position, position) in missing:
                return number
        return len(positions)

    def plain(self, positions: Sequence[int]) -> list[PlainMessage | MessageRow]:
        """Live messages: all that was published with them, where that is not just what every message has."""
        found = self.recent.plain(positions)
        missing = [position for position, message in zip(positions, found, strict=True) if message is None]
        if not missing:
            return cast(list[PlainMessage | MessageRow], found)
        stored = map(_plainly, self.messages(missing))
        return [next(stored) if message is None else message for message in found]

    def damage(self, positions: Iterable[int]) -> dict[int, Damage]:
        """Those of these live messages that can't be read, and why. What is not committed yet is in memory."""
        damaged: dict[int, Damage] = {}
        missing: list[int] = []
        sound = 0, 0
        for position in positions:
            place = self.moved.get(position, position)
            if sound[0] <= place < sound[1] or place >= self.broker.committed:
                continue
            if (kept := self.recent.span(position) or self.recent.span(place)) is not None:
                sound = kept
                continue
            found = look_at(self.log, place) if self.backlog is None else self.backlog.find(place)
            if found is None:
                missing.append(place)
            elif isinstance(found, Damage):
                damaged[position] = found
            else:
                sound = found
        if self.backlog is not None and missing:
            raise self.backlog.unread(missing)
        return damaged

    def collect(self) -> None:
        """Take the effects of the commands so far: those that wait for a commit, and those that do not."""
        if not self.broker.effects:
            return
        for effect in self.broker.take_effects():
            after = effect.after if isinstance(effect, DeliveryEffect) else 0
            if after <= self.broker.committed:
                self._released.append(effect)
            else:
                heappush(self._waiting, (after, next(self._serial), effect))


def _plainly(row: MessageRow) -> PlainMessage | MessageRow:
    """A message of the log as a PlainMessage, if it has no other columns."""
    if any(getattr(row, name) for name in SPECIAL):
        return row
    return PlainMessage(row.payload, row.at, row.source)


def table_of(checkpoint: Checkpoint | None) -> Table:
    """The state that a checkpoint holds; without one, that before the first event."""
    if checkpoint is None:
        return Table()
    return Table(msgspec.json.decode(checkpoint.meta, type=Meta), checkpoint.columns)


def recover(log: Log, table: Table, stop: int | None = None, lease: Lease | None = None) -> Table:
    """The state at the end of the log, or at ``stop``, where a block ends: that of a table, and the blocks behind it.

    A lease is kept meanwhile: there may be many blocks.
    """
    blocks = log.read(table.meta.position)
    if lease is not None:
        blocks = _renewing(blocks, lease)
    table.apply(blocks if stop is None else takewhile(lambda block: block.first < stop, blocks))
    if not table.meta.complete:
        table.reconcile()
    return table


def _renewing(blocks: Iterator[Block], lease: Lease) -> Iterator[Block]:
    for block in blocks:
        if lease.deadline - time.monotonic() < lease.seconds / 2:
            lease.renew()
        yield block


def locations(table: Table) -> dict[int, int]:
    """Where messages lie that were carried forward: original position -> position of the copy."""
    kept = table.columns.get("location")
    if kept is None:
        return {}
    rows = np.flatnonzero(kept)
    return dict(zip(table.columns["position"][rows].tolist(), kept[rows].tolist(), strict=True))
