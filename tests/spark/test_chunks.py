"""Chunks are cut by their rows alone, however the rows come in."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flight.requests import CHUNK_BYTES
from penstock.spark.chunks import chunks
from penstock.spark.errors import SourceError


def batch(sizes: list[int], first: int = 0) -> pa.RecordBatch:
    payloads = pa.array([bytes([(first + i) % 256]) * size for i, size in enumerate(sizes)], pa.binary())
    return pa.record_batch({"payload": payloads, "n": list(range(first, first + len(sizes)))})


def cut(sizes: list[int], cuts: list[int], rows: int, size: int) -> list[list[int]]:
    """The row numbers of each chunk, for rows that come in batches with these borders."""
    edges = sorted({0, len(sizes), *(each for each in cuts if each <= len(sizes))})
    batches = [batch(sizes[a:b], a) for a, b in pairwise(edges)]
    return [chunk.column("n").to_pylist() for chunk in chunks(batches, rows=rows, size=size)]


@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.lists(st.integers(0, 60)),
    st.integers(1, 9),
    st.integers(1, 40),
)
def test_the_same_however_they_come(sizes: list[int], cuts: list[int], rows: int, size: int) -> None:
    whole = cut(sizes, [], rows, size)
    assert cut(sizes, cuts, rows, size) == whole
    assert [n for chunk in whole for n in chunk] == list(range(len(sizes)))
    for chunk in whole:
        assert len(chunk) <= rows
        assert sum(sizes[n] for n in chunk) <= size or len(chunk) == 1


def test_text_counts_in_bytes() -> None:
    found = list(chunks([pa.record_batch({"payload": pa.array(["ää", "b", None])})], rows=9, size=4))
    assert [chunk.num_rows for chunk in found] == [1, 2]


def test_nothing_makes_no_chunk() -> None:
    assert list(chunks([])) == list(chunks([batch([])])) == []


def test_a_payload_that_is_too_large() -> None:
    with pytest.raises(SourceError, match="is the most that can be written"):
        list(chunks([batch([CHUNK_BYTES + 1])]))
