"""The tables of a journal, their version, and making them. All are in one schema of the database.

    version        whose tables these are, and which version of them
    shard          one row: how far the log goes, where it begins, whose it is; sums of the extent that grows
    extents        what is given back as a whole: the header of a segment, and sums once it is full
    blocks         the blocks, partitioned by extent: one commit is one row, its bytes those of the local format
    checkpoints    states before positions, in parts
    named_values   small values by name

Numbers of 64 bits without a sign are kept as those with one: the database has no others.
"""

from __future__ import annotations

#: The version of the tables. Any other is refused.
VERSION = 2
PRODUCT = "penstock"
#: The name of the schema where the URL names none.
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
#: The first rows, of a new journal.
FILL = (
    "insert into {schema}.version values (%s, %s)",
    "insert into {schema}.shard (identity, created) values (%s, %s)",
)
TABLES = ("version", "shard", "extents", "blocks", "checkpoints", "named_values")


def partition(first: int) -> str:
    """The table that has the blocks of an extent."""
    return f"blocks_{first:016x}"
