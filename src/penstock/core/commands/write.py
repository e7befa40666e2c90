"""Commands of writers, whose chunks are published atomically and only once.

A chunk is identified by writer, epoch, partition and number. Its messages and the row that records it are in one block,
so a crash keeps both or neither. For each writer's newest epoch the broker remembers, without a time limit, how many
chunks of each partition were accepted. It confirms repeated chunks as duplicates, and everything of an older epoch.

A repetition must be the same as the original. A repeated batch may have been cut into other partitions, and
accepting its chunks as duplicates would lose rows and publish others twice. So a writer may send a *digest* with each
chunk: a number for the rows of all chunks of the partition so far. A chunk with the same numbers and another digest is
refused; and at the end a writer can have the broker check that it has exactly what was sent.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from penstock.core import budget
from penstock.core.commands.dispatch import dispatch
from penstock.core.commands.publish import PublishRefusal, admit, delayed_item, enforce_limits
from penstock.core.events import ROW_BYTES, Values
from penstock.core.queue import Queue
from penstock.core.state import BrokerState
from penstock.core.writers import MOST_PARTITIONS, MOST_WRITERS, ChunkKey, WriterEntry
from penstock.schema import FOREVER, Kind


class WriterError(Exception):
    """A chunk that can't be accepted now. The text says why, and what was expected."""


class ChunkDiffers(WriterError):
    """A repetition differs from what was written before."""


class TooManyWriters(WriterError):
    """There is no room to remember another writer, or another partition of one."""


class Portion(NamedTuple):
    """The rows of a chunk for one queue, in order. An empty column holds its default for all of them."""

    queue: Queue
    payloads: Sequence[bytes]
    #: Microseconds; −1 is the queue's default, 0 is none.
    ttl: Sequence[int] = ()
    delay: Sequence[int] = ()
    priority: Sequence[int] = ()
    correlation_ids: Sequence[bytes] = ()


class WriteResult(NamedTuple):
    """A chunk was accepted, now or before (``duplicate``). Or it was refused: for ``refusal``, by ``queue``."""

    duplicate: bool = False
    refusal: PublishRefusal | None = None
    queue: Queue | None = None


class _Times(NamedTuple):
    """When the rows of a portion expire and become ready; 0 = never, at once."""

    expires: list[int]
    due: list[int]


def was_written(state: BrokerState, key: ChunkKey) -> bool:
    """Whether this chunk counts already. Raises WriterError if one before it is missing, or it has other rows."""
    known = state.writers.get(key.writer)
    taken = 0
    if known is not None:
        if key.epoch < known.epoch:
            return True
        taken = known.chunks.get(key.partition, 0) if key.epoch == known.epoch else 0
    if key.chunk > taken:
        raise WriterError(
            f"chunk {key.chunk} of writer {key.writer!r}, epoch {key.epoch}, partition {key.partition} comes too "
            f"early: the next is chunk {taken}"
        )
    # Only the last accepted chunk's digest is known. Digests are cumulative, so a writer that continues is compared
    # there, and one that stops earlier by ``check_written``.
    if known is not None and key.chunk == taken - 1:
        _compare(key, known.digests.get(key.partition, 0))
    return key.chunk < taken


def check_written(state: BrokerState, writer: str, epoch: int, parts: Mapping[int, tuple[int, int]]) -> None:
    """Raises ChunkDiffers unless exactly these were accepted: for each partition, a number of chunks and their digest.

    An epoch before the newest passes: its chunks are forgotten, and no more of them are accepted.
    """
    for _ in check_written_in_steps(state, writer, epoch, parts):
        pass


def check_written_in_steps(
    state: BrokerState, writer: str, epoch: int, parts: Mapping[int, tuple[int, int]]
) -> Iterator[None]:
    """As ``check_written``, a few partitions at a time: a batch may have very many."""
    known = state.writers.get(writer) or WriterEntry(epoch, {})
    if epoch < known.epoch:
        return
    chunks = known.chunks if epoch == known.epoch else {}
    for number, partition in enumerate(sorted(chunks.keys() | parts.keys()), 1):
        count, digest = parts.get(partition, (0, 0))
        if count != chunks.get(partition, 0):
            text = f"{count} chunks were sent, and {chunks.get(partition, 0)} were accepted"
            raise ChunkDiffers(_differs(ChunkKey(writer, epoch, partition), text))
        _compare(ChunkKey(writer, epoch, partition, count, digest), known.digests.get(partition, 0))
        if not number % budget.COMPARE:
            yield


def write(state: BrokerState, source: bytes, key: ChunkKey, portions: Sequence[Portion], now: int) -> WriteResult:
    """Publish a chunk, once. It must not be confirmed before the log is durable up to ``log.next_position``.

    Raises WriterError for a chunk out of turn, and when there are too many writers.
    """
    if was_written(state, key):
        return WriteResult(duplicate=True)
    _check_writer(state, key)
    for portion in portions:
        refusal = _refusal(state, portion)
        if refusal is not None:
            return WriteResult(refusal=refusal, queue=portion.queue)
    key = _signed(state, key, now)
    detail = msgspec.json.encode(key)
    batch = state.log.make_room(now, sum(map(_size, portions)) + len(detail) + 2 * ROW_BYTES)
    times = [_times(portion, now) for portion in portions]
    for portion, ends in zip(portions, times, strict=True):
        first = batch.end
        columns = _columns(portion, ends)
        batch.add_messages(Kind.PUBLISHED, now, portion.queue.id, source, portion.payloads, columns)
        _add(portion, ends, first)
    count = sum(len(portion.payloads) for portion in portions)
    where = portions[0].queue.id if len(portions) == 1 else 0
    more: dict[str, Values] = {"count": array("Q", (count,)), "detail": [detail]}
    batch.add_others(Kind.WRITTEN, now, where, source, 1, more)
    _note_chunk(state, key)
    for portion, ends in zip(portions, times, strict=True):
        first_time = min(filter(None, chain(ends.expires, ends.due)), default=None)
        state.schedule_at(portion.queue, first_time)
        dispatch(state, portion.queue, now)
        enforce_limits(state, portion.queue, len(portion.payloads), now)
    return WriteResult()


