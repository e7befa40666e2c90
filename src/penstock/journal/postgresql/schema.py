"""The tables of a journal, their version, and the statements that create them. All are in one schema of the database.

    version        the product that owns the tables, and their version
    shard          one row: the log's head and start, its owner, and sums of the growing extent
    extents        units of trimming: the header of a segment, and sums once it is full
    blocks         the blocks, partitioned by extent: one commit is one row, its bytes those of the local format
    checkpoints    states before positions, in parts
    named_values   small values by name

The database has no unsigned numbers: 64-bit numbers without a sign are stored as signed ones.
"""

from __future__ import annotations

#: The version of the tables. Any other is refused.
VERSION = 2
PRODUCT = "penstock"
#: The default name of the schema.
SCHEMA = "penstock"

#: ``{schema}`` is the schema's name, quoted.
CREATE = """
create table {schema}.version (product text not null, number integer not null);
comment on table {schema}.version is 'The journal of a Penstock message broker. Change nothing by hand.';

create table {schema}.shard (
    one boolean primary key default true check (one),
    identity bigint not null,
    created bigint not null,
    epoch bigint not null default 0,
    head bigint not null default 1,
    low bigint not null default 1,
    floor bigint not null default 0,
    extent bigint not null default 0,
    chain bigint not null default 0,
    owner text not null default '',
    lease_until timestamptz not null default 'epoch',
    size bigint not null default 0,
    blocks bigint not null default 0,
    last_at bigint not null default 0
) with (fillfactor = 10);

create table {schema}.extents (
    first bigint primary key,
    header bytea not null,
    timeline integer not null,
    "end" bigint not null default 0,
    size bigint not null default 0,
    blocks bigint not null default 0,
    last_at bigint not null default 0,
    chain bigint not null default 0,
    flags smallint not null default 1,
    finished boolean not null default false,
    kept boolean not null default false
);

create table {schema}.blocks (
    extent bigint not null,
    first bigint not null,
    "end" bigint not null,
    epoch bigint not null,
    checksum bigint not null,
    at bigint not null,
    size integer not null,
    bytes bytea not null,
    primary key (extent, first)
) partition by range (extent);
alter table {schema}.blocks alter column bytes set storage external;

create table {schema}.checkpoints (
    position bigint not null,
    part integer not null,
    bytes bytea not null,
    primary key (position, part)
);
alter table {schema}.checkpoints alter column bytes set storage external;

create table {schema}.named_values (name text primary key, value bytea not null);
"""
TABLES = ("version", "shard", "extents", "blocks", "checkpoints", "named_values")


def partition(first: int) -> str:
    """The table with the blocks of an extent."""
    return f"blocks_{first:016x}"
