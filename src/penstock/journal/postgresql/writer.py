"""The head of the log in the hands of its owner: fencing, and finding out what became of a commit.

Every statement names our epoch, and an append the head that we know. Where no row is changed, somebody else is the
owner, or the database is not what it was; ``_explain`` finds out which. Where the connection broke, nobody knows
whether the block is there. ``_settle`` asks the server that is there now:

1. Renew the lease. That is a commit of its own, so on return everything that was seen before it is as durable as the
   database makes it, also a block whose own wait for a standby was cut short. No row: fenced.
2. The server is asked for its settings: another one may be in the place of the one that was looked at first. Not later
   than this: whatever server answers last has the block.
3. The head is behind the block, and the block there has our epoch and checksum: it is done. The head is where it was:
   the statement was lost, or it is still on its way, so it is sent again; only one of the two can find the head there.
   Nobody answers: ``LogAway``, and the same append may be tried again; all of this applies to it as well.
4. The head lies before what we know as committed: the database has lost commits. Nobody may hide that, so we stop.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import NoReturn, TypeVar

from penstock.journal.errors import Fenced, LogAway, LogError, LogFailed, LogFull
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import (
    BlockMark,
    ConnectionLost,
    Database,
    DatabaseError,
    DatabaseFull,
    DatabaseRefused,
    NewBlock,
    NewExtent,
    ShardRow,
)
from penstock.journal.postgresql.lease import DatabaseLease
from penstock.journal.postgresql.questions import away
from penstock.journal.postgresql.seen import Seen, held, held_before
from penstock.journal.postgresql.server import check_server

#: Seconds for which a database that can't be reached is tried again before who asked is told of it, and may ask again.
PATIENCE = 2.0
#: Seconds between two tries, at least and at most.
PAUSES = (0.05, 0.5)

T = TypeVar("T")


class HeadWriter:
    """Moves the head. Any thread may use it; one thing is done at a time."""

    def __init__(
        self,
        database: Database,
        shard: ShardRow,
        lease: float,
        asked_at: float,
        clock: Clock,
        seen: Seen,
        beside: Database,
    ) -> None:
        """``shard`` is what the claim has returned, which was asked for at a moment of the clock.

        ``beside`` is another connection, for what must not wait for an append.
        """
        self._database = database
        self._beside = beside
        self._clock = clock
        self._lock = RLock()
        self.owner = shard.owner
        self.epoch = shard.epoch
        self.head = shard.head
        #: What readers are to be shown as the floor, and what they are.
        self.floor = self._shown_floor = shard.floor
        self._seen = seen
        #: Why nothing is accepted any more.
        self.failure: LogError | None = None
        #: Another server may answer than the one that was looked at.
        self._unchecked = False
        #: The connection for the lease may be to the server before.
        self._beside_is_old = False
        self.lease = DatabaseLease(lease, self.renew, self.keep, self.release)
        self.lease.extend(asked_at)

    def check(self) -> None:
        """Raise why nothing is accepted any more, if that is so."""
        if self.failure is not None:
            raise self.failure

    def append(self, block: NewBlock, extent: int, begins: NewExtent | None) -> None:
        """Commit a block. Raises Fenced, LogFull, CommitsLost or LogFailed."""
        with self._lock:
            self.check()
            floor, asked_at = self.floor, self._clock.monotonic()
            try:
                done = not self._unchecked and self._database.append(
                    self.epoch, self.head, block, self.lease.seconds, floor, begins
                )
            except ConnectionLost as error:
                self._unchecked = True
                asked_at = self._settle(error, lambda: self._found(block, extent, begins))
            except DatabaseFull as error:
                raise LogFull(f"{error}. Make room, and it goes on") from error
            except DatabaseRefused as error:
                raise self._end(LogFailed(f"the database refused a commit: {error}")) from error
            else:
                if not done:
                    asked_at = self._settle(None, lambda: self._found(block, extent, begins))
            self.head, self._shown_floor = block.end, floor
            self._seen.note(extent, BlockMark(block.first, block.end, block.epoch, block.checksum))
            self.lease.extend(asked_at)

    def prepare(self, first: int) -> None:
        """Make a place for the blocks of an extent. Raises LogFull or LogFailed."""
        self._insist(lambda: self._database.prepare(first))

    def renew(self) -> None:
        """Renew the lease, and show the floor. Raises Fenced, LogFull, CommitsLost or LogFailed."""
        with self._lock:
            self.check()
            self.lease.extend(self._settle(None, lambda: True))

    def keep(self) -> bool:
        """See Lease. What stands against it is judged by ``renew`` alone, which waits for an append under way."""
        if self.failure is not None or self._unchecked:
            return False
        if self._beside_is_old:
            self._beside_is_old = False
            self._beside.close()
        head, asked_at = self.head, self._clock.monotonic()  # an append may move the head meanwhile
        try:
            shard = self._beside.renew(self.epoch, self.lease.seconds, self.floor)
        except DatabaseError:
            return False
        if shard is None or shard.head < head:
            return False
        self.lease.extend(asked_at)
        return True

    def show_floor(self) -> None:
        """See that readers are shown the floor."""
        if self.floor != self._shown_floor:
            self.renew()

    def seal(self, newer: int) -> None:
        """Go on with another epoch. Raises Fenced, LogFull or LogFailed."""
        with self._lock:
            self.check()
            epoch = self.epoch

            def change() -> bool:
                if self._database.seal(epoch, newer):
                    return True
                found = self._database.shard()  # it may have been done by one whose answer was lost
                return (found.epoch, found.owner) == (newer, self.owner)

            if not self._insist(change):
                self._refused()
            self.epoch = newer

    def ours(self, change: Callable[[int], bool]) -> None:
        """Do something beside the log that names our epoch, and may be done twice. It must use another connection.

        Raises Fenced, or LogFull, LogAway or LogFailed, after which the log goes on.
        """
        self.check()
        try:
            done = insist(lambda: change(self.epoch), self._clock, PATIENCE)
        except DatabaseFull as error:
            raise LogFull(f"{error}. It is tried again") from error
        except ConnectionLost as error:
            raise away(error) from error
        except DatabaseRefused as error:
            raise LogFailed(f"the database refused: {error}") from error
        if not done:
            self._refused()

    def release(self) -> None:
        """Give the lease back; nothing is accepted any more. Raises LogFailed where that fails: then it runs out."""
        with self._lock:
            if self.failure is not None:
                return
            self._end(LogFailed("the journal was handed over: nothing more is accepted"))
            try:
                self._database.release(self.epoch)
            except (ConnectionLost, DatabaseFull, DatabaseRefused) as error:
                raise LogFailed(f"the lease could not be given back, and runs out by itself: {error}") from error

    # How it is done

    def _found(self, block: NewBlock, extent: int, begins: NewExtent | None) -> bool:
        """Whether a block is there, after it was sent again if it was not. The lease was renewed just now."""
        mark = self._database.mark(extent, block.first)
        if mark == (block.first, block.end, block.epoch, block.checksum):
            return True
        return self._database.append(self.epoch, self.head, block, self.lease.seconds, self.floor, begins)

    def _settle(self, lost: ConnectionLost | None, settled: Callable[[], bool]) -> float:
        """Find out what became of a commit, on whatever server there is now: when the lease was asked for."""
        began, pause = self._clock.monotonic(), PAUSES[0]
        while True:
            asked_at = self._clock.monotonic()
            try:
                floor = self.floor
                shard = self._database.renew(self.epoch, self.lease.seconds, floor)
                if shard is None or not self._may_follow(shard):
                    self._explain(self._database.shard())
                else:
                    if self._unchecked:
                        check_server(self._database.where, self._database.facts())
                        self._unchecked, self._beside_is_old = False, True
                    if settled():
                        self._shown_floor = floor
                        return asked_at
            except ConnectionLost as error:
                lost, self._unchecked = error, True
            except DatabaseFull as error:
                raise LogFull(f"{error}. It is tried again") from error
            except DatabaseRefused as error:
                raise self._end(LogFailed(f"the database refused a commit: {error}")) from error
            if lost is not None and lost.denied:
                raise away(lost) from lost
            if self._clock.monotonic() - began > PATIENCE:
                raise LogAway(f"what became of a commit is not known yet: {lost}")
            self._clock.sleep(pause)
            pause = min(2 * pause, PAUSES[1])

    def _may_follow(self, shard: ShardRow) -> bool:
        """Whether the head is where we know it, or behind a block that we have just sent."""
        return (shard.epoch, shard.owner) == (self.epoch, self.owner) and shard.head >= self.head

    def _refused(self) -> NoReturn:
        """Raise why a statement of ours has changed nothing."""
        with self._lock:
            self._insist(lambda: self._explain(self._database.shard()))
            raise self._end(LogFailed(f"{self._database.where} takes nothing from us, and does not say why"))

    def _explain(self, shard: ShardRow) -> None:
        """Raise why a statement of ours has changed nothing. Returns where that can't be told: it may be sent again."""
        lost = (shard.head, self.head) if shard.head < self.head else self._seen.lost(self._database, shard)
        error = held_before(self._database, shard) if lost is None else None
        if error is not None:
            raise self._end(error)
        if lost is not None:
            raise self._end(held(self._database, lost))
        if shard.epoch != self.epoch:
            owner = f"{shard.owner} owns it" if shard.owner else "it was owned by another broker"
            raise self._end(
                Fenced(
                    f"the journal in {self._database.where} was taken over: {owner}, epoch {shard.epoch} at position"
                    f" {shard.head}; ours was {self.epoch} at {self.head}. Nothing was confirmed since"
                )
            )

    def _insist(self, ask: Callable[[], T]) -> T:
        """Ask something that may be done twice, until there is an answer."""

        def ask_once() -> T:
            try:
                return ask()
            except ConnectionLost:
                self._unchecked = True
                raise

        try:
            return insist(ask_once, self._clock, PATIENCE)
        except DatabaseFull as error:
            raise LogFull(f"{error}. It is tried again") from error
        except ConnectionLost as error:
            raise away(error) from error
        except DatabaseRefused as error:
            raise self._end(LogFailed(f"the database refused: {error}")) from error

    def _end(self, failure: LogError) -> LogError:
        """Nothing is accepted, and nothing may be handed out, from now on."""
        if self.failure is None:
            self.failure = failure
        self.lease.end()
        return failure


def insist(ask: Callable[[], T], clock: Clock, patience: float) -> T:
    """Ask something that may be done twice, again and again for so many seconds. Raises DatabaseError."""
    began, pause = clock.monotonic(), PAUSES[0]
    while True:
        try:
            return ask()
        except ConnectionLost as error:
            if error.denied or clock.monotonic() - began > patience:
                raise
        clock.sleep(pause)
        pause = min(2 * pause, PAUSES[1])