def end_writer(state: BrokerState, writer: str, now: int, source: bytes) -> bool:
    """Forget a writer that will repeat nothing more. False: it is not known."""
    known = state.writers.pop(writer, None)
    if known is None:
        return False
    state.count_writer(known, -1)
    state.log.other(Kind.WRITER_ENDED, now, 0, source, detail=msgspec.json.encode(ChunkKey(writer, known.epoch)))
    return True


def _check_writer(state: BrokerState, key: ChunkKey) -> None:
    if key.writer not in state.writers and len(state.writers) >= MOST_WRITERS:
        raise TooManyWriters(
            f"{len(state.writers)} writers are already remembered, which is the limit: end those that will not come "
            f"back, or write under fewer names"
        )
    known = state.writers.get(key.writer) or WriterEntry(key.epoch, {})
    remaining = state.partitions if known.epoch == key.epoch else state.partitions - len(known.chunks)
    is_new = known.epoch != key.epoch or key.partition not in known.chunks
    if is_new and remaining >= MOST_PARTITIONS:
        raise TooManyWriters(
            f"{state.partitions} partitions of writers are already remembered, which is the limit: write with fewer "
            f"partitions, or end writers that will not come back"
        )


def _signed(state: BrokerState, key: ChunkKey, now: int) -> ChunkKey:
    """The key with the time and, if it names no owner, the writer's previous owner."""
    known = state.writers.get(key.writer)
    return msgspec.structs.replace(key, owner=key.owner or (known.owner if known else ""), at=now)


def _note_chunk(state: BrokerState, key: ChunkKey) -> None:
    known = state.writers.get(key.writer)
    if known is not None:
        state.count_writer(known, -1)
    if known is None or known.epoch != key.epoch:
        known = state.writers[key.writer] = WriterEntry(key.epoch, {})
    known.note(key)
    state.count_writer(known)


def _refusal(state: BrokerState, portion: Portion) -> PublishRefusal | None:
    """Why not all of these rows can be accepted, or None. If some are delayed, all count as delayed."""
    sizes = list(map(len, portion.payloads))
    return admit(state, portion.queue, sizes, sum(sizes), delayed=any(portion.delay))[1]


def _add(portion: Portion, times: _Times, first: int) -> None:
    """Add the messages to their queue."""
    queue, sizes = portion.queue, list(map(len, portion.payloads))
    queue.counters.published += len(sizes)
    for start, stop, priority, expires, due in _runs(portion, times):
        if due:
            queue.delayed.insert_many(
                delayed_item(first + at, sizes[at], expires, FOREVER, priority, due) for at in range(start, stop)
            )
        else:
            queue.ready.append_run(first + start, sizes[start:stop], priority, expires, FOREVER)


def _compare(key: ChunkKey, known: int) -> None:
    """Raises ChunkDiffers if a repetition has another digest than the accepted rows."""
    if key.digest and known and key.digest != known:
        raise ChunkDiffers(_differs(key, "the rows are not the same"))


def _differs(key: ChunkKey, why: str) -> str:
    which = f"writer {key.writer!r}, epoch {key.epoch}, partition {key.partition}"
    return f"the chunks of {which} differ from those accepted before: {why}"


def _size(portion: Portion) -> int:
    """The bytes of the rows in a block."""
    return sum(map(len, chain(portion.payloads, portion.correlation_ids))) + ROW_BYTES * len(portion.payloads)


def _times(portion: Portion, now: int) -> _Times:
    default = portion.queue.policy.default_ttl
    if portion.ttl:
        ttls = [default if ttl < 0 else ttl for ttl in portion.ttl]
        expires = [now + ttl if ttl else 0 for ttl in ttls]
    else:
        expires = [now + default] * len(portion.payloads) if default else []
    due = [now + delay if delay else 0 for delay in portion.delay] if any(portion.delay) else []
    return _Times(expires, due)


def _columns(portion: Portion, times: _Times) -> dict[str, Values]:
    """The journal's columns of these messages, without those that have only defaults."""
    columns: dict[str, Values] = {}
    if any(times.expires):
        columns["expires_at"] = array("q", times.expires)
    if any(portion.priority):
        columns["priority"] = array("Q", portion.priority)
    if times.due:
        columns["not_before"] = array("q", times.due)
    if any(portion.correlation_ids):
        columns["correlation_id"] = list(portion.correlation_ids)
    return columns


def _runs(portion: Portion, times: _Times) -> Iterator[tuple[int, int, int, int, int]]:
    """Runs of equal neighbours, as start, stop, priority, expires and due."""
    count = len(portion.payloads)
    columns = (portion.priority, times.expires, times.due)
    if not any(columns):
        yield 0, count, 0, 0, 0
        return
    rows = list(zip(*(column or [0] * count for column in columns), strict=True))
    start = 0
    for at in range(1, count + 1):
        if at == count or rows[at] != rows[start]:
            yield start, at, *rows[start]
            start = at
