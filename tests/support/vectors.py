"""Reads tests/vectors/*.json (the format is in tests/vectors/README.md) into frames and bytes, and back."""

from __future__ import annotations

import json
import types
import typing
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from penstock.wire.kokaq import Metadata, MetadataRun
from support.protocols import CODECS, Codec, Options

FOLDER = Path(__file__).parent.parent / "vectors"


@dataclass(frozen=True)
class Vector:
    """One entry of a vector file."""

    codec: Codec
    name: str
    sender: str
    data: bytes
    frames: tuple[Any, ...]
    encoded: bytes | None
    error: dict[str, Any] | None
    options: Options = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.codec.name}: {self.name}"


def load(section: str) -> list[Vector]:
    """All vectors of one section, "valid" or "rejected", of every protocol that has a file."""
    return [
        _vector(codec, entry)
        for name, codec in CODECS.items()
        for entry in json.loads((FOLDER / f"{name}.json").read_text())[section]
    ]


def build(kind: Any, value: Any) -> Any:
    """Build a value of type ``kind`` from JSON: bytes are hex, frames are objects with their fields."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = [each for each in typing.get_args(kind) if each is not type(None)]
        return None if value is None else build(options[0], value)
    if origin is tuple:
        return tuple(build(typing.get_args(kind)[0], each) for each in value)
    if kind is bytes:
        return bytes.fromhex(value)
    if kind is MetadataRun:
        return MetadataRun.of(build(Metadata, each) for each in value)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{name: build(hints[name], each) for name, each in value.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[value] if isinstance(value, str) else kind(value)
    return value


def _vector(codec: Codec, entry: dict[str, Any]) -> Vector:
    data = _bytes(entry)
    frames = tuple(_frame(codec, each) for each in entry.get("frames", []))
    encodes_to = entry.get("encodes_to", entry)
    return Vector(
        codec=codec,
        name=entry["name"],
        sender=entry["from"],
        data=data,
        frames=frames,
        encoded=None if encodes_to is None else _bytes(encodes_to),
        error=entry.get("error"),
        options=entry.get("options", {}),
    )


def _frame(codec: Codec, entry: dict[str, Any]) -> Any:
    fields = dict(entry)
    return build(codec.frames[fields.pop("frame")], fields)


def _bytes(entry: dict[str, Any]) -> bytes:
    if "text" in entry:
        return "".join(entry["text"]).encode()
    written = entry["hex"]
    return bytes.fromhex("".join(written) if isinstance(written, list) else written)
