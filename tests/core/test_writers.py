"""Writers: chunks that count once."""

from __future__ import annotations

import msgspec
import pytest

from penstock.core import writing
from penstock.core.broker import Broker
from penstock.core.events import BATCH_BYTES
from penstock.core.held import ChunkKey, WriterEntry
from penstock.core.policy import SECOND, Policy
from penstock.core.publishing import Refusal
from penstock.core.queue import Queue
from penstock.core.writing import Portion, TooManyWriters, WriterError
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
    return [item.position for priority in reversed(list(queue.priorities)) for item in queue.lanes[priority]]


def test_messages_and_their_chunk_are_in_one_block(broker: Broker) -> None:
    """Even where the block before has hardly any room left, and where a chunk is larger than a batch should be."""
    queue = queue_of(broker)
    broker.publish(broker.connect(1, b"sspq here"), queue, [bytes(BATCH_BYTES - 2_000)], NOW)
    payloads = [bytes(240)] * 100_000
    broker.write(b"spark there", ChunkKey("job"), [Portion(queue, payloads)], NOW)
    _, last = broker.log.take()
    assert last.size > BATCH_BYTES
    assert bytes(last.kinds) == bytes([Kind.PUBLISHED]) * 100_000 + bytes([Kind.WRITTEN])
    assert last.sources == [b"spark there"]


def test_what_comes_again_adds_nothing(broker: Broker) -> None:
    queue = queue_of(broker)
    assert not broker.write(b"spark", ChunkKey("job", 3, 1, 0), [Portion(queue, [b"x"])], NOW).duplicate
    before = broker.log.next_position
    for key in (ChunkKey("job", 3, 1, 0), ChunkKey("job", 2, 1, 7), ChunkKey("job", 0, 9, 9)):
        assert broker.write(b"spark", key, [Portion(queue, [b"x"])], NOW).duplicate
    assert broker.log.next_position == before
    assert queue.ready == 1


def test_a_chunk_that_is_missing_is_told(broker: Broker) -> None:
    queue = queue_of(broker)
    with pytest.raises(WriterError, match=r"chunk 2 of writer 'job', epoch 0, partition 5 comes too early: .* chunk 0"):
        broker.write(b"spark", ChunkKey("job", 0, 5, 2), [Portion(queue, [b"x"])], NOW)
    assert queue.empty
    assert not broker.writers


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
    assert (done.refusal, done.queue) == (Refusal.FULL, narrow)
    assert wide.empty
    assert broker.log.next_position == before
    done = broker.write(b"spark", ChunkKey("job"), [portions[0], Portion(narrow, [b"x"] * 2)], NOW)
    assert done.refusal is None
    assert (wide.ready, narrow.ready) == (3, 2)


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


def test_plain_rows_are_one_run(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(broker)
    runs: list[int] = []
    append_run = queue.append_run

    def counted(first: int, sizes: list[int], *more: int) -> None:
        runs.append(len(sizes))
        append_run(first, sizes, *more)

    monkeypatch.setattr(queue, "append_run", counted)
    broker.write(b"spark", ChunkKey("job"), [Portion(queue, [b"x"] * 10_000)], NOW)
    assert runs == [10_000]


def test_consumers_who_wait_get_them(broker: Broker) -> None:
    queue = queue_of(broker)
    broker.subscribe(broker.connect(1, b"phpmq here"), queue, 10, NOW)
    broker.write(b"spark", ChunkKey("job"), [Portion(queue, [b"x", b"y"])], NOW)
    [effect] = broker.take_effects()
    assert len(getattr(effect, "messages", ())) == 2


def test_a_writer_that_has_ended_may_begin_again(broker: Broker) -> None:
    queue = queue_of(broker)
    broker.write(b"spark", ChunkKey("job", 4), [Portion(queue, [b"x"])], NOW)
    assert broker.end_writer("job", NOW, b"spark")
    assert not broker.end_writer("job", NOW, b"spark")
    assert broker.partitions == 0
    assert not broker.write(b"spark", ChunkKey("job"), [Portion(queue, [b"x"])], NOW).duplicate


def test_a_writer_belongs_to_whoever_its_last_chunk_says(broker: Broker) -> None:
    """Nobody's chunk changes that. Shares follow."""
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


def test_an_older_journal_knows_no_owners() -> None:
    key = msgspec.json.decode(b'{"writer":"job","epoch":1,"partition":2,"chunk":3}', type=ChunkKey)
    entry = msgspec.json.decode(b'{"epoch":1,"chunks":{"2":4}}', type=WriterEntry)
    assert (key.owner, key.at, entry.owner, entry.at) == ("", 0, "", 0)


def test_there_are_limits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(broker)
    monkeypatch.setattr(writing, "MOST_WRITERS", 1)
    broker.write(b"spark", ChunkKey("one"), [Portion(queue, [b"x"])], NOW)
    with pytest.raises(TooManyWriters, match="1 writers are remembered already"):
        broker.write(b"spark", ChunkKey("two"), [Portion(queue, [b"x"])], NOW)
    monkeypatch.setattr(writing, "MOST_PARTITIONS", 1)
    with pytest.raises(TooManyWriters, match="1 partitions of writers are remembered already"):
        broker.write(b"spark", ChunkKey("one", 0, 1), [Portion(queue, [b"x"])], NOW)
    for key in (ChunkKey("one", 0, 0, 1), ChunkKey("one", 1, 1)):  # these take no more room
        assert not broker.write(b"spark", key, [Portion(queue, [b"x"])], NOW).duplicate
