"""Backups of a journal's database by generic means: of rows, like pg_dump, and of a server's files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from penstock.demo.postgresql import Server
from penstock.journal.postgresql.address import parse_address
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from penstock.journal.postgresql.schema import TABLES

Dump = dict[str, bytes]


def dump(url: str) -> Dump:
    """The rows of all tables, as ``pg_dump`` copies them."""
    address = parse_address(url)
    with psycopg.connect(address.connection) as connection, connection.cursor() as cursor:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        rows = {}
        for table in TABLES:
            what = sql.SQL("copy (select * from {}) to stdout").format(sql.Identifier(address.schema, table))
            with cursor.copy(what) as copy:
                rows[table] = b"".join(copy)
        return rows


def put_back(url: str, backup: Dump) -> None:
    """Restore them into new tables, as ``pg_restore --clean`` does."""
    address = parse_address(url)
    with psycopg.connect(address.connection, autocommit=True) as connection:
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(address.schema)))
    database = PostgresDatabase(address)
    database.make()
    extents = {line.partition(b"\t")[0] for table in ("extents", "blocks") for line in backup[table].splitlines()}
    for first in extents:
        database.prepare(int(first))
    database.close()
    with psycopg.connect(address.connection) as connection, connection.cursor() as cursor:
        for table, rows in backup.items():
            name = sql.Identifier(address.schema, table)
            cursor.execute(sql.SQL("delete from {}").format(name))
            with cursor.copy(sql.SQL("copy {} from stdin").format(name)) as copy:
                copy.write(rows)


def copy_files(server: Server, to: Path) -> None:
    """Copy the files of a stopped server, like a disk snapshot."""
    subprocess.run(["cp", "--archive", str(server.data), str(to)], check=True)


def put_files_back(server: Server, backup: Path) -> None:
    """Restore the files of the server, which must be stopped."""
    subprocess.run(["rm", "--recursive", "--force", str(server.data)], check=True)
    subprocess.run(["cp", "--archive", str(backup), str(server.data)], check=True)
