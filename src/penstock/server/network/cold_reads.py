"""Messages that sessions need and that are not in memory: a thread reads them, and wakes the session.

The memory that a reading takes is part of what its session was granted for output.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.core.queue import Queue
from penstock.server.engine.backlog import Backlog, NotInMemory
from penstock.server.engine.damaged_messages import DamagedMessages
from penstock.server.engine.engine import Engine
from penstock.server.engine.read_thread import Reading
from penstock.server.network.memory import Memory

if TYPE_CHECKING:
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Approximate bytes of a message that is read for a peer, without its payload.
MESSAGE_BYTES: Final = 256
#: Damaged parts of the journal that one request passes, each set aside as a whole.
HEADS: Final = 2


class ColdReads:
    """Starts readings for sessions, and ends them."""

    def __init__(
        self,
        engine: Engine,
        backlog: Backlog,
        memory: Memory,
        damaged: DamagedMessages,
        wake: Callable[[AnySession], None],
    ) -> None:
        self._engine = engine
        self._backlog = backlog
        self._memory = memory
        self._damaged = damaged
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        #: Readings that find out whether the next messages of a queue can be read, by the session that takes them.
        self._checks: dict[AnySession, Reading] = {}

    def begin(
        self, session: AnySession, unread: NotInMemory, positions: Sequence[int], size: int, *, whole: bool = False
    ) -> Reading | None:
        """Have messages read that a session needs: ``size`` bytes, for which it was granted memory.

        The session is woken when they are in memory; or, if this returns None, when it may ask again.
        """
        if unread.later and not whole:
            self._loop.call_soon(self._wake, session)
            return None
        wanted, wake = self._places(unread, positions), partial(self._wake, session)
        reserved = size + MESSAGE_BYTES * len(wanted)
        reading = self._backlog.begin(session, wanted, wake, whole=whole, reserved=reserved)
        if reading is not None:
            self._memory.add_output(reserved)
        return reading

    def drop(self, reading: Reading) -> None:
        """The owner has used the messages, or no longer waits for them."""
        self._memory.add_output(-reading.take_reserved())
        self._backlog.drop(reading)

    def forget(self, session: AnySession) -> None:
        """A session is gone: nothing is read for it any more."""
        self._end_check(session)
        self._backlog.leave(session)

    def sound_heads(self, session: AnySession, queue: Queue, now: int, count: int = 1) -> int:
        """How many of the next messages of a queue may be taken: they can be read. Damaged ones are set aside.

        So no message is taken for good that can't be delivered. 0: there are more damaged ones than fit into a turn.
        Raises NotInMemory: the session is woken when that is known.
        """
        for _ in range(HEADS):
            item = self._engine.broker.peek(queue, now)
            if item is None:
                return count
            positions = queue.ready.next_positions(count)
            try:
                damaged = self._engine.damage(positions)
            except NotInMemory as unread:
                count = self._engine.leading(positions, unread.places)
                if not count:
                    self._begin_check(session, unread, positions)
                    raise
                damaged = self._engine.damage(positions[:count])
            if not damaged:
                self._end_check(session)
                return count
            self._damaged.set_aside(queue, damaged)
        return 0

    def _begin_check(self, session: AnySession, unread: NotInMemory, positions: Sequence[int]) -> None:
        """Find out whether messages can be read."""
        if unread.later:
            self._loop.call_soon(self._wake, session)
            return
        check = self._checks.get(session)
        if check is not None and not check.done:
            return
        self._end_check(session)
        places, wake = self._places(unread, positions), partial(self._wake, session)
        if (check := self._backlog.begin(session, places, wake, payloads=False)) is not None:
            self._checks[session] = check

    def _end_check(self, session: AnySession) -> None:
        if self._checks and (check := self._checks.pop(session, None)) is not None:
            self._backlog.drop(check)

    def _places(self, unread: NotInMemory, positions: Sequence[int]) -> list[int]:
        moved = self._engine.moved
        return [place for at in positions if (place := moved.get(at, at)) in unread.places]

    async def keep_answers(self, awaiting: Mapping[AnySession, None], before: int) -> None:
        """The log is about to give up what lies before this. A message may be popped, and its answer still wait.

        ``awaiting`` are the sessions with such answers, and changes meanwhile.
        """
        for session in list(awaiting):
            reading: Reading | None = None
            while session in awaiting:
                try:
                    session.keep(min(before, self._engine.broker.committed))
                    break
                except NotInMemory as unread:
                    reading = await self._read(unread.places, reading)
                except Exception as error:
                    session.broken(error)
                    break
            if reading is not None:
                self._backlog.drop(reading)

    async def _read(self, places: Collection[int], before: Reading | None) -> Reading:
        """Read all of these, then drop the previous reading."""
        owner = object()
        while True:
            woken: asyncio.Future[None] = self._loop.create_future()
            reading = self._backlog.begin(owner, sorted(places), partial(_wake, woken), whole=True)
            try:
                await woken
            except asyncio.CancelledError:
                self._backlog.leave(owner)
                raise
            if reading is not None:
                if before is not None:
                    self._backlog.drop(before)
                return reading


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
