"""The journal in PostgreSQL, in its roles: see ``contract``.

A broker takes over in this order: it checks the server and the tables; it claims the lease, which raises the epoch; it
loads the log and puts a fence at the head. Only then is anything recovered.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from typing_extensions import override

from penstock.journal.contract import FIRST_POSITION, Durability, Journal, OwnedJournal, OwnerOptions, since_began
from penstock.journal.errors import JournalDamaged, JournalOwned, JournalRefused, LogAway, LogError, LogFull
from penstock.journal.postgresql.address import LEASE, parse_address
from penstock.journal.postgresql.checkpoints import DatabaseCheckpoints
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import (
    MADE_IN,
    ConnectionLost,
    Database,
    DatabaseError,
    DatabaseFull,
    ServerFacts,
    ShardRow,
)
from penstock.journal.postgresql.extents import REMEDY
from penstock.journal.postgresql.failures import Backoff
from penstock.journal.postgresql.follower import DatabaseFollower
from penstock.journal.postgresql.incarnations import is_another
from penstock.journal.postgresql.interruption import Interruption
from penstock.journal.postgresql.known_commits import KnownCommits, pending_loss
from penstock.journal.postgresql.lease import DatabaseLease
from penstock.journal.postgresql.log import Connections, DatabaseLog
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from penstock.journal.postgresql.retries import unavailable
from penstock.journal.postgresql.server import check_server, warn_of_server
from penstock.journal.postgresql.standby import DatabaseStandby
from penstock.journal.postgresql.tools import PostgresTools
from penstock.journal.postgresql.transfer import ArrivalDatabase, DatabaseSource, DatabaseTarget
from penstock.journal.postgresql.values import GIVEN_UP, DatabaseValues
from penstock.journal.postgresql.writer import HeadWriter
from penstock.journal.unbounded_space import UnboundedSpace

#: Epochs per timeline of the database: each promotion moves on to unused ones.
EPOCHS = 2**16


class DatabaseJournal:
    """A ``contract.Journal`` in a database. Any broker that reaches it may own it, one at a time."""

    shared = True

    def __init__(
        self,
        connect: Callable[[], Database],
        *,
        where: str,
        url: str,
        options: OwnerOptions | None = None,
        lease: float = LEASE,
        clock: Clock | None = None,
        owner: Callable[[], str] | None = None,
        in_thread: bool = True,
    ) -> None:
        """``connect`` makes a connection, which is opened when it is used. ``owner`` names the next claim."""
        self.where = where
        self._url = url
        self._connect = connect
        self._options = options or OwnerOptions()
        self._lease = lease
        self._clock = clock or Clock()
        self._owner = owner or name_owner
        self._in_thread = in_thread
        self._known = KnownCommits(self._options.notes)

    def own(self) -> OwnedDatabase:
        """Become the owner now. Raises JournalOwned while another broker has the lease."""
        standby = self.stand_by()
        try:
            return standby.own()
        finally:
            standby.close()

    def stand_by(self) -> DatabaseStandby:
        """Follow the owner, ready to take over."""
        self._known.load()
        owner = self._owner()
        return DatabaseStandby(self._connect(), lambda standby: self._take_over(owner, standby), self._known)

    def follow(self, *, identity: int | None = None) -> DatabaseFollower:
        """Read it over a connection of its own."""
        return DatabaseFollower(self._connect(), identity=identity)

    def abandon(self) -> None:
        """Do nothing: only real connections can be interrupted."""

    def _take_over(self, owner: str, standby: DatabaseStandby) -> OwnedDatabase:
        if self._options.durability is not Durability.COMMIT:
            raise JournalRefused(
                f"{self.where} commits every append: durability = {self._options.durability.name.lower()} is for"
                " journals in a folder; leave it out, or set it to commit"
            )
        connections = Connections(*(self._connect() for _ in Connections._fields))
        try:
            return self._claim(connections, owner, standby)
        except BaseException as error:
            connections.close()
            if isinstance(error, OSError):
                raise LogAway(str(error)) from error
            if isinstance(error, ConnectionLost):
                raise unavailable(error) from error
            if isinstance(error, DatabaseFull):
                raise LogFull(str(error)) from error
            if isinstance(error, DatabaseError):
                raise JournalRefused(str(error)) from error
            raise

    def _claim(self, connections: Connections, owner: str, standby: DatabaseStandby) -> OwnedDatabase:
        database = connections.head
        check_server(self.where, database.facts())
        if self._known.identity is not None and database.is_empty():
            raise self._known.missing_journal(self.where)
        database.make()
        standby.check(database.shard(), database)
        facts, shard, asked_at = self._claim_epoch(database, owner)
        writer = HeadWriter(database, shard, self._lease, asked_at, self._clock, self._known, connections.lease)
        try:
            standby.check(shard, database)
            log = DatabaseLog(
                connections, writer, shard, facts.incarnation, self._options, self._clock, in_thread=self._in_thread
            )
            log.take_over(shard)
            return OwnedDatabase(self._url, connections, writer, log, warn_of_server(self.where, facts), self._clock)
        except BaseException:
            with suppress(LogError):
                writer.release()
            raise

    def _claim_epoch(self, database: Database, owner: str) -> tuple[ServerFacts, ShardRow, float]:
        """Become the owner, with an epoch that no earlier claim had, even one that this database has lost.

        Each timeline of the database has its own epochs, and so has each moment at which it may have been restored. If
        the server changes meanwhile, the claim is repeated.
        """
        facts = database.facts()
        while True:
            asked_at, before = self._clock.monotonic(), (facts.timeline, facts.incarnation)
            least = max(facts.timeline - 1, 0) * EPOCHS
            if is_another(database.value(MADE_IN), database.extents(), facts.incarnation):
                least += since_began(self._clock.now()) // 2_000_000 * 2
            shard = database.claim(owner, self._lease, least)
            if shard is None:
                found = database.shard()
                raise pending_loss(database, found) or JournalOwned(self.where, found.owner, found.lease)
            facts = database.facts()
            check_server(self.where, facts)
            if (facts.timeline, facts.incarnation) == before:
                return facts, shard, asked_at


class OwnedDatabase(OwnedJournal):
    """A journal in a database, in the hands of its owner."""

    memory_bytes = 0

    def __init__(
        self,
        url: str,
        connections: Connections,
        writer: HeadWriter,
        log: DatabaseLog,
        warnings: list[str],
        clock: Clock,
    ) -> None:
        self.address = url
        self.log = log
        self._where = connections.head.where
        self.lease: DatabaseLease = writer.lease
        self.checkpoints = DatabaseCheckpoints(connections.maintenance, log.identity, writer, clock)
        self.values = DatabaseValues(connections.maintenance, writer, clock)
        self.space = UnboundedSpace()
        self.warnings = warnings
        self.report = [f"{_PUT_BACK} {log.end}"] if log.put_back else []
        found = self.values.get(GIVEN_UP)
        self.given_up = tuple((first, end) for first, end in json.loads(found)) if found else ()

    @property
    @override
    def expects_checkpoint(self) -> bool:
        # One is written before anything is trimmed, and when an extent is finished.
        return self.log.start > FIRST_POSITION or len(self.log.extents()) > 1

    @override
    def check_reach(self, position: int) -> bool:
        segments = self.log.extents()
        reached = segments[-1].end if segments else FIRST_POSITION
        if reached < position != self.log.end:
            reason = f"the journal ends at position {reached}, but there is a checkpoint at {position}"
            raise JournalDamaged(self._where, "checkpoints", 0, (reached, position), reason, remedy=REMEDY)
        return not segments or segments[0].header.after <= position

    @override
    def begin(self) -> None:
        self.log.drop_forgotten()

    @override
    def close(self) -> None:
        self.log.close()


_PUT_BACK = (
    "the database was restarted, promoted or restored since the journal was last written; to keep positions"
    " unique, they continue at"
)


class PostgresJournal(DatabaseJournal, Journal):
    """A journal in PostgreSQL, with the operations that need more than the statements of a ``Database``."""

    def __init__(self, url: str, options: OwnerOptions | None = None) -> None:
        """Nothing is connected yet. Raises JournalRefused for an invalid URL, or without the driver."""
        address = self._address = parse_address(url)
        PostgresDatabase(address)  # raises if the driver is missing, or does not understand it
        backoff, interruption = Backoff(), Interruption()
        self._interruption = interruption
        super().__init__(
            lambda: PostgresDatabase(address, backoff=backoff, interruption=interruption),
            where=address.where,
            url=url,
            options=options,
            lease=address.lease,
        )

    @override
    def abandon(self) -> None:
        self._interruption.interrupt()

    @override
    def tools(self) -> PostgresTools:
        return PostgresTools(self._address)

    @override
    @contextmanager
    def transfer_source(self) -> Iterator[DatabaseSource]:
        with closing(PostgresDatabase(self._address)) as database:
            yield DatabaseSource(database)

    @override
    @contextmanager
    def transfer_target(self) -> Iterator[DatabaseTarget]:
        with closing(ArrivalDatabase(self._address)) as database:
            yield DatabaseTarget(database)


def name_owner() -> str:
    """Host and process, for display, and a random part, so that a claim whose answer was lost is recognised."""
    return f"{socket.gethostname()} process {os.getpid()} ({secrets.token_hex(4)})"
