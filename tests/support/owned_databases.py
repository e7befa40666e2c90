"""Journals in PostgreSQL for tests: owned, written, read, and inspected from another session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from penstock.journal import open_journal
from penstock.journal.contract import OwnerOptions
from penstock.journal.postgresql.journal import DatabaseJournal, OwnedDatabase
from penstock.journal.postgresql.log import DatabaseLog
from support.batches import published

OPTIONS = OwnerOptions(extent_bytes=4096)


def journal_at(url: str, *, lease: float = 3) -> DatabaseJournal:
    journal = open_journal(f"{url}&lease={lease}", OPTIONS)
    assert isinstance(journal, DatabaseJournal)
    return journal


def add(log: DatabaseLog, *payloads: bytes, roll: bool = False) -> None:
    log.append(published(log.end, list(payloads)), log.end, log.epoch, roll=roll)


def payloads(log: DatabaseLog) -> list[bytes | int]:
    """The payloads of the messages in the log, in order; fences have none."""
    return [block.value("payload", row) for block in log.read(0) for row in range(block.messages)]


@contextmanager
def owning(url: str, *, lease: float = 3) -> Iterator[OwnedDatabase]:
    owned = journal_at(url, lease=lease).own()
    try:
        owned.begin()
        yield owned
    finally:
        owned.close()


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    """Execute a statement in the journal's schema, from another session."""
    base, _, schema = url.partition("?schema=")
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(f"set search_path = {schema}".encode())
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []
