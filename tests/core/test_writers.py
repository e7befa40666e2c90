"""Writers: each chunk counts once."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import compiled
from penstock.core.broker import Broker
from penstock.core.commands import write as write_commands
from penstock.core.commands.publish import PublishRefusal
from penstock.core.commands.write import ChunkDiffers, Portion, TooManyWriters, WriterError
from penstock.core.events import BATCH_BYTES
from penstock.core.policy import SECOND, Policy
from penstock.core.queue import Queue
from penstock.core.writers import ChunkKey, WriterEntry
from penstock.schema import Kind

NOW = 1_750_000_000 * SECOND


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.create_namespace("default", NOW)
    return broker


def queue_of(broker: Broker, name: str = "a", **policy: object) -> Queue:
    return broker.create_queue("default", name, NOW, Policy(**policy))  # type: ignore[arg-type]


def positions(queue: Queue) -> list[int]:
    return [
        item.position for priority in reversed(list(queue.ready.priorities)) for item in queue.ready.lanes[priority]
    ]


def test_messages_and_their_chunk_are_in_one_block(broker: Broker) -> None:
    """Even if the previous block is nearly full, and if a chunk is larger than a batch should be."""
    queue = queue_of(broker)
    broker.publish(broker.connect(1, b"sspq here"), queue, [bytes(BATCH_BYTES - 2_000)], NOW)
    payloads = [bytes(240)] * 100_000
    broker.write(b"spark there", ChunkKey("job"), [Portion(queue, payloads)], NOW)
    _, last = broker.log.take()
    assert last.size > BATCH_BYTES
    assert bytes(last.kinds) == bytes([Kind.PUBLISHED]) * 100_000 + bytes([Kind.WRITTEN])
    assert last.sources == [b"spark there"]


def test_a_repeated_chunk_adds_nothing(broker: Broker) -> None:
    queue = queue_of(broker)
    assert not broker.write(b"spark", ChunkKey("job", 3, 1, 0), [Portion(queue, [b"x"])], NOW).duplicate
    before = broker.log.next_position
    for key in (ChunkKey("job", 3, 1, 0), ChunkKey("job", 2, 1, 7), ChunkKey("job", 0, 9, 9)):
        assert broker.write(b"spark", key, [Portion(queue, [b"x"])], NOW).duplicate
    assert broker.log.next_position == before
    assert len(queue.ready) == 1


def test_a_missing_chunk_is_reported(broker: Broker) -> None:
    queue = queue_of(broker)
    with pytest.raises(WriterError, match=r"chunk 2 of writer 'job', epoch 0, partition 5 comes too early: .* chunk 0"):
        broker.write(b"spark", ChunkKey("job", 0, 5, 2), [Portion(queue, [b"x"])], NOW)
    assert queue.empty
    assert not broker.writers


def test_other_rows_under_the_same_numbers_are_refused(broker: Broker) -> None:
    """Only the last chunk of each partition is compared: a writer that continues has to pass it."""
    queue = queue_of(broker)
    for chunk, digest in ((0, 7), (1, 8)):
        broker.write(b"spark", ChunkKey("job", 0, 0, chunk, digest), [Portion(queue, [b"x"])], NOW)
    before = broker.log.next_position
    assert broker.was_written(ChunkKey("job", 0, 0, 0, 99))
    assert broker.was_written(ChunkKey("job", 0, 0, 1, 8))
    assert broker.was_written(ChunkKey("job", 0, 0, 1))
    with pytest.raises(ChunkDiffers, match="writer 'job', epoch 0, partition 0 differ from those accepted before"):
        broker.write(b"spark", ChunkKey("job", 0, 0, 1, 9), [Portion(queue, [b"y"])], NOW)
    assert broker.log.next_position == before


def test_the_digest_of_an_older_chunk_is_not_compared_with_a_newer(broker: Broker) -> None:
    queue = queue_of(broker)
    for chunk, digest in ((0, 7), (1, 0)):
        broker.write(b"spark", ChunkKey("job", 0, 0, chunk, digest), [Portion(queue, [b"x"])], NOW)
    assert broker.was_written(ChunkKey("job", 0, 0, 1, 9))
    assert not broker.writers["job"].digests


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({0: (2, 8), 1: (1, 5)}, ""),
        ({0: (2, 0), 1: (1, 0)}, ""),
        ({0: (2, 8)}, "partition 1 .*: 0 chunks were sent, and 1 were accepted"),
        ({0: (2, 8), 1: (1, 5), 2: (1, 1)}, "partition 2 .*: 1 chunks were sent, and 0 were accepted"),
        ({0: (1, 7), 1: (1, 5)}, "partition 0 .*: 1 chunks were sent, and 2 were accepted"),
        ({0: (2, 9), 1: (1, 5)}, "partition 0 .*: the rows are not the same"),
    ],
)
def test_written_rows_are_compared(broker: Broker, parts: dict[int, tuple[int, int]], expected: str) -> None:
    queue = queue_of(broker)
    for key in (ChunkKey("job", 3, 0, 0, 7), ChunkKey("job", 3, 0, 1, 8), ChunkKey("job", 3, 1, 0, 5)):
        broker.write(b"spark", key, [Portion(queue, [b"x"])], NOW)
    broker.check_written("job", 2, parts)
    with pytest.raises(ChunkDiffers, match=expected) if expected else nullcontext():
        broker.check_written("job", 3, parts)
    with pytest.raises(ChunkDiffers):
        broker.check_written("job", 4, parts)
    with pytest.raises(ChunkDiffers):
        broker.check_written("another", 3, parts)


def test_a_writer_of_an_older_journal_has_no_digest(broker: Broker) -> None:
    assert msgspec.json.decode(b'{"epoch":1,"chunks":{"0":2}}', type=WriterEntry).digests == {}
    assert msgspec.json.decode(b'{"writer":"job","epoch":1,"partition":0,"chunk":1}', type=ChunkKey).digest == 0
    broker.writers["job"] = WriterEntry(1, {0: 2})
    assert broker.was_written(ChunkKey("job", 1, 0, 1, 8))
    broker.check_written("job", 1, {0: (2, 8)})


def test_a_new_epoch_forgets_the_partitions_of_the_old(broker: Broker) -> None:
    queue = queue_of(broker)
    for partition in range(3):
        broker.write(b"spark", ChunkKey("job", 0, partition), [Portion(queue, [b"x"])], NOW)
    broker.write(b"spark", ChunkKey("job", 1, 2), [Portion(queue, [b"x"])], NOW)
    assert (broker.writers["job"].epoch, broker.writers["job"].chunks, broker.partitions) == (1, {2: 1}, 1)


def test_all_or_nothing(broker: Broker) -> None:
    wide, narrow = queue_of(broker, "wide"), queue_of(broker, "narrow", max_depth=2)
    portions = [Portion(wide, [b"x"] * 3), Portion(narrow, [b"x"] * 3)]
    before = broker.log.next_position
    done = broker.write(b"spark", ChunkKey("job"), portions, NOW)
    assert (done.refusal, done.queue) == (PublishRefusal.FULL, narrow)
    assert wide.empty
    assert broker.log.next_position == before
    done = broker.write(b"spark", ChunkKey("job"), [portions[0], Portion(narrow, [b"x"] * 2)], NOW)
    assert done.refusal is None
    assert (len(wide.ready), len(narrow.ready)) == (3, 2)


def test_rows_have_properties_of_their_own_and_keep_their_order(broker: Broker) -> None:
    queue = queue_of(broker, default_ttl=5 * SECOND)
    payloads = [b"a", b"b", b"c", b"d"]
    ids = [b"1", b"", b"3", b""]
    portion = Portion(queue, payloads, [-1, 0, SECOND, 0], [0, 0, 0, SECOND], [0, 7, 0, 0], ids)
    broker.log.take()
    broker.write(b"spark", ChunkKey("job"), [portion], NOW)
    [batch] = broker.log.take()
    first = batch.first
    assert positions(queue) == [first + 1, first, first + 2]
    assert [item.position for item in queue.delayed] == [first + 3]
    assert list(batch.columns["expires_at"]) == [NOW + 5 * SECOND, 0, NOW + SECOND, 0]
    assert batch.columns["correlation_id"] == ids
    assert broker.tick(NOW) == NOW + SECOND


@pytest.mark.skipif(compiled.state is compiled.State.USED, reason="it replaces a method, which cannot be compiled")
def test_plain_rows_are_one_run(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(broker)
    runs: list[int] = []
    append_run = queue.ready.append_run

    def counted(first: int, sizes: list[int], *more: int) -> None:
        runs.append(len(sizes))
        append_run(first, sizes, *more)

    monkeypatch.setattr(queue.ready, "append_run", counted)
    broker.write(b"spark", ChunkKey("job"), [Portion(queue, [b"x"] * 10_000)], NOW)
    assert runs == [10_000]


def test_waiting_consumers_get_the_messages(broker: Broker) -> None:
    queue = queue_of(broker)
    broker.subscribe(broker.connect(1, b"phpmq here"), queue, 10, NOW)
    broker.write(b"spark", ChunkKey("job"), [Portion(queue, [b"x", b"y"])], NOW)
    [effect] = broker.take_effects()
    assert len(getattr(effect, "messages", ())) == 2


def test_an_ended_writer_may_begin_again(broker: Broker) -> None:
    queue = queue_of(broker)
    broker.write(b"spark", ChunkKey("job", 4), [Portion(queue, [b"x"])], NOW)
    assert broker.end_writer("job", NOW, b"spark")
    assert not broker.end_writer("job", NOW, b"spark")
    assert broker.partitions == 0
    assert not broker.write(b"spark", ChunkKey("job"), [Portion(queue, [b"x"])], NOW).duplicate


def test_a_writer_belongs_to_the_owner_of_its_last_chunk(broker: Broker) -> None:
    """A chunk without an owner changes nothing. The owner's shares follow."""
    queue = queue_of(broker)
    owners = []
    for chunk, owner in enumerate(("", "a", "", "b")):
        broker.write(b"spark", ChunkKey("job", 0, 0, chunk, owner=owner), [Portion(queue, [b"x"])], NOW + chunk)
        owners.append((broker.writers["job"].owner, broker.writers["job"].at - NOW))
    assert owners == [("", 0), ("a", 1), ("a", 2), ("b", 3)]
    broker.write(b"spark", ChunkKey("more", 0, 7, owner="b"), [], NOW)
    broker.write(b"spark", ChunkKey("more", 0, 8, owner="b"), [], NOW)
    assert broker.shares == {"b": (2, 3)}
    broker.write(b"spark", ChunkKey("more", 1, 8, owner="b"), [], NOW)
    assert broker.shares == {"b": (2, 2)}
    broker.end_writer("job", NOW, b"spark")
    broker.end_writer("more", NOW, b"spark")
    assert (broker.shares, broker.partitions) == ({}, 0)


def test_an_older_journal_has_no_owners() -> None:
    key = msgspec.json.decode(b'{"writer":"job","epoch":1,"partition":2,"chunk":3}', type=ChunkKey)
    entry = msgspec.json.decode(b'{"epoch":1,"chunks":{"2":4}}', type=WriterEntry)
    assert (key.owner, key.at, entry.owner, entry.at) == ("", 0, "", 0)


def test_there_are_limits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(broker)
    monkeypatch.setattr(write_commands, "MOST_WRITERS", 1)
    broker.write(b"spark", ChunkKey("one"), [Portion(queue, [b"x"])], NOW)
    with pytest.raises(TooManyWriters, match="1 writers are already remembered"):
        broker.write(b"spark", ChunkKey("two"), [Portion(queue, [b"x"])], NOW)
    monkeypatch.setattr(write_commands, "MOST_PARTITIONS", 1)
    with pytest.raises(TooManyWriters, match="1 partitions of writers are already remembered"):
        broker.write(b"spark", ChunkKey("one", 0, 1), [Portion(queue, [b"x"])], NOW)
    for key in (ChunkKey("one", 0, 0, 1), ChunkKey("one", 1, 1)):  # these need no more room
        assert not broker.write(b"spark", key, [Portion(queue, [b"x"])], NOW).duplicate


