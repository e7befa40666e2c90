"""The output of a session: deliveries as positions until the peer is ready to take them, bytes until the turn ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.core.queue import Out, Queue
from penstock.core.state import DeliveryEffect
from penstock.journal.errors import UNREADABLE
from penstock.server.engine.backlog import NotInMemory
from penstock.server.engine.read_thread import Reading
from penstock.server.network.memory import Memory

if TYPE_CHECKING:
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Messages, and payload bytes, that are looked up and encoded at a time.
PUMP_MESSAGES: Final = 512
PUMP_BYTES: Final = 256 * 1024
#: How often as much is done for one session in one turn.
PUMPS: Final = 2
#: Parts up to this many bytes in total are joined before they are written: one write is cheaper than many.
JOINED_BYTES: Final = 256 * 1024


class Outbox:
    """The output of one session that its transport does not have yet."""

    def __init__(self, memory: Memory) -> None:
        #: Counts what waits here.
        self._memory = memory
        #: Messages that wait to be encoded, by queue.
        self.deliveries: deque[tuple[Queue, deque[Out]]] = deque()
        #: Encoded output, and its bytes.
        self._parts: list[bytes | memoryview] = []
        self.waiting_bytes = 0
        #: The reading that deliveries or answers wait for.
        self.reading: Reading | None = None
        #: Deliveries wait because memory is short, or for the journal.
        self.starved = False

    def add_deliveries(self, delivery: DeliveryEffect) -> None:
        """Messages for the peer, to be encoded when it is ready to take them."""
        self.deliveries.append((delivery.queue, deque(delivery.messages)))

    def drop_deliveries(self) -> None:
        """Send no more messages; encoded ones still leave."""
        self.deliveries.clear()
        self.starved = False

    def clear(self) -> None:
        """Send nothing more."""
        self.drop_deliveries()
        self._parts.clear()
        self._memory.add_output(-self.waiting_bytes)
        self.waiting_bytes = 0

    def append(self, data: bytes) -> None:
        """Bytes for the end of the turn."""
        size = len(data)
        self._parts.append(data)
        self.waiting_bytes += size
        self._memory.add_output(size)

    def extend(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """The same in parts, of ``size`` bytes together."""
        self._parts += parts
        self.waiting_bytes += size
        self._memory.add_output(size)

    def write_to(self, transport: asyncio.Transport) -> int:
        """Write everything in one piece. Returns how many bytes."""
        parts, size = self._parts, self.waiting_bytes
        if parts:
            if len(parts) == 1:
                transport.write(parts[0])
            elif size > JOINED_BYTES:
                transport.writelines(parts)
            else:
                transport.write(b"".join(parts))
            parts.clear()
            self.waiting_bytes = 0
            self._memory.add_output(-size)
        return size

    def await_reading(self, reading: Reading | None) -> None:
        """Answers continue once this was read; None: when they may ask again."""
        self.reading = reading

    def fill(self, session: AnySession) -> None:
        """Prepare some deliveries while the peer reads and there is memory. The rest waits for the next turn."""
        self.starved = False
        messages, size_left = PUMPS * PUMP_MESSAGES, PUMPS * PUMP_BYTES
        while messages > 0 and size_left > 0 and self.deliveries and not self.starved and (room := session.room):
            reading = self.reading
            if reading is None:
                size = self.deliveries[0][1][0].item.size
                granted = self._memory.grant(session, size, min(PUMP_BYTES, room))
            else:
                granted = reading.reserved if reading.done else 0
            if not granted:
                self.starved = True
                return
            before = self.waiting_bytes
            messages -= self._pump(session, granted)
            size_left -= self.waiting_bytes - before

    def _pump(self, session: AnySession, most: int) -> int:
        """Look up and encode the next messages of the outbox: ``most`` bytes, but at least one. Returns how many."""
        queue, waiting = self.deliveries[0]
        outs: list[Out] = []
        size = 0
        count = 0
        for out in waiting:
            added = out.item.size
            if outs and (size + added > most or len(outs) >= PUMP_MESSAGES):
                break
            count += 1
            if not out.ended:  # it may have been taken back meanwhile
                outs.append(out)
                size += added
        if count == len(waiting):
            self.deliveries.popleft()
        else:
            for _ in range(count):
                waiting.popleft()
        read = self.take_reading()
        if outs:
            self._hand_over(session, queue, outs)
        if read is not None:
            session.runtime.cold_reads.drop(read)
        return count

    def take_reading(self) -> Reading | None:
        """Take the reading for deliveries or answers. The caller drops it."""
        reading, self.reading = self.reading, None
        return reading

    def _hand_over(self, session: AnySession, queue: Queue, outs: list[Out]) -> None:
        """Look up and encode messages, up to the first that is not in memory: that and the rest are read."""
        runtime = session.runtime
        while outs:
            positions = [out.item.position for out in outs]
            try:
                try:
                    payloads = runtime.engine.payloads(positions)
                except UNREADABLE:
                    outs, payloads = runtime.damaged.read_sound(queue, outs)
                data = session.encode_deliveries(queue, outs, payloads) if outs else b""
            except NotInMemory as unread:
                positions = [out.item.position for out in outs]
                ready = runtime.engine.leading(positions, unread.places)
                rest, outs = outs[ready:], outs[:ready]
                self.deliveries.appendleft((queue, deque(rest)))
                if not self.starved:
                    self.starved = True
                    size = sum([out.item.size for out in rest])
                    self.reading = runtime.cold_reads.begin(session, unread, positions[ready:], size)
                continue
            for out in outs:
                out.shown = True
            if outs:
                session.write(data)
            return
