"""The metadata of a run of deliveries: kept as it stands on the wire, and read when it is asked for.

A client mostly looks at a field or two. So it gets no :class:`Metadata` for each message, but the bytes of its fields,
which were checked, to read where it needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct as Frame

from penstock.wire.kokaq.fields import Metadata, parse_fields, write_fields


class MetadataRun(Frame, frozen=True, gc=False):
    """A sequence of Metadata. ``raw`` has, for each, a component from its field count on; it is trusted to be sound."""

    raw: tuple[bytes, ...]

    @classmethod
    def of(cls, run: Iterable[Metadata]) -> MetadataRun:
        """A run of any metadata. Raises ``ValueError`` for what cannot be expressed."""
        return cls(tuple(write_fields(each) for each in run))

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, at: int) -> Metadata:
        return parse_fields(self.raw[at][4:])[0]

    def __iter__(self) -> Iterator[Metadata]:
        return map(self.__getitem__, range(len(self.raw)))
