"""Blocks alone: they survive a round trip, damage is refused, and columns have the expected size."""

from __future__ import annotations

from array import array
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.format import block
from penstock.journal.format.block import (
    HEADER,
    HEADER_SIZE,
    MAX_BLOCK,
    VERSION,
    Block,
    BlockError,
    parse,
)
from penstock.journal.format.encoding import encode
from penstock.schema import COLUMNS, Kind, Rows
from support.batches import NOW, Rowset, acknowledged, batches, published


def rebuilt(found: Block) -> Rowset:
    """Rebuild the batch of a block, with every column of the rows that exist."""
    columns: dict[str, array[int] | list[bytes]] = {}
    for column in COLUMNS:
        if column.rows is Rows.ALL:
            continue
        if column.type == "binary":
            offsets, data = found.binary(column.name)
            columns[column.name] = [
                bytes(data[a:b]) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
            ]
        else:
            columns[column.name] = array(column.type, found.column(column.name).tolist())
    return Rowset(
        found.first,
        bytearray(found.kinds.tolist()),
        array("q", found.at().tolist()),
        array("I", found.queues.tolist()),
        array("H", found.source.tolist()),
        found.sources,
        columns,
    )


def completed(batch: Rowset) -> Rowset:
    """Return the batch with its unused columns filled in."""
    messages = sum(batch.kinds.count(kind) for kind in (Kind.PUBLISHED, Kind.CARRIED))
    columns: dict[str, array[int] | list[bytes]] = {}
    for column in COLUMNS:
        if column.rows is Rows.ALL:
            continue
        rows = messages if column.rows is Rows.MESSAGES else len(batch.kinds) - messages
        empty = [b""] * rows if column.type == "binary" else array(column.type, [column.default] * rows)
        columns[column.name] = batch.columns.get(column.name, empty)
    return Rowset(batch.first, batch.kinds, batch.at, batch.queues, batch.source, batch.sources, columns)


@given(batches(), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_batch_survives_the_round_trip(batch: Rowset, epoch: int, previous: int) -> None:
    encoded = encode(batch, epoch, previous)
    header, data = encoded.header, encoded.data
    found = parse(data)
    assert rebuilt(found) == completed(batch)
    assert (found.epoch, found.header.previous, found.end) == (epoch, previous, batch.end)
    assert found.header == header
    recorded = (encoded.first, encoded.end, encoded.length, encoded.base, encoded.crc)
    assert recorded == (header.first, header.end, header.length, header.base, header.crc)
    assert len(data) == found.header.length
    assert len(data) % 8 == 0


@given(batches(), st.binary(max_size=90))
def test_surrounding_bytes_do_not_matter(batch: Rowset, around: bytes) -> None:
    data = encode(batch, 1, 0).data
    around = around[: len(around) & ~7]
    found = parse(around + data + around, len(around), 4096)
    assert bytes(found.view) == data
    assert found.offset == 4096


@given(batches())
def test_rows_find_their_message(batch: Rowset) -> None:
    found = parse(encode(batch, 1, 0).data)
    rows, others = found.message_rows(), found.other_rows()
    assert all(batch.kinds[row] in (Kind.PUBLISHED, Kind.CARRIED) for row in rows)
    assert sorted([*rows, *others]) == list(range(found.count))
    if found.messages:
        payloads = batch.columns.get("payload", [b""] * found.messages)
        assert [found.value("payload", index) for index in range(found.messages)] == payloads


def test_every_flipped_bit_is_detected() -> None:
    data = bytearray(encode(published(7, [b"one", b"two"]), 1, 99).data)
    for at in range(len(data) * 8):
        data[at // 8] ^= 1 << at % 8
        with pytest.raises(BlockError) as caught:
            parse(bytes(data), offset=64)
        assert caught.value.offset == 64
        data[at // 8] ^= 1 << at % 8


def test_every_cut_is_detected() -> None:
    data = encode(acknowledged(7, [1, 2, 3]), 1, 0).data
    for size in range(len(data)):
        with pytest.raises(BlockError) as caught:
            parse(data[:size])
        assert caught.value.offset == 0


def test_omitted_columns_keep_their_types() -> None:
    found = parse(encode(acknowledged(7, [1, 2, 3]), 1, 0).data)
    plain = [column for column in COLUMNS if column.type != "binary" and column.rows is not Rows.ALL]
    assert {each.name: found.column(each.name).dtype for each in plain} == {
        each.name: block.DTYPES[each.type] for each in plain
    }


def forged(data: bytes, **changes: Any) -> bytes:
    """Return the block with changed header fields and valid checksums, as a faulty encoder would write it."""
    header = block.parse_header(data)._replace(**changes)._replace(body_crc=crc32(data[HEADER_SIZE:]))
    raw = HEADER.pack(*header)[:-4]
    return raw + crc32(raw).to_bytes(4, "little") + data[HEADER_SIZE:]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": VERSION + 1}, f"in format {VERSION + 1}: this Penstock reads format {VERSION}. Use"),
        ({"version": VERSION - 1}, f"in format {VERSION - 1}: this Penstock reads format {VERSION}. Use"),
        ({"flags": 2}, "contradicts itself"),
        ({"length": 72}, "impossible"),
        ({"length": 81}, "impossible"),
        ({"length": MAX_BLOCK + 8}, "impossible"),
        ({"length": 8000}, "of which"),
        ({"events": 0, "messages": 0}, "contradicts itself"),
        ({"messages": 3}, "contradicts itself"),
        ({"messages": 1}, "its columns take|contradict the header"),
        ({"events": 3}, "contradict the header"),
        ({"sources": 500}, "reach past its end"),
        ({"sources": 0}, "its columns take|contradict"),
        ({"present": 1 << 63}, "does not have"),
        ({"constant": 1 << 8}, "does not have"),
        ({"constant": 1 << 40}, "does not have"),
    ],
    ids=str,
)
def test_a_wrong_header_is_refused(changes: dict[str, int], reason: str) -> None:
    data = encode(published(7, [b"one", b"two"]), 1, 0).data
    with pytest.raises(BlockError, match=reason) as caught:
        parse(forged(data, **changes), offset=64)
    assert caught.value.offset == 64


def test_the_body_can_be_trusted_without_its_checksum() -> None:
    data = bytearray(encode(published(7, [b"payload!"]), 1, 0).data)
    data[-1] ^= 1
    assert parse(bytes(data), verify=False).value("payload", 0) == b"payload "


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"payload": [b"only one"]}, "column payload needs one value"),
        ({"payload": array("Q", [1, 2])}, "column payload needs one value"),
        ({"priority": [b"a", b"b"]}, "column priority needs one value"),
        ({"priority": array("I", [1, 2])}, "column priority needs one value"),
        ({"message": array("Q", [1, 2])}, "column message needs one value"),
        ({"colour": array("Q", [1, 2])}, "no such column: colour"),
    ],
    ids=str,
)
def test_a_batch_that_breaks_the_rules_is_refused(change: dict[str, array[int] | list[bytes]], reason: str) -> None:
    batch = published(1, [b"a", b"b"])
    batch.columns.update(change)
    with pytest.raises(ValueError, match=reason):
        encode(batch, 1, 0)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="split it"):
        encode(published(1, []), 1, 0)


