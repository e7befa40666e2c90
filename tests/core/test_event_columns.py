"""Blocks are concatenated into the columns of all their rows, whatever their sizes and columns."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Sequence

import numpy as np

from penstock.core.events import EventBatch
from penstock.core.recovery.event_columns import Events
from penstock.journal.format.block import Block, parse
from penstock.journal.format.encoding import encode
from penstock.schema import Kind

NOW = 1_750_000_000_000_000


def block_of(batch: EventBatch) -> Block:
    batch.close()
    return parse(encode(batch, 1, 0).data)


def gathered(blocks: Sequence[Block]) -> Events:
    events = Events()
    for block in blocks:
        events.add(block)
    events.finish()
    return events


def published(first: int, payloads: list[bytes], **columns: list[bytes] | array[int]) -> Block:
    batch = EventBatch(first)
    batch.add_messages(Kind.PUBLISHED, NOW + first, 3, b"test", payloads, columns)
    return block_of(batch)


def acknowledged(first: int, messages: list[int], queue: int = 3) -> Block:
    batch = EventBatch(first)
    batch.add_others(Kind.ACKNOWLEDGED, NOW, queue, b"test", len(messages), {"message": array("Q", messages)})
    return block_of(batch)


def test_rows_of_both_sorts_are_in_order() -> None:
    blocks = [
        published(1, [b"a", b"", b"ccc"]),
        acknowledged(4, [2], 70_000),
        published(5, [b""]),
        acknowledged(6, [1, 3]),
    ]
    events = gathered(blocks)
    assert events.positions.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert events.queues.tolist() == [3, 3, 3, 70_000, 3, 3, 3]
    assert events.sizes.tolist() == [1, 0, 3, 0]
    assert events.message_rows.tolist() == [0, 1, 2, 4]
    assert events.other_rows.tolist() == [3, 5, 6]
    assert events.numbers("message").tolist() == [2, 1, 3]
    assert events.end == 8


def test_positions_may_jump() -> None:
    events = gathered([published(1, [b"a"]), published(2**32 + 5, [b"b", b"c"])])
    assert events.positions.tolist() == [1, 2**32 + 5, 2**32 + 6]


def test_a_column_that_some_blocks_leave_out_has_its_default_there() -> None:
    events = gathered(
        [
            published(1, [b"a"]),
            published(2, [b"b", b"c"], retries=array("B", [2, 3]), priority=array("Q", [7, 7])),
            published(4, [b"d"]),
        ]
    )
    assert events.numbers("retries").tolist() == [255, 2, 3, 255]
    assert events.numbers("priority").tolist() == [0, 7, 7, 0]
    assert not events.has("expires_at")
    assert events.numbers("expires_at").tolist() == [0, 0, 0, 0]


def test_strings_keep_their_row_and_requests_their_time() -> None:
    events = gathered([published(1, [b"a"]), published(2, [b"b", b"c"], request_id=[b"", b"r"]), published(4, [b"d"])])
    assert events.strings("request_id", 0, 4) == [(2, b"r")]
    assert events.strings("request_id", 0, 2) == []
    assert events.request_times == {2: NOW + 2}


def test_details_are_found_by_their_row() -> None:
    batch = EventBatch(1)
    for name in (b"one", b"two"):
        batch.add_others(Kind.QUEUE_CONFIGURED, NOW, 0, b"test", 1, {"detail": [name]})
    events = gathered([block_of(batch), acknowledged(3, [1])])
    assert events.strings("detail", 1, 2) == [(1, b"two")]
    assert list(events.spans()) == [(0, 1), (1, 2), (2, 3)]


def test_payloads_are_not_kept() -> None:
    block = published(1, [bytes(1_000_000)])
    events = Events()
    events.add(block)
    del block
    gc.collect()
    assert not [view for view in gc.get_objects() if isinstance(view, memoryview) and view.nbytes > 500_000]
    events.finish()
    assert np.array_equal(events.sizes, [1_000_000])
