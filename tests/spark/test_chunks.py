"""Chunk boundaries depend only on the rows, not on how they are batched."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flight.flight_requests import CHUNK_BYTES
from penstock.spark.chunks import DIGESTS, chunks, digest
from penstock.spark.errors import SourceError


def batch(sizes: list[int], first: int = 0) -> pa.RecordBatch:
    payloads = pa.array([bytes([(first + i) % 256]) * size for i, size in enumerate(sizes)], pa.binary())
    return pa.record_batch({"payload": payloads, "n": list(range(first, first + len(sizes)))})


def cut(sizes: list[int], cuts: list[int], rows: int, size: int) -> list[list[int]]:
    """The row numbers of each chunk, for rows in batches with these boundaries."""
    edges = sorted({0, len(sizes), *(each for each in cuts if each <= len(sizes))})
    batches = [batch(sizes[a:b], a) for a, b in pairwise(edges)]
    return [chunk.column("n").to_pylist() for chunk in chunks(batches, rows=rows, size=size)]


@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.lists(st.integers(0, 60)),
    st.integers(1, 9),
    st.integers(1, 40),
)
def test_chunks_do_not_depend_on_batches(sizes: list[int], cuts: list[int], rows: int, size: int) -> None:
    whole = cut(sizes, [], rows, size)
    assert cut(sizes, cuts, rows, size) == whole
    assert [n for chunk in whole for n in chunk] == list(range(len(sizes)))
    for chunk in whole:
        assert len(chunk) <= rows
        assert sum(sizes[n] for n in chunk) <= size or len(chunk) == 1


def test_text_is_measured_in_bytes() -> None:
    found = list(chunks([pa.record_batch({"payload": pa.array(["ää", "b", None])})], rows=9, size=4))
    assert [chunk.num_rows for chunk in found] == [1, 2]


def test_no_rows_make_no_chunk() -> None:
    assert list(chunks([])) == list(chunks([batch([])])) == []


def test_a_payload_that_is_too_large() -> None:
    with pytest.raises(SourceError, match=r"at most \d+ can be written"):
        list(chunks([batch([CHUNK_BYTES + 1])]))


def test_digests_depend_on_rows_but_not_on_their_order() -> None:
    whole = pa.record_batch({"payload": ["a", "b", "c"], "priority": [1, 2, None]})
    turned = whole.take(pa.array([2, 0, 1]))
    assert digest(whole) == digest(turned) == sum(digest(whole.slice(at, 1)) for at in range(3)) % DIGESTS
    assert digest(whole.slice(0, 2)) != digest(whole.slice(1, 2))


@pytest.mark.parametrize(
    "other",
    [
        {"payload": ["ab", "c"]},
        {"payload": ["a", "bc"], "queue": ["default/x"] * 2},
        {"payload": ["a", "bc"], "ttl": [None, 1.5]},
        {"payload": ["a", "bc", ""]},
        {"payload": ["a", "a", "bc"]},
    ],
)
def test_other_rows_have_other_digests(other: dict[str, list[object]]) -> None:
    assert digest(pa.record_batch(other)) != digest(pa.record_batch({"payload": ["a", "bc"]}))


def test_text_and_its_bytes_have_the_same_digest() -> None:
    assert digest(pa.record_batch({"payload": ["ä"]})) == digest(pa.record_batch({"payload": ["ä".encode()]}))


def test_digests_of_every_type_that_can_be_written() -> None:
    rows = {"priority": [Decimal(7)], "ttl": [timedelta(hours=1)], "delay": [0.5], "correlation_id": [b"x"]}
    assert 0 < digest(pa.record_batch({"payload": [b"x"], **rows})) < DIGESTS
