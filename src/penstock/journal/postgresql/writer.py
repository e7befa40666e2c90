"""The owner's side of the log's head: fencing, and determining the outcome of a commit.

Every statement names our epoch, and an append also the head that we know. If no row is changed, another broker owns the
journal, or the database has lost commits; ``_explain`` determines which. If the connection broke, the block may or may
not be stored. ``_settle`` then asks the current server:

1. Renew the lease. That is a commit of its own, so when it returns, everything visible before it is as durable as any
   commit, including a block whose own wait for a standby was cut short. No row: fenced.
2. Check the server's settings, since another server may have taken the place of the one that was checked first. No
   later than this: the server that answers last stores the block.
3. If the head is after the block, and the block there has our epoch and checksum, the append succeeded. If the head is
   where it was, the statement was lost or is still on its way, so it is sent again; only one of the two can find the
   head there. If there is no answer: ``LogAway``. The same append may be retried, and all of this applies to it too.
4. If the head is before a position that we know as committed, the database has lost commits. The broker must stop.
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
from penstock.journal.postgresql.known_commits import KnownCommits, hold_for_operator, pending_loss
from penstock.journal.postgresql.lease import DatabaseLease
from penstock.journal.postgresql.retries import PATIENCE, PAUSES, retry, unavailable
from penstock.journal.postgresql.server import check_server

T = TypeVar("T")


class HeadWriter:
    """Moves the head. Any thread may use it; one operation runs at a time."""

    def __init__(
        self,
        database: Database,
        shard: ShardRow,
        lease: float,
        asked_at: float,
        clock: Clock,
        known: KnownCommits,
        lease_connection: Database,
    ) -> None:
        """``shard`` is the row that the claim returned, ``asked_at`` the clock's time just before it.

        ``lease_connection`` renews the lease while an append occupies ``database``.
        """
        self._database = database
        self._lease_connection = lease_connection
        self._clock = clock
        self._lock = RLock()
        self.owner = shard.owner
        self.epoch = shard.epoch
        self.head = shard.head
        #: The floor that readers should see, and the one that they do.
        self.floor = self._shown_floor = shard.floor
        self._known = known
        #: Why nothing is accepted any more.
        self.failure: LogError | None = None
        #: The server that answers next may not be the one whose settings were checked.
        self._unchecked = False
        #: The lease's connection may lead to the previous server.
        self._lease_connection_is_old = False
        self.lease = DatabaseLease(lease, self.renew, self.keep, self.release)
        self.lease.extend(asked_at)

    def check(self) -> None:
        """Raise the failure after which nothing is accepted."""
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
                raise LogFull(f"{error}. Free some space, and it continues") from error
            except DatabaseRefused as error:
                raise self._end(LogFailed(f"the database refused a commit: {error}")) from error
            else:
                if not done:
                    asked_at = self._settle(None, lambda: self._found(block, extent, begins))
            self.head, self._shown_floor = block.end, floor
            self._known.note(extent, BlockMark(block.first, block.end, block.epoch, block.checksum))
            self.lease.extend(asked_at)

    def prepare(self, first: int) -> None:
        """Make a place for the blocks of an extent. Raises LogFull or LogFailed."""
        self._retry(lambda: self._database.prepare(first))

    def renew(self) -> None:
        """Renew the lease, and show the floor. Raises Fenced, LogFull, CommitsLost or LogFailed."""
        with self._lock:
            self.check()
            self.lease.extend(self._settle(None, lambda: True))

    def keep(self) -> bool:
        """Renew the lease beside an append, or return False: only ``renew``, which waits for appends, judges."""
        if self.failure is not None or self._unchecked:
            return False
        if self._lease_connection_is_old:
            self._lease_connection_is_old = False
            self._lease_connection.close()
        head, asked_at = self.head, self._clock.monotonic()  # an append may move the head meanwhile
        try:
            shard = self._lease_connection.renew(self.epoch, self.lease.seconds, self.floor)
        except DatabaseError:
            return False
        if shard is None or shard.head < head:
            return False
        self.lease.extend(asked_at)
        return True

    def show_floor(self) -> None:
        """Show readers the floor, unless they see it already."""
        if self.floor != self._shown_floor:
            self.renew()

    def seal(self, newer: int) -> None:
        """Continue with another epoch. Raises Fenced, LogFull or LogFailed."""
        with self._lock:
            self.check()
            epoch = self.epoch

            def change() -> bool:
                if self._database.seal(epoch, newer):
                    return True
                found = self._database.shard()  # an earlier try may have succeeded without an answer
                return (found.epoch, found.owner) == (newer, self.owner)

            if not self._retry(change):
                self._refused()
            self.epoch = newer

    def change_as_owner(self, change: Callable[[int], bool]) -> None:
        """Run a statement that names our epoch, and may run twice. It must use another connection than the head's.

        Raises Fenced, or LogFull, LogAway or LogFailed, after which the log continues.
        """
        self.check()
        if not self._retry(lambda: change(self.epoch), at_head=False):
            self._refused()

    def release(self) -> None:
        """Release the lease, and accept nothing more. If it raises LogFailed, the lease will expire."""
        with self._lock:
            if self.failure is not None:
                return
            self._end(LogFailed("the journal was handed over: nothing more is accepted"))
            try:
                self._database.release(self.epoch)
            except DatabaseError as error:
                raise LogFailed(f"the lease could not be released, and will expire: {error}") from error

    def _found(self, block: NewBlock, extent: int, begins: NewExtent | None) -> bool:
        """Whether a block is stored; if not, it is sent again. The lease was renewed just now."""
        mark = self._database.mark(extent, block.first)
        if mark == (block.first, block.end, block.epoch, block.checksum):
            return True
        return self._database.append(self.epoch, self.head, block, self.lease.seconds, self.floor, begins)

    def _settle(self, lost: ConnectionLost | None, settled: Callable[[], bool]) -> float:
        """Find out the outcome of a commit on the current server. Returns when the lease was asked for."""
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
                        self._unchecked, self._lease_connection_is_old = False, True
                    if settled():
                        self._shown_floor = floor
                        return asked_at
            except ConnectionLost as error:
                lost, self._unchecked = error, True
            except DatabaseFull as error:
                raise _full(error) from error
            except DatabaseRefused as error:
                raise self._end(LogFailed(f"the database refused a commit: {error}")) from error
            if lost is not None and lost.denied:
                raise unavailable(lost) from lost
            if self._clock.monotonic() - began > PATIENCE:
                raise LogAway(f"the outcome of a commit is not known yet: {lost}")
            self._clock.sleep(pause)
            pause = min(2 * pause, PAUSES[1])

    def _may_follow(self, shard: ShardRow) -> bool:
        """Whether the head is where we know it, or after a block that we have just sent."""
        return (shard.epoch, shard.owner) == (self.epoch, self.owner) and shard.head >= self.head

    def _refused(self) -> NoReturn:
        """Raise the reason why a statement of ours changed nothing."""
        with self._lock:
            self._retry(lambda: self._explain(self._database.shard()))
            raise self._end(LogFailed(f"{self._database.where} rejects our statements without a reason"))

    def _explain(self, shard: ShardRow) -> None:
        """Raise the reason why a statement of ours changed nothing. Returns if there is none: send it again."""
        lost = (shard.head, self.head) if shard.head < self.head else self._known.lost_range(self._database, shard)
        error = pending_loss(self._database, shard) if lost is None else None
        if error is not None:
            raise self._end(error)
        if lost is not None:
            raise self._end(hold_for_operator(self._database, lost))
        if shard.epoch != self.epoch:
            owner = f"{shard.owner} owns it" if shard.owner else "it was owned by another broker"
            raise self._end(
                Fenced(
                    f"the journal in {self._database.where} was taken over: {owner}, epoch {shard.epoch} at position"
                    f" {shard.head}; ours was {self.epoch} at {self.head}. Nothing was confirmed since"
                )
            )

    def _retry(self, statement: Callable[[], T], *, at_head: bool = True) -> T:
        """Run a statement that may run twice until it is answered. ``at_head``: a refusal ends the writer."""

        def run() -> T:
            try:
                return statement()
            except ConnectionLost:
                self._unchecked = self._unchecked or at_head
                raise

        try:
            return retry(run, self._clock)
        except DatabaseFull as error:
            raise _full(error) from error
        except ConnectionLost as error:
            raise unavailable(error) from error
        except DatabaseRefused as error:
            failure = LogFailed(f"the database refused: {error}")
            raise (self._end(failure) if at_head else failure) from error

    def _end(self, failure: LogError) -> LogError:
        """From now on accept nothing, and let nothing be handed out."""
        if self.failure is None:
            self.failure = failure
        self.lease.end()
        return failure


def _full(error: DatabaseFull) -> LogFull:
    return LogFull(f"{error}. It is tried again")