def test_a_batch_over_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="split it"):
        encode(published(1, [bytes(MAX_BLOCK)]), 1, 0)


def test_a_batch_at_the_limit_is_accepted() -> None:
    rest = len(encode(published(1, [bytes(8)]), 1, 0).data) - 8
    encoded = encode(published(1, [bytes(MAX_BLOCK - rest)]), 1, 0)
    assert encoded.length == sum(map(len, encoded.parts)) == MAX_BLOCK
    assert block.parse_header(encoded.parts[0]) == encoded.header


def test_only_blocks_written_after_a_sync_are_marked() -> None:
    batch = published(1, [b"a"])
    flags = [encode(batch, 1, 0).header.flags, encode(batch, 1, 0, synced=True).header.flags]
    assert flags == [0, block.SYNCED]


@pytest.mark.parametrize("payloads", [[b"12345"] * 300, [b"x" * (i % 7) for i in range(300)], [b""] * 299 + [b"last"]])
def test_many_payloads_of_one_size_or_several(payloads: list[bytes]) -> None:
    offsets, data = parse(encode(published(1, payloads), 1, 0).data).binary("payload")
    assert [bytes(data[a:b]) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)] == payloads


def test_times_within_an_hour_are_kept() -> None:
    batch = published(1, [b"a", b"b", b"c"])
    batch.at[0] += 3_599_999_999
    batch.at[2] += 1
    found = parse(encode(batch, 1, 0).data)
    assert found.base == batch.at[1]
    assert found.at().tolist() == batch.at.tolist()


def test_times_far_apart_are_refused() -> None:
    batch = published(1, [b"a", b"b"])
    batch.at[1] += 3_600_000_000
    with pytest.raises(ValueError, match="an hour or more apart"):
        encode(batch, 1, 0)


def test_the_size_of_columns() -> None:
    big = [b"x" * 100] * 1000
    size = len(encode(published(1, big), 1, 0).data)
    assert size < 1000 * 105
    settled = acknowledged(1001, list(range(1, 1001)))
    settled.at = array("q", range(NOW, NOW + 1000))
    assert size + len(encode(settled, 1, 0).data) <= 1000 * 150
    single = len(encode(published(1, [b"x" * 100]), 1, 0).data)
    assert single + len(encode(acknowledged(2, [1]), 1, 0).data) <= 400


def test_columns_are_views_of_the_bytes() -> None:
    data = encode(acknowledged(1, [5, 6, 7]), 1, 0).data
    column = parse(data).column("message")
    assert np.shares_memory(column, np.frombuffer(data, np.uint8))
    assert not column.flags.writeable
