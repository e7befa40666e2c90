"""The SQL statements. ``{schema}`` is the schema's name, quoted; the driver fills in the other parameters.

Each is sent as one message and is a transaction of its own. If the client had to end a transaction, a client that is
stopped in between would keep its locks, and no broker could take over from it.
"""

from __future__ import annotations

_SHARD = """identity, created, epoch, head, low, floor, extent, chain, owner,
    extract(epoch from lease_until - clock_timestamp())::float8"""
_LEASE = "lease_until = clock_timestamp() + make_interval(secs => %(lease)s)"
#: Locks the row until the end of the transaction, so that no other owner intervenes.
_OURS = "select 1 as one from {schema}.shard where epoch = %(epoch)s for share"
_MOVED = f"""update {{schema}}.shard
    set head = %(end)s, chain = %(checksum)s, floor = %(floor)s, {_LEASE}"""
_FREE = "where epoch = %(epoch)s and head = %(head)s and low <= %(first)s"
_BLOCK = """insert into {schema}.blocks (extent, first, "end", epoch, checksum, at, size, bytes)
    select extent, %(first)s, %(end)s, %(block_epoch)s, %(checksum)s, %(at)s, %(size)s, %(data)b from moved"""

SHARD = f"select {_SHARD} from {{schema}}.shard"

#: The lease decides who may try. A claimant may repeat a claim whose outcome is unknown. Claims get even epochs, and an
#: owner seals with the odd one that follows, so a claim that a promoted server has lost cannot match another owner's.
CLAIM = f"""update {{schema}}.shard set epoch = greatest((epoch / 2 + 1) * 2, %(least)s), owner = %(owner)s, {_LEASE}
    where lease_until < clock_timestamp() or owner = %(owner)s returning {_SHARD}"""
SEAL = "update {schema}.shard set epoch = %(newer)s where epoch = %(epoch)s"
#: It may arrive late, on a connection of its own: after a release, or an append that has shown a higher floor.
RENEW = f"""update {{schema}}.shard set floor = greatest(floor, %(floor)s), {_LEASE}
    where epoch = %(epoch)s and owner <> '' returning {_SHARD}"""
RELEASE = "update {schema}.shard set owner = '', lease_until = 'epoch' where epoch = %(epoch)s"
#: Commits are lost: the owner is fenced off, and no broker can claim the journal.
HOLD = """with held as (update {schema}.shard set epoch = (epoch / 2 + 1) * 2, owner = %(owner)s,
        lease_until = clock_timestamp() + interval '100 years' where owner <> %(owner)s returning one)
    insert into {schema}.named_values select %(name)s, %(value)b from held
    on conflict (name) do update set value = excluded.value"""
#: Locks the row until the end of the transaction.
FREE_SHARD = f"""select {_SHARD} from {{schema}}.shard
    where owner = %(owner)s or lease_until < clock_timestamp() for update"""
END_HOLD = "update {schema}.shard set owner = '', lease_until = 'epoch'"
FORGET_VALUE = "delete from {schema}.named_values where name = %s"
SET_VALUE = """insert into {schema}.named_values values (%s, %b)
    on conflict (name) do update set value = excluded.value"""
#: The next owner finds that the last extent was begun in an incarnation that no server has.
END_INCARNATION = """update {schema}.extents set timeline = %s
    where first = (select extent from {schema}.shard)"""

#: The head moves and the block is added, both or neither. A second owner finds no row to move.
_MORE = "size = size + %(size)s, blocks = blocks + 1, last_at = greatest(last_at, %(at)s)"
_FIRST_OF_EXTENT = "extent = %(first)s, size = %(size)s, blocks = 1, last_at = %(at)s"
APPEND = f"with moved as ({_MOVED}, {_MORE} {_FREE} returning extent) {_BLOCK}"
APPEND_EXTENT = f"""with moved as ({_MOVED}, {_FIRST_OF_EXTENT} {_FREE} returning extent),
    finished as (update {{schema}}.extents set "end" = %(f_end)s, size = %(f_size)s, blocks = %(f_blocks)s,
        last_at = %(f_last_at)s, chain = %(f_chain)s, finished = true from moved where first = %(f_first)s),
    begun as (insert into {{schema}}.extents (first, header, timeline)
        select %(first)s, %(header)b, %(incarnation)s from moved)
    {_BLOCK}"""
MARK = 'select first, "end", epoch, checksum from {schema}.blocks where extent = %s and first = %s'

#: The last block of an unfinished extent determines its end. The shard keeps the sums of the growing extent, so its
#: blocks, which may be a million, are never counted.
EXTENTS = """select e.first, header, timeline, coalesce(b."end", e."end", e.first),
        case when g.one then g.size else e.size end, case when g.one then g.blocks else e.blocks end,
        case when g.one then g.last_at else e.last_at end, coalesce(b.checksum, e.chain), flags, finished, kept
    from {schema}.extents e left join {schema}.shard g on g.extent = e.first and not e.finished
        left join lateral (select "end", checksum from {schema}.blocks
            where extent = e.first and not e.finished order by first desc limit 1) b on true
    order by e.first"""
