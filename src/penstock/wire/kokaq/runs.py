"""The metadata of a run of deliveries: kept as bytes of the wire, and parsed on access.

Most clients need a field or two, so the decoder checks the bytes of the fields and keeps them, instead of making a
:class:`Metadata` for each message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct as Frame

from penstock.wire.kokaq.fields import Metadata, parse_fields, write_fields


class MetadataRun(Frame, frozen=True, gc=False):
    """A sequence of Metadata. ``raw`` holds each component from its field count on, already checked."""

    raw: tuple[bytes, ...]

    @classmethod
    def of(cls, run: Iterable[Metadata]) -> MetadataRun:
        """A run of any metadata. Raises ``ValueError`` for a value that its field cannot hold."""
        return cls(tuple(write_fields(each) for each in run))

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, at: int) -> Metadata:
        return parse_fields(self.raw[at][4:])[0]

    def __iter__(self) -> Iterator[Metadata]:
        return map(self.__getitem__, range(len(self.raw)))
