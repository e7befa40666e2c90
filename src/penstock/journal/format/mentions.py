"""Finds the blocks with events about one message by searching for its position, not block by block.

Journals of small commits have a block for every event or two, and decoding a block takes Python microseconds. So the
bytes are searched as an array of words. Few words equal the position; for those, the enclosing blocks are computed, and
whether the words lie in the column ``message``: with numpy, for all blocks at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.journal.format.block import HEADER_SIZE, MAGIC, plan
from penstock.schema import COLUMN

_MAGIC = int.from_bytes(MAGIC, "little")
_MESSAGE = COLUMN["message"].id
#: The fields of a block's header, in words of 4 and of 8 bytes.
_LENGTH, _EVENTS, _MESSAGES, _SOURCES = 2, 12, 13, 14
_PRESENT, _CONSTANT = 4, 5

Ints = npt.NDArray[np.int64]


def mentions(data: memoryview, start: int, stop: int, message: int) -> list[int]:
    """The offsets of the blocks with rows about a message, between two boundaries of blocks.

    Damaged bytes may hide some blocks; reading the range reports the damage.
    """
    long = np.frombuffer(data, "<i8", (stop - start) // 8, start)
    short = np.frombuffer(data, "<u4", (stop - start) // 4, start)
    found = np.flatnonzero(long == message)
    if not found.size:
        return []
    heads = _heads(short)
    owners = np.searchsorted(heads, found, "right") - 1
    named = np.unique(owners)
    low, high = _columns(long, short, heads[named])
    at = np.searchsorted(named, owners)
    right = (found >= low[at]) & (found < high[at])
    return [start + 8 * head for head in heads[np.unique(owners[right])].tolist()]


def _heads(short: npt.NDArray[np.uint32]) -> Ints:
    """Where all blocks begin, in words of 8 bytes. A payload may contain the magic too: the lengths decide."""
    heads = np.flatnonzero(short[::2] == _MAGIC).astype(np.int64)
    ends = heads + _of(short, 2 * heads + _LENGTH) // 8
    if heads.size and heads[0] == 0 and np.array_equal(ends[:-1], heads[1:]):
        return heads
    walked, at, end = [0], 0, len(short) // 2
    after = dict(zip(heads.tolist(), ends.tolist(), strict=True))
    while at < (at := after.get(at, end)) < end:
        walked.append(at)
    return np.array(walked, np.int64)


def _columns(long: npt.NDArray[np.int64], short: npt.NDArray[np.uint32], heads: Ints) -> tuple[Ints, Ints]:
    """The first word of the column ``message`` in each block, and the word after it; equal if it is absent."""
    low, high = np.zeros_like(heads), np.zeros_like(heads)
    present, constant = _of(long, heads + _PRESENT), _of(long, heads + _CONSTANT)
    for columns in np.unique(present[present >> _MESSAGE & 1 == 1]).tolist():
        same = present == columns
        for one in np.unique(constant[same]).tolist():
            chosen = np.flatnonzero(same & (constant == one))
            low[chosen], high[chosen] = _places(short, heads[chosen], columns, one)
    return low, high


def _places(short: npt.NDArray[np.uint32], heads: Ints, present: int, constant: int) -> tuple[Ints, Ints]:
    """The same for blocks that have the same columns."""
    events, messages = _of(short, 2 * heads + _EVENTS), _of(short, 2 * heads + _MESSAGES)
    rows = (np.ones_like(events), events, messages, events - messages)
    sources = _of(short, 2 * heads + _SOURCES)
    place = 8 * heads + HEADER_SIZE
    place = np.where(sources > 0, _after_binary(short, place, sources), place)
    for name, sort, width in plan(present, constant):
        if name == "message":
            return place // 8, place // 8 + rows[sort]
        place = place + (width * rows[sort] + 7 & ~7) if width else _after_binary(short, place, rows[sort])
    raise AssertionError("the column is present")


def _after_binary(short: npt.NDArray[np.uint32], place: Ints, rows: Ints) -> Ints:
    size = _of(short, place // 4 + rows)
    after: Ints = place + (4 * (rows + 1) + 7 & ~7) + (size + 7 & ~7)
    return after


def _of(words: npt.NDArray[np.integer[Any]], places: Ints) -> Ints:
    """The words at these places; 0 for places after the end, which only damaged bytes refer to."""
    inside = np.clip(places, 0, len(words) - 1)
    found: Ints = np.where(inside == places, words[inside], 0).astype(np.int64)
    return found
