"""The options as a tree of types: the type at a path, whether a value fits, and which values would.

A table is checked value by value along the types of ``broker_options``, so that each problem has its path. Msgspec
converts the single values; the texts of errors come from the types.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec import inspect, structs

from penstock.server.options.broker_options import BrokerOptions
from penstock.server.options.listener_options import ListenOptions, OptionError


class OptionPath(tuple[str | int, ...]):
    """The keys and indices that lead to an option: ``access[1].may``, ``queues["shop/orders"].max_depth``."""

    __slots__ = ()

    def __truediv__(self, step: str | int) -> OptionPath:
        return OptionPath((*self, step))

    def __str__(self) -> str:
        return "".join(self._steps()).removeprefix(".")

    def _steps(self) -> Iterator[str]:
        for at, step in enumerate(self):
            if isinstance(step, int):
                yield f"[{step}]"
            else:  # a queue's name has a slash, and may have dots
                yield f'["{step}"]' if self[:at] == ("queues",) else f".{step}"


ROOT = OptionPath()


class OptionProblem(NamedTuple):
    """A problem of an option, and the values that would fit."""

    path: OptionPath
    text: str


def check(table: dict[str, Any]) -> tuple[BrokerOptions | None, list[OptionProblem]]:
    """The options of a table, or all its problems."""
    problems: list[OptionProblem] = []
    options = _convert(table, BrokerOptions, ROOT, problems)
    return (None if problems else options), problems


def _convert(value: Any, kind: Any, path: OptionPath, problems: list[OptionProblem]) -> Any:
    """Convert a value to its type. If problems are added, the result is meaningless."""
    plain = _plain(kind)
    if _is_table(plain) and isinstance(value, dict):
        return _convert_table(value, plain, path, problems)
    if get_origin(plain) is list and isinstance(value, list):
        return [_convert(each, get_args(plain)[0], path / at, problems) for at, each in enumerate(value)]
    if get_origin(plain) is dict and isinstance(value, dict):
        return {key: _convert(each, get_args(plain)[1], path / key, problems) for key, each in value.items()}
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        problems.append(OptionProblem(path, f"{_shown(value)} is not accepted; it is {_words(_info(plain))}"))
        return None


def _convert_table(value: dict[str, Any], kind: Any, path: OptionPath, problems: list[OptionProblem]) -> Any:
    fields = {each.name: each for each in structs.fields(kind)}
    needed = [each.name for each in fields.values() if each.required]
    found = [
        OptionProblem(path / key, f"there is no such option; there are: {', '.join(fields)}")
        for key in value
        if key not in fields
    ]
    found += [
        OptionProblem(path, f"{name} is missing; what must be there: {', '.join(needed)}")
        for name in needed
        if name not in value
    ]
    given = {
        name: _convert(value[name], each.type, path / name, found) for name, each in fields.items() if name in value
    }
    problems += found
    return None if found else _built(kind, given, path, problems)


def _built(kind: Any, given: dict[str, Any], path: OptionPath, problems: list[OptionProblem]) -> Any:
    """Build a table, which checks its values against each other."""
    try:
        return kind(**given)
    except OptionError as error:
        problems.append(OptionProblem(OptionPath((*path, *error.path)), str(error)))
    except ValueError as error:
        problems.append(OptionProblem(path, str(error)))
    return None


def known_keys(path: OptionPath) -> list[str]:
    """The keys of the table at this path."""
    kind = _type_at(path)
    return [each.name for each in structs.fields(kind)] if _is_table(kind) else []


def is_text(path: OptionPath) -> bool:
    """Whether the option is text, or can be: then an environment variable's value is taken literally."""
    kind = _type_at(path)
    if _is_table(kind):
        return issubclass(kind, ListenOptions)
    return kind is not None and isinstance(_info(kind), inspect.StrType | inspect.LiteralType)


def flat(value: Any, path: OptionPath = ROOT) -> Iterator[tuple[OptionPath, Any]]:
    """Every single value of an options table with its path, in the order of its definition."""
    if isinstance(value, msgspec.Struct):
        for each in value.__struct_fields__:
            yield from flat(getattr(value, each), path / each)
    elif isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        for index, each in enumerate(value):
            yield from flat(each, path / index)
    elif isinstance(value, dict) and value:
        for key, each in value.items():
            yield from flat(each, path / key)
    else:
        yield path, value


def _type_at(path: OptionPath) -> Any:
    """The type of the option at this path, None if there is none."""
    kind: Any = BrokerOptions
    for step in path:
        kind = _plain(_inside(kind, step))
    return kind


def _inside(kind: Any, step: str | int) -> Any:
    if _is_table(kind):
        return next((each.type for each in structs.fields(kind) if each.name == step), None)
    return get_args(kind)[-1] if get_origin(kind) in (list, dict) else None


def _plain(kind: Any) -> Any:
    """The type without ``None``."""
    others = [each for each in get_args(kind) if each is not NoneType]
    return others[0] if len(others) < len(get_args(kind)) else kind


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _info(kind: Any) -> inspect.Type:
    """Msgspec's description of a type, without title and description."""
    info = inspect.type_info(kind)
    return info.type if isinstance(info, inspect.Metadata) else info


def _shown(value: Any) -> str:
    """A wrong value in TOML's syntax."""
    return msgspec.json.encode(value).decode() if not isinstance(value, dict | list) else "this value"


def _words(kind: inspect.Type) -> str:
    """The values of a type in words: ``one of "commit", "interval", "os"``, ``a whole number from 1 up``."""
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
    return f" from {least:g} up" if kind.le is None else f" from {least:g} to {int(kind.le)}"