CUTS = st.lists(st.integers(0, 12), max_size=3).map(sorted)


@given(rows=st.lists(st.sampled_from("abcd"), max_size=12), data=st.data())
def test_every_batch_reported_as_done_is_there_once(rows: list[str], data: st.DataObject) -> None:
    """Whatever the chunks of the first attempt, wherever it stopped, and whatever the chunks of the repetition."""
    broker = Broker()
    broker.create_namespace("default", NOW)
    queue = queue_of(broker)
    first, second = (_tasks(rows, data.draw(CUTS)) for _ in range(2))
    try:
        for partition, task in enumerate(first):
            _send(broker, queue, partition, task, data.draw(st.integers(0, 6)))
        parts = {partition: _send(broker, queue, partition, task) for partition, task in enumerate(second)}
        broker.check_written("job", 0, {partition: sent for partition, sent in parts.items() if sent[0]})
    except ChunkDiffers:
        assert [sorted(task) for task in first] != [sorted(task) for task in second]
        return
    published = [payload for batch in broker.log.take() for payload in batch.columns.get("payload", ())]
    assert sorted(published) == sorted(row.encode() for row in rows)


def _tasks(rows: list[str], cuts: list[int]) -> list[list[str]]:
    return [rows[low:high] for low, high in pairwise([0, *cuts, len(rows)])]


def _send(broker: Broker, queue: Queue, partition: int, rows: list[str], most: int = 99) -> tuple[int, int]:
    """Write this many chunks of at most two rows. Returns their number and the digest."""
    number = digest = 0
    for number, chunk in enumerate([rows[at : at + 2] for at in range(0, len(rows), 2)][:most], 1):
        digest += sum(crc32(row.encode()) for row in chunk)
        key = ChunkKey("job", 0, partition, number - 1, digest)
        broker.write(b"spark", key, [Portion(queue, [row.encode() for row in chunk])], NOW)
    return number, digest
