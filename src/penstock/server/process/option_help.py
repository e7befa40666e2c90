"""What an option may be, in words: read from the types of ``options``, so that it can't be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from penstock.server.process.options import Options

_ROOT = inspect.type_info(Options)


def steps(path: str) -> list[str]:
    """The keys of a path, indices among them: ``access[1].may`` is access, [1], may."""
    return re.findall(r"\[[^\]]*\]|[^.\[]+", path)


def type_at(keys: list[str]) -> inspect.Type | None:
    """The type of the option at this path, None if there is none."""
    kind: inspect.Type | None = _ROOT
    for key in keys:
        kind = _inside(_plain(kind), key)
    return kind


def _plain(kind: inspect.Type | None) -> inspect.Type | None:
    """Without the None that an option may also be."""
    if isinstance(kind, inspect.UnionType):
        return next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def _inside(kind: inspect.Type | None, key: str) -> inspect.Type | None:
    if isinstance(kind, inspect.StructType):
        return next((each.type for each in kind.fields if each.name == key), None)
    if isinstance(kind, inspect.ListType):
        return kind.item_type
    if isinstance(kind, inspect.DictType):
        return kind.value_type
    return None


def is_text(keys: list[str]) -> bool:
    """Whether the option is text, so that what an environment variable says is taken as it is."""
    return isinstance(_plain(type_at(keys)), inspect.StrType | inspect.LiteralType)


def known_keys(keys: list[str]) -> list[str]:
    """The keys of the table at this path."""
    kind = _plain(type_at(keys))
    return [each.name for each in kind.fields] if isinstance(kind, inspect.StructType) else []


def required_keys(keys: list[str]) -> list[str]:
    """The keys that the table at this path can't be without."""
    kind = _plain(type_at(keys))
    return [each.name for each in kind.fields if each.required] if isinstance(kind, inspect.StructType) else []


def accepted(keys: list[str]) -> str:
    """What the option at this path may be: ``one of "commit", "interval", "os"``, ``a whole number from 1 up``."""
    return _words(_plain(type_at(keys)))


def _words(kind: inspect.Type | None) -> str:
    match kind:
        case inspect.LiteralType(values):
            return "one of " + ", ".join(f'"{each}"' for each in values)
        case inspect.IntType():
            return f"a whole number{_range(kind)}"
        case inspect.FloatType():
            return f"a number{_range(kind)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "text"
        case inspect.ListType(item):
            return f"a list, each item {_words(item)}"
        case inspect.StructType(_, fields):
            return f"a table of {', '.join(each.name for each in fields)}"
        case _:
            return "a table"


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.gt is not None and isinstance(kind, inspect.FloatType):
        return f" above {kind.gt:g}"
    least = kind.ge if kind.gt is None else kind.gt + 1
    if least is None:
        return ""
    return f" from {least:g} up" if kind.le is None else f" from {least:g} to {kind.le:,.0f}".replace(",", "")


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value of an options table with its path, in the order of its definition."""
    if isinstance(value, msgspec.Struct):
        for each in value.__struct_fields__:
            yield from flat(getattr(value, each), f"{path}.{each}" if path else each)
    elif isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        for index, each in enumerate(value):
            yield from flat(each, f"{path}[{index}]")
    elif isinstance(value, dict) and value:
        for key, each in value.items():
            yield from flat(each, f'{path}["{key}"]')
    else:
        yield path, value
