"""The thread that reads messages from the log for a backlog: a slice of time for each reading, in turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Final

from penstock.journal.contract import Log
from penstock.journal.errors import UNREADABLE, Gone, LogAway, LogError
from penstock.journal.format.block import Block
from penstock.journal.format.rows import MessageRow, messages_of

#: Seconds that the thread reads for one owner before the next one has its turn.
SLICE: Final = 0.02
#: Seconds after which a journal that could not be asked is asked again.
RETRY: Final = 0.25
#: Seconds of work after which the thread lets the loop have the interpreter, and for how long.
WORK: Final = 0.001
PAUSE: Final = 0.00005

#: Calls something in the loop's thread: ``loop.call_soon_threadsafe``.
Hand = Callable[[Callable[[], None]], object]
#: Calls something after a number of seconds: ``loop.call_later``.
Later = Callable[[float, Callable[[], None]], object]


class Reading:
    """Messages that one owner needs. The thread has it until it is done."""

    def __init__(
        self, places: Sequence[int], wake: Callable[[], None], *, payloads: bool, whole: bool, reserved: int
    ) -> None:
        #: Wakes the owner, in the loop.
        self.wake = wake
        #: Without payloads it is only found out whether the messages can be read.
        self._payloads = payloads
        #: Done when everything was read, not when the first of it was.
        self.whole = whole
        #: Bytes of the memory for output that it holds.
        self.reserved = reserved
        self.done = False
        self.dropped = False
        #: Places that are still to be read, in this order.
        self.left: deque[int] = deque(places)
        self.rows: dict[int, MessageRow | None] = {}
        self.errors: dict[int, LogError] = {}

    def drop(self) -> None:
        """The owner has used it, or is gone."""
        self.dropped = True

    def finish(self) -> None:
        """The thread has read everything."""
        self.done = True

    def take_reserved(self) -> int:
        """Give back the memory that it holds. Returns how much."""
        reserved, self.reserved = self.reserved, 0
        return reserved

    def read_block(self, log: Log) -> None:
        """Read the next place, and the other ones that lie in the same block. In the thread."""
        first = self.left[0]
        try:
            block = log.locate(first)
            here = sorted(place for place in self.left if block.first <= place < block.end)
            try:
                found = self._rows_of(block, here)
            except Gone:  # one of them is
                here = [first]
                found = self._rows_of(block, here)
        except UNREADABLE as error:
            self.errors[self.left.popleft()] = error
            return
        self.rows.update(zip(here, found, strict=True))
        taken = set(here)
        while self.left and self.left[0] in taken:  # all of them, as a rule
            taken.discard(self.left.popleft())
        if taken:
            self.left = deque(place for place in self.left if place not in taken)

    def _rows_of(self, block: Block, places: Sequence[int]) -> Sequence[MessageRow | None]:
        return messages_of(block, places) if self._payloads else [None] * len(places)


class ReadThread:
    """Works on readings in turn. ``done`` is called in the loop for each that has enough."""

    def __init__(self, log: Log, hand: Hand, later: Later, done: Callable[[Reading], None]) -> None:
        self._log = log
        self._hand = hand
        self._later = later
        self._done = done
        self._wanted = Condition()
        self._queue: deque[Reading] = deque()
        self.closed = False
        self._thread: Thread | None = None

    def enqueue(self, reading: Reading) -> None:
        """Work on this reading, behind the ones that wait. The first one starts the thread."""
        with self._wanted:
            self._queue.append(reading)
            if self._thread is None and not self.closed:
                self._thread = Thread(target=self._run, name="penstock-backlog", daemon=True)
                self._thread.start()
            self._wanted.notify()

    def close(self) -> None:
        """Read nothing more. The thread may still be at work: see ``join``."""
        with self._wanted:
            self.closed = True
            self._wanted.notify()

    def join(self) -> None:
        """Wait until the thread has ended. Not in the loop."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wanted:
                while not self._queue and not self.closed:
                    self._wanted.wait()
                if self.closed:
                    return
                reading = self._queue.popleft()
            self._read(reading)

    def _read(self, reading: Reading) -> None:
        """Read for a slice of time. Hand over the messages when all are read; otherwise continue in the next turn."""
        try:
            self._read_slice(reading)
        except LogAway:
            if reading.whole or not (reading.rows or reading.errors):
                self._hand(lambda: self._retry_later(reading))
                return
        if reading.whole and reading.left and not reading.dropped:
            self.enqueue(reading)
        else:
            self._hand(lambda: self._done(reading))

    def _retry_later(self, reading: Reading) -> None:
        self._later(RETRY, lambda: self.enqueue(reading))

    def _read_slice(self, reading: Reading) -> None:
        began = paused = time.monotonic()
        while reading.left and not reading.dropped and not self.closed:
            reading.read_block(self._log)
            now = time.monotonic()
            if now - began > SLICE:
                return
            if now - paused > WORK:
                time.sleep(PAUSE)
                paused = time.monotonic()
