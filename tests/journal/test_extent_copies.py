"""Local copies of extents in a database: a bounded number is kept, and evicting one does not disturb its reader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import pytest

from penstock.demo.postgresql import Server
from penstock.journal import open_journal
from penstock.journal.contract import OwnerOptions
from penstock.journal.format.segment import HEADER_SIZE
from penstock.journal.postgresql.address import parse_address
from penstock.journal.postgresql.copies import ExtentCopies, key_of
from penstock.journal.postgresql.follower import DatabaseFollower
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from support.batches import published
from support.postgres import fresh_schema

COUNT = 60


@pytest.fixture
def database(postgres: Server) -> Iterator[PostgresDatabase]:
    """A journal of several extents."""
    url = fresh_schema(postgres)
    owned = open_journal(url, OwnerOptions(extent_bytes=2_000)).own()
    owned.begin()
    for number in range(COUNT):
        batch = published(owned.log.end, [b"%d" % number])
        owned.log.append(batch, owned.log.end, owned.log.epoch, roll=owned.log.wants_roll)
    owned.close()
    found = PostgresDatabase(parse_address(url))
    yield found
    found.close()


def numbers(follower: DatabaseFollower) -> Iterator[int]:
    """Read back the published numbers."""
    for block, _ in follower.read(follower.earliest):
        yield from (int(bytes(block.value("payload", row))) for row in range(block.messages))


def test_two_readers_that_evict_each_others_copies(database: PostgresDatabase) -> None:
    follower = DatabaseFollower(database)
    copies = follower._copies = ExtentCopies(database, kept_bytes=1)
    ahead, behind = numbers(follower), numbers(follower)
    first = [next(ahead) for _ in range(COUNT // 2)]
    pairs = list(zip_longest(ahead, behind))
    assert first + [one for one, _ in pairs if one is not None] == list(range(COUNT))
    assert [other for _, other in pairs] == list(range(COUNT))
    rows = database.extents()
    assert len(rows) > 3
    assert sum(copies.has(key_of(row)) for row in rows) == 1, "the latest, and no other"


def test_the_least_recently_used_are_evicted_first(database: PostgresDatabase) -> None:
    rows = [row for row in database.extents() if row.finished][:4]
    largest = max(HEADER_SIZE + row.size for row in rows)
    copies = ExtentCopies(database, kept_bytes=3 * largest)
    for at in (0, 1, 2, 0, 3):
        copies.mapped(rows[at], rows[at].end)
    assert [copies.has(key_of(row)) for row in rows] == [True, False, True, True]
