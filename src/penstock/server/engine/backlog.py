"""Messages that are not in memory: read in a thread, and pinned until their owner has used them.

The event loop never reads the log. It takes messages from blocks that are already in memory, few blocks in a turn, and
requests all others here::

    engine.payloads(positions)     raises NotInMemory, with the places that have to be read
    backlog.begin(owner, …)        a Reading, or None while too many are under way: the owner is woken, and asks again
      the thread                   reads its places in order, a slice of time for each reading in turn
      owner is woken               the messages are pinned: engine.payloads(positions) finds them at any later time
    backlog.drop(reading)          the owner has used it

A pinned message is kept apart from its block, so it can't be evicted while it is waited for, and keeping a
few small messages costs a few small messages, whatever lies around them. How much is read ahead is bounded: by the
bytes that an owner was granted, and by the number of readings.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from penstock.journal.contract import Log
from penstock.journal.errors import UNREADABLE, JournalDamaged, LogError
from penstock.journal.format.block import Block
from penstock.journal.format.rows import MessageRow, messages_of
from penstock.server.engine.read_thread import Hand, Later, Reading, ReadThread

#: Readings under way at a time. Each holds what its owner was granted of the memory for output.
MOST_READINGS = 16
#: Blocks in memory from which the loop takes messages in one turn: about 40 µs each. A stretch of a file that is in the
#: page cache may contain hundreds of small blocks; STRETCH_BYTES of it count as one block.
TURN_BLOCKS = 64
STRETCH_BYTES = 16 * 1024


class Damage(NamedTuple):
    """Why a message can't be read, and the positions that are lost by it, end excluded."""

    reason: str
    lost: tuple[int, int]


class NotInMemory(Exception):
    """These places have to be read first. ``later``: or looked at in another turn, this one having done enough."""

    def __init__(self, places: Collection[int], *, later: bool = False) -> None:
        super().__init__(f"{len(places)} messages have to be read first")
        self.places = frozenset(places)
        self.later = later


