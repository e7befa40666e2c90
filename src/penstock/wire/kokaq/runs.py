"""The metadata of a run of deliveries: kept as it stands on the wire, and read when it is asked for.

A server has what it tells of its messages in columns (their IDs, their delivery counts, …), and a client mostly looks
at a field or two. So neither side makes a :class:`Metadata` for each message: a server's columns are packed at once,
and a client gets the bytes of each message's fields, which were checked, to read where it needs them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from operator import countOf
from typing import Any

from msgspec import Struct as Frame

from penstock.wire.kokaq.fields import KNOWN, TAGS, Metadata, parse_fields, write_fields

_INTEGERS = {4: "I", 8: "Q"}
_IDENTIFIERS = ("uuid", "request_id")


class MetadataRun(Frame, frozen=True, gc=False):
    """A sequence of Metadata. ``raw`` has, for each, a component from its field count on; it is trusted to be sound."""

    raw: tuple[bytes, ...]

    @classmethod
    def of(cls, run: Iterable[Metadata]) -> MetadataRun:
        """A run of any metadata. Raises ``ValueError`` for what cannot be expressed."""
        return cls(tuple(write_fields(each) for each in run))

    @classmethod
    def columns(cls, **columns: Sequence[Any]) -> MetadataRun:
        """A run from one column for each field; None where a message does not have it.

        Quickest where every message has all the fields, and these are integers and identifiers. Raises ``ValueError``
        as :meth:`of` does, and for columns that are not equally long.
        """
        if len(set(map(len, columns.values()))) > 1:
            raise ValueError("the columns of a run are equally long")
        packed = _pack(columns)
        if packed is None:
            rows = zip(*columns.values(), strict=True)
            return cls.of(Metadata(**dict(zip(columns, row, strict=True))) for row in rows)
        return cls(packed)

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, at: int) -> Metadata:
        return parse_fields(self.raw[at][4:])[0]

    def __iter__(self) -> Iterator[Metadata]:
        return map(self.__getitem__, range(len(self.raw)))


def _pack(columns: dict[str, Sequence[Any]]) -> tuple[bytes, ...] | None:
    """The columns row by row, or None if they cannot be packed like this: the slow way then finds out what is wrong."""
    names = tuple(sorted(columns, key=TAGS.__getitem__)) if columns.keys() <= TAGS.keys() else ()
    packer = _packer(names)
    if packer is None:
        return None
    for name in _IDENTIFIERS:
        if name in columns and (None in columns[name] or countOf(map(len, columns[name]), 16) != len(columns[name])):
            return None  # struct would pad or cut it without a word
    pack, heads = packer
    arguments: list[Iterable[Any]] = [repeat(len(names))]
    for head, name in zip(heads, names, strict=True):
        arguments += [repeat(head), columns[name]]
    try:
        return tuple(map(pack, *arguments))
    except struct.error:
        return None


@lru_cache(maxsize=256)
def _packer(names: tuple[str, ...]) -> tuple[Callable[..., bytes], tuple[int, ...]] | None:
    """What packs a field count and these fields, and each field's tag and size; None if one has no fixed size."""
    layout, heads = ">I", []
    for name in names:
        known = KNOWN[TAGS[name]]
        if not known.width and name not in _IDENTIFIERS:
            return None
        layout += f"H{_INTEGERS[known.width]}" if known.width else "H16s"
        heads.append(TAGS[name] << 8 | (known.width or 16))
    return (struct.Struct(layout).pack, tuple(heads)) if names else None
