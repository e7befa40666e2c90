"""Batches for the journal's tests: made by hand, or at random by Hypothesis."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from hypothesis import strategies as st

from penstock.schema import COLUMNS, MESSAGE_KINDS, Kind, Rows

NOW = 1_750_000_000_000_000

#: The values that a column's type can hold.
RANGES = {"B": (0, 2**8 - 1), "H": (0, 2**16 - 1), "I": (0, 2**32 - 1), "q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1)}


@dataclass
class Rowset:
    """A batch as the engine would gather it."""

    first: int
    kinds: bytearray
    at: array[int]
    queues: array[int]
    source: array[int]
    sources: list[bytes] = field(default_factory=list)
    columns: dict[str, array[int] | list[bytes]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.first + len(self.kinds)


def published(first: int, payloads: list[bytes], *, queue: int = 1, at: int = NOW) -> Rowset:
    """Messages that were published by one peer at one moment."""
    rows = len(payloads)
    return Rowset(
        first,
        bytearray([Kind.PUBLISHED] * rows),
        array("q", [at] * rows),
        array("I", [queue] * rows),
        array("H", [0] * rows),
        [b"sspq 127.0.0.1:4000"],
        {"payload": payloads},
    )


def acknowledged(first: int, messages: list[int], *, queue: int = 1, at: int = NOW) -> Rowset:
    rows = len(messages)
    return Rowset(
        first,
        bytearray([Kind.ACKNOWLEDGED] * rows),
        array("q", [at] * rows),
        array("I", [queue] * rows),
        array("H", [0] * rows),
        [b"sspq 127.0.0.1:4000"],
        {
            "message": array("Q", messages),
            "deliveries": array("I", [1] * rows),
            "delivered_at": array("q", [at] * rows),
        },
    )


@st.composite
def batches(draw: st.DrawFn, *, first: int | None = None, most: int = 12) -> Rowset:
    """Any batch: every column may be unused, all default, constant or varied."""
    kinds = bytearray(draw(st.lists(st.sampled_from(list(Kind)), min_size=1, max_size=most)))
    rows = len(kinds)
    messages = sum(kind in MESSAGE_KINDS for kind in kinds)
    sources = draw(st.lists(st.binary(max_size=20), max_size=3))

    def ints(code: str, size: int, low: int, high: int) -> array[int]:
        value = st.integers(low, high)
        if draw(st.booleans()):
            return array(code, [draw(value)] * size)
        return array(code, draw(st.lists(value, min_size=size, max_size=size)))

    columns: dict[str, array[int] | list[bytes]] = {}
    for column in COLUMNS:
        if column.rows is Rows.ALL or draw(st.integers(0, 2)):
            continue
        size = messages if column.rows is Rows.MESSAGES else rows - messages
        if column.type == "binary":
            columns[column.name] = draw(st.lists(st.binary(max_size=30), min_size=size, max_size=size))
        elif draw(st.booleans()):
            columns[column.name] = array(column.type, [column.default] * size)
        else:
            columns[column.name] = ints(column.type, size, *RANGES[column.type])
    return Rowset(
        draw(st.integers(1, 2**63)) if first is None else first,
        kinds,
        ints("q", rows, NOW, NOW + 3_599_999_999),
        ints("I", rows, *RANGES["I"]),
        ints("H", rows, 0, max(len(sources) - 1, 0)),
        sources,
        columns,
    )