class Backlog:
    """Messages of the log for an event loop: from blocks in memory, or read by a thread and pinned."""

    def __init__(self, log: Log, hand: Hand, later: Later) -> None:
        self._log = log
        self._thread = ReadThread(log, hand, later, self._done)
        #: What is pinned, by place, and by how many readings. None: it can be read, and more is not known.
        self._rows: dict[int, MessageRow | None] = {}
        self._errors: dict[int, LogError] = {}
        self._pins: dict[int, int] = {}
        self._under_way: set[Reading] = set()
        #: Owners that may ask again when a reading is done, first come, first served.
        self._line: dict[object, Callable[[], None]] = {}
        #: Blocks were read in this turn: call ``new_turn`` at its end.
        self.used_in_turn = False
        self._blocks_left = TURN_BLOCKS
        #: What was taken out of blocks in this turn: more than its payload may be asked of a message, and it twice.
        self._taken: dict[int, MessageRow] = {}
        #: Places that can't be had without waiting, as was found in this turn.
        self._tried: set[int] = set()

    # What is in memory

    def new_turn(self) -> None:
        """The loop begins another turn: renew the budget, if some of it was used."""
        self.used_in_turn = False
        self._blocks_left = TURN_BLOCKS
        self._tried.clear()
        self._taken.clear()

    def messages(self, places: Sequence[int]) -> list[MessageRow]:
        """Messages that are pinned, or in blocks in memory. Raises NotInMemory, or the error of an unreadable one."""
        self.used_in_turn = True
        pinned, taken, errors = self._rows, self._taken, self._errors
        found = {place: row for place in places if (row := pinned.get(place) or taken.get(place)) is not None}
        wanted = sorted({place for place in places if place not in found and place not in errors})
        missing: list[int] = []
        for place in places if wanted else ():  # the one that is needed first is looked at first
            if place in found or place in errors:
                continue
            block = self._block(place) if self._blocks_left > 0 else None
            if block is None:
                missing.append(place)
                continue
            self._blocks_left -= 1
            here = wanted[bisect_left(wanted, block.first) : bisect_left(wanted, block.end)]
            rows = dict(zip(here, messages_of(block, here), strict=True))
            taken.update(rows)
            found.update(rows)
        if missing:
            raise self.unread(missing)
        for place in places:
            if place in errors:
                raise errors[place]
        return [found[place] for place in places]

    def find(self, place: int) -> tuple[int, int] | Damage | None:
        """As ``look_at``; None: that is not known without reading."""
        if place in self._errors:
            return _damage_of(place, self._errors[place])
        if place in self._rows:
            return place, place + 1
        block = self._block(place)
        return None if block is None else (block.first, block.end)

    def unread(self, missing: Sequence[int]) -> NotInMemory:
        """What to raise where these places are missing, of which the first is needed first."""
        return NotInMemory(missing, later=missing[0] not in self._tried)

    def _block(self, place: int) -> Block | None:
        self.used_in_turn = True
        block = self._log.resident(place)
        if block is None and self._blocks_left > 0:
            block = self._log.at_once(place)
            if block is None:
                self._tried.add(place)
            else:
                self._blocks_left -= 1 + STRETCH_BYTES // len(block.view)
        return block

    # Reading

    def begin(
        self,
        owner: object,
        places: Sequence[int],
        wake: Callable[[], None],
        *,
        payloads: bool = True,
        whole: bool = False,
        reserved: int = 0,
    ) -> Reading | None:
        """Read messages, in this order. The owner is woken in the loop when they are there, or when it may ask again.

        Unless ``whole``, it is woken when the first few are there.
        """
        if len(self._under_way) >= MOST_READINGS or self._thread.closed:
            self._line[owner] = wake
            return None
        self._line.pop(owner, None)
        reading = Reading(places, wake, payloads=payloads, whole=whole, reserved=reserved)
        self._under_way.add(reading)
        self._thread.enqueue(reading)
        return reading

    def drop(self, reading: Reading) -> None:
        """The owner has used it, or is gone."""
        if reading.dropped:
            return
        reading.drop()
        if reading.done:
            self._unpin(reading)
        elif reading in self._under_way:
            self._under_way.discard(reading)
            self._wake_next()

    def leave(self, owner: object) -> None:
        """The owner is gone: it waits for nothing."""
        self._line.pop(owner, None)

    @property
    def busy(self) -> bool:
        """Whether anything is being read, or waits for that."""
        return bool(self._under_way or self._line)

    def close(self) -> None:
        """Read nothing more. The thread may still be at work: see ``join``."""
        self._thread.close()

    def join(self) -> None:
        """Wait until the thread has ended. Not in the loop."""
        self._thread.join()

    def _done(self, reading: Reading) -> None:
        self._under_way.discard(reading)
        if not reading.dropped:
            reading.finish()
            self._pin(reading)
            reading.wake()
        self._wake_next()

    def _pin(self, reading: Reading) -> None:
        for place in (*reading.rows, *reading.errors):
            self._pins[place] = self._pins.get(place, 0) + 1
        for place, row in reading.rows.items():
            if row is not None or place not in self._rows:
                self._rows[place] = row
        self._errors.update(reading.errors)

    def _unpin(self, reading: Reading) -> None:
        for place in (*reading.rows, *reading.errors):
            self._pins[place] -= 1
            if not self._pins[place]:
                del self._pins[place]
                self._rows.pop(place, None)
                self._errors.pop(place, None)

    def _wake_next(self) -> None:
        if self._line and len(self._under_way) < MOST_READINGS:
            self._line.pop(next(iter(self._line)))()


def look_at(log: Log, place: int) -> tuple[int, int] | Damage:
    """The positions around a place that can be read, end excluded, or why it can't. It reads: not in an event loop."""
    try:
        block = log.locate(place)
    except UNREADABLE as error:
        return _damage_of(place, error)
    return block.first, block.end


def _damage_of(place: int, error: Exception) -> Damage:
    if isinstance(error, JournalDamaged):
        return Damage(f"{error.place}: {error.reason}", error.lost)
    return Damage(str(error), (place, place + 1))