BLOCKS = """select extent, first, "end", epoch, checksum, bytes from (
        select *, sum(size) over (order by first) - size as before from (
            select * from {schema}.blocks where extent = %(extent)s and first >= coalesce(
                (select max(first) from {schema}.blocks where extent = %(extent)s and first <= %(position)s), 0)
            order by first limit %(limit)s) near where "end" > %(position)s) counted
    where before = 0 or before + size <= %(size)s order by first"""
COPY_BLOCKS = f"copy ({BLOCKS}) to stdout (format binary)"

TRIM = """with moved as (update {schema}.shard set low = %(low)s
        where epoch = %(epoch)s and low <= %(low)s returning one),
    kept as (update {schema}.extents set kept = true from moved where first < %(low)s and first = any(%(keep)s)),
    gone as (delete from {schema}.extents using moved
        where first < %(low)s and not kept and not first = any(%(keep)s))
    select count(*) from moved"""
UNKEEP = f"""with ours as ({_OURS}),
    gone as (delete from {{schema}}.extents using ours where first = %(first)s and kept)
    select count(*) from ours"""

#: The body of a block of code. ``{table}`` is the partition's name as text.
#: Attaching a table, unlike creating it as a partition, waits for no reader. The lock prevents a collision with the
#: statement of a killed client, which may still run when its successor sends the same; "if not exists" does not.
MAKE_PARTITION = """begin
    perform pg_advisory_xact_lock(hashtextextended({table}, 0));
    create table if not exists {schema}.{partition} (like {schema}.blocks including all);
    if not exists (select from pg_inherits where inhrelid = {table}::regclass) then
        alter table {schema}.blocks attach partition {schema}.{partition} for values from ({first}) to ({end});
    end if;
end"""
#: Tables of forgotten extents. The table that is prepared for the next extent is above ``low``.
FORGOTTEN = """select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass(%s) and c.relname ~ '^blocks_[0-9a-f]{{16}}$'
        and ('x' || right(c.relname, 16))::bit(64)::int8 < (select low from {schema}.shard)
        and not exists (select from {schema}.extents where first = ('x' || right(c.relname, 16))::bit(64)::int8)"""
#: All writers wait while this waits for a reader.
DROP_PARTITION = "begin set local lock_timeout = '100ms'; drop table if exists {schema}.{partition}; end"

#: While a checkpoint's parts are being sent, their position is the sender's negative epoch.
CHECKPOINTS = """select position, sum(octet_length(bytes))::int8 from {schema}.checkpoints
    where position > 0 group by position order by position"""
CHECKPOINT = "select bytes from {schema}.checkpoints where position = %s order by part"
#: A checkpoint of events that this server has lost could later be taken for one of other events.
_OURS_UP_TO = "select 1 as one from {schema}.shard where epoch = %(epoch)s and head >= %(position)s for share"
CLEAR_CHECKPOINT = f"""with ours as ({_OURS_UP_TO}),
    gone as (delete from {{schema}}.checkpoints using ours where position < 0 or position = %(position)s)
    select count(*) from ours"""
PUT_CHECKPOINT = "insert into {schema}.checkpoints values (-%s, %s, %b)"
KEEP_CHECKPOINT = f"""with ours as ({_OURS_UP_TO}),
    put as (update {{schema}}.checkpoints set position = %(position)s from ours where position = -%(epoch)s),
    gone as (delete from {{schema}}.checkpoints using ours where position > 0 and position not in (
        select distinct position from {{schema}}.checkpoints where position > 0 order by position desc limit %(older)s))
    select count(*) from ours"""

VALUE = "select value from {schema}.named_values where name = %s"
PUT_VALUE = f"""with ours as ({_OURS}) insert into {{schema}}.named_values select %(name)s, %(value)b from ours
    on conflict (name) do update set value = excluded.value"""
REMOVE_VALUE = f"""with ours as ({_OURS}), gone as (
        delete from {{schema}}.named_values using ours where name = %(name)s) select count(*) from ours"""
RENAME_VALUE = f"""with ours as ({_OURS}),
    gone as (delete from {{schema}}.named_values using ours where name = %(name)s returning name, value),
    put as (insert into {{schema}}.named_values select %(to)s, value from gone
        on conflict (name) do update set value = excluded.value)
    select count(*) from ours"""

FACTS = """select current_setting('server_version_num')::int, current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'),
    (select case when count(*) filter (where sync_state is null) > 0 then -1
        else count(*) filter (where sync_state in ('sync', 'quorum')) end from pg_stat_replication)::int,
    pg_is_in_recovery() or current_setting('transaction_read_only') = 'on'"""
#: The first 8 digits in the name of a write-ahead log file. A standby, or a server without such files, reports none.
TIMELINE = "select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
#: A restored server has another start time, and restored rows are in another table or file.
INCARNATION = """select concat_ws(' ', extract(epoch from pg_postmaster_start_time()),
    (select oid from pg_database where datname = current_database()), pg_relation_filenode(to_regclass(%s)))"""
