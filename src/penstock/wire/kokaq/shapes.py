"""Runs of deliveries that look alike: each read with one unpacking, its metadata written with one packing.

A server gives out its messages with the same metadata fields in the same sizes, one after the other. The tags and sizes
of those fields (the *shape*) make everything up to the payload a record of fixed length::

    type … opaque  opcode, outcome  opaque  tag, component, count  (tag, size  value)…  component  size  names
    ------------------------------------------------------------------------------------------------------
    same    own    same             own     same                   same        own      same       own   same

A record whose *same* parts equal those of a delivery that was read field by field is sound as well, since its fields
then lie at the same places and have the same kinds. What does not fit the shape is left to the exact code, and so are
all complaints.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple

from msgspec.structs import astuple

from penstock.wire.kokaq.fields import COMPONENT_STARTS, KNOWN, Metadata, write_component

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_IDENTIFIERS = ("uuid", "request_id")
_TEXTS = ("source", "dead_reason")


class Shape(NamedTuple):
    """How to unpack such a record, and what to find where in it."""

    record: Struct
    #: The parts that are the same in a run.
    same: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    #: The values of a Metadata from a record with ``rest`` behind it.
    values: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    size_at: int

    def rest(self, first: Metadata) -> tuple[Any, ...]:
        """What a Metadata needs beyond a record's own values: its texts are the same in a run, and decoded once."""
        return (None, (), *(getattr(first, name) for name in _TEXTS))


@lru_cache(maxsize=256)
def shape_of(tags_and_sizes: bytes, names: int) -> Shape | None:
    """The shape of deliveries with these fields, which must be sound, and names of together ``names`` bytes.

    None if it has fields that cannot be unpacked like this: unknown ones, or integers of odd widths.
    """
    layout = [">I4sHB9s"]
    same = [0, 2, 4]
    found: dict[str, int] = {}
    at = 5
    for tag, size in zip(tags_and_sizes[::2], tags_and_sizes[1::2], strict=True):
        known = KNOWN.get(tag)
        if known is None or (known.width and (size > known.width or size not in _CODES)):
            return None
        layout.append(f"H{_CODES[size]}" if known.width else f"H{size}s")
        same += [at, at + 1] if known.name in _TEXTS else [at]
        found[known.name] = at + 1
        at += 2
    layout.append(f"6sH{names}s")
    same += [at, at + 2]
    absent, others, *texts = range(at + 3, at + 5 + len(_TEXTS))
    found |= {name: place for name, place in zip(_TEXTS, texts, strict=True) if name in found}
    places = [found.get(known.name, absent) for known in KNOWN.values()]
    return Shape(Struct("".join(layout)), itemgetter(*same), itemgetter(*places, others), at + 1)


class _Form(NamedTuple):
    """How to pack the metadata of which certain fields are there, from its values with ``heads`` behind them."""

    pack: Callable[..., bytes]
    heads: tuple[Any, ...]
    #: What is packed, in order.
    arranged: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    #: The values that must not be None.
    present: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    absent: int
    identifiers: tuple[int, ...]


@lru_cache(maxsize=256)
def _form_of(present: tuple[int, ...]) -> _Form | None:
    """The form of metadata with the fields at these places, or None if one of them can have different sizes."""
    known = tuple(KNOWN.items())
    chosen = [(place, *known[place]) for place in present]
    if any(not each.width and each.name not in _IDENTIFIERS for _, _, each in chosen):
        return None
    layout = ">8s" + "".join(f"H{_CODES[each.width]}" if each.width else "H16s" for _, _, each in chosen)
    heads = [tag << 8 | (each.width or 16) for _, tag, each in chosen]
    behind = len(known) + 1
    order = [behind, *(at for i, place in enumerate(present) for at in (behind + 1 + i, place))]
    return _Form(
        pack=Struct(layout).pack,
        heads=(COMPONENT_STARTS[len(present)], *heads),
        arranged=itemgetter(*order),
        present=itemgetter(len(known), *present),
        absent=len(known) - len(present),
        identifiers=tuple(place for place, _, each in chosen if not each.width),
    )


def write_alike(run: Iterable[Metadata]) -> list[bytes]:
    """The metadata components of a run of deliveries, quickest where all have the same fields."""
    form: _Form | None = None
    written = []
    for metadata in run:
        values = astuple(metadata)
        if form is None or values.count(None) != form.absent or None in form.present(values):
            form = _form_of(tuple(place for place, value in enumerate(values[:-1]) if value is not None))
        written.append(_pack(form, values) or write_component(metadata))
    return written


def _pack(form: _Form | None, values: tuple[Any, ...]) -> bytes | None:
    """The component, or None if the form cannot express these values."""
    if form is None or values[-1]:
        return None
    for place in form.identifiers:
        if len(values[place]) != 16:  # struct would pad or cut it without a word
            return None
    try:
        return form.pack(*form.arranged(values + form.heads))
    except struct.error:
        return None
