"""Where options come from: defaults < TOML file < environment < flags. And errors that say where they came from.

Each layer is a table like the TOML file; the layers are laid over each other, and the result is checked once. Every
value remembers its origin, so that an error can name the file and line, the variable or the flag.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.protocols import protocols
from penstock.server.process.environment import PREFIX, Sorted, sort_out
from penstock.server.process.listener_options import BadOption, Listener
from penstock.server.process.option_help import accepted, is_text, known_keys, required_keys, steps
from penstock.server.process.options import FlightListener, Options, QueueOptions

DEFAULT = "default"
#: What an environment variable can't say: it would have to be a table.
_TABLES = ("access", "queues", "journal", "limits", "log")
_SECTIONS = ("journal", "limits", "log")


class ConfigurationError(Exception):
    """An option that can't be used. The text says which, where it came from, and what would be right."""


class Layers:
    """The options so far, and where each of them came from."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        #: The variables of the environment, by what they are.
        self.variables = Sorted([], [], [])
        #: Where each key came from, tables and lists included.
        self._origins: dict[str, str] = {}

    def add_file(self, path: str) -> None:
        """Lay a TOML file over what is there."""
        try:
            text = Path(path).read_text(encoding="utf-8")
            table = tomllib.loads(text)
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror or error}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: {error}") from None
        lines = dict(_lines_of(text))
        self._lay(self.table, table, "", lambda key: f"{path}, line {lines[key]}" if key in lines else path)
        self._origins |= {key: f"{path}, line {line}" for key, line in lines.items() if "[" in key}

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Lay the variables that name an option over what is there. See ``variables`` for the others."""
        self.variables = sort_out(environment, variables())
        for variable in self.variables.options:
            keys = _keys_of(variable)
            text = environment[variable]
            value = text.split() if keys[-1] in protocols() else _value(text, list(keys))
            self.add_value(keys, value, f"the environment variable {variable}")

    def add_value(self, keys: tuple[str, ...], value: Any, origin: str) -> None:
        """Set one option, named by its path."""
        for key in reversed(keys):
            value = {key: value}
        self._lay(self.table, value, "", lambda key: origin)

    def options(self) -> Options:
        """The options, checked. Raises ConfigurationError."""
        table = self._spelled_out()
        try:
            return msgspec.convert(table, Options)
        except msgspec.ValidationError as error:
            raise ConfigurationError(self._explain(error, table)) from None

    def origin(self, path: str) -> str:
        """Where the value at this path came from: a file and line, a variable, a flag, or ``default``."""
        try:
            _at(self._spelled_out(), steps(path))
        except (KeyError, IndexError):
            return DEFAULT
        return self._nearest(path)

    def _nearest(self, path: str) -> str:
        """Where the value at this path came from, or the table or list that it is in, or would be in."""
        keys = steps(path)
        while keys:
            found = self._origins.get(_joined(keys))
            if found is not None:
                return found
            keys.pop()
        return DEFAULT

    def _spelled_out(self) -> dict[str, Any]:
        """The table, with every listener as a table."""
        table = dict(self.table)
        for protocol in protocols():
            if protocol in table:
                listeners = [each for each in _as_list(table[protocol]) if each != "off"]
                table[protocol] = [self._listener(protocol, each) for each in listeners]
        if "flight" in table:
            table["flight"] = None if table["flight"] == "off" else self._listener("flight", table["flight"])
        return table

    def _lay(self, under: dict[str, Any], over: Mapping[str, Any], path: str, origin: Callable[[str], str]) -> None:
        for key, value in over.items():
            place = _below(path, key)
            self._origins[place] = origin(place)
            if isinstance(value, dict):
                if not isinstance(under.get(key), dict):
                    under[key] = {}
                self._lay(under[key], value, place, origin)
            else:
                under[key] = value
                for old in [each for each in self._origins if each.startswith(f"{place}[")]:
                    del self._origins[old]

    def _listener(self, protocol: str, value: Any) -> Any:
        """A listener given as text: the address, then options after commas."""
        if not isinstance(value, str):
            return value
        address, *rest = value.split(",")
        table: dict[str, Any] = {"address": address}
        for option in rest:
            key, equals, text = option.partition("=")
            if not equals:
                raise ConfigurationError(
                    f"{self._nearest(protocol)}: {protocol}: {option!r} is not an option of a listener; "
                    f"they follow the address as name=value, as in {address},{_example(protocol)}"
                )
            table[key] = _value(text, [protocol, key] if protocol == "flight" else [protocol, "[0]", key])
        return table

    def _explain(self, error: msgspec.ValidationError, table: dict[str, Any]) -> str:
        """Msgspec's message with the origin, and what would be right."""
        text, _, place = str(error).partition(" - at `$.")
        keys = steps(_named(place.rstrip("`"), table))
        cause = error.__cause__
        if isinstance(cause, BadOption):
            return self._told(keys + steps(cause.path), str(cause))
        if cause is not None:
            return self._told(keys, text)
        if unknown := re.search(r"unknown field `([^`]*)`", text):
            known = ", ".join(known_keys(keys))
            return self._told([*keys, unknown[1]], f"there is no such option; there are: {known}")
        if missing := re.search(r"missing required field `([^`]*)`", text):
            needs = ", ".join(required_keys(keys))
            return self._told(keys, f"{missing[1]} is missing; what must be there: {needs}")
        return self._told(keys, f"{_shown(table, keys)} is not accepted; it is {accepted(keys)}")

    def _told(self, keys: list[str], text: str) -> str:
        path = _joined(keys)
        origin = self._nearest(path)
        return f"{f'{origin}: ' if origin != DEFAULT else ''}{path}{': ' if path else ''}{text}"


def layers(config: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Layers:
    """All layers. ``flags`` maps a flag to its path and value: ``{"--data": (("data",), "x")}``."""
    found = Layers()
    file = config or environment.get(f"{PREFIX}CONFIG")
    if file:
        found.add_file(file)
    found.add_environment(environment)
    for flag, (keys, value) in flags.items():
        found.add_value(keys, value, f"the flag {flag}")
    return found


def load(config: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Options:
    """All layers, checked: see :func:`layers`. Raises ConfigurationError."""
    return layers(config, environment, flags).options()


def variables() -> list[str]:
    """The environment variables that name an option."""
    names = [name for name in known_keys([]) if name not in _TABLES]
    names += [f"{section}_{key}" for section in _SECTIONS for key in known_keys([section])]
    return [f"{PREFIX}{name.upper()}" for name in names]


def _example(listener: str) -> str:
    """An option that a listener of this protocol has."""
    kind: type[Listener] = FlightListener if listener == "flight" else protocols()[listener].part("listener")
    return kind.example


def _keys_of(variable: str) -> tuple[str, ...]:
    """The option that an environment variable names."""
    name = variable.removeprefix(PREFIX).lower()
    section, _, key = name.partition("_")
    return (section, key) if section in _SECTIONS else (name,)


def _below(path: str, key: str) -> str:
    """The path of a key in the table at ``path``. A queue's name has a slash, and dots perhaps, so it is quoted."""
    if path == "queues":
        return f'queues["{key}"]'
    return f"{path}.{key}" if path else key


def _joined(keys: list[str]) -> str:
    return "".join(key if key.startswith("[") or not at else f".{key}" for at, key in enumerate(keys))


def _named(path: str, table: dict[str, Any]) -> str:
    """The path with the name of the queue at fault, which msgspec leaves out."""
    if not path.startswith("queues[...]"):
        return path
    for name, rules in table["queues"].items():
        try:
            msgspec.convert(rules, QueueOptions)
        except msgspec.ValidationError:
            return path.replace("[...]", f'["{name}"]', 1)
    return path


def _at(table: Any, keys: list[str]) -> Any:
    """The value at this path. Raises KeyError or IndexError."""
    for key in keys:
        inner = key[1:-1].strip('"') if key.startswith("[") else key
        table = table[int(inner)] if isinstance(table, list) else table[inner]
    return table


def _shown(table: dict[str, Any], keys: list[str]) -> str:
    """The value that is at fault, as TOML would have it."""
    value = _at(table, keys)
    return msgspec.json.encode(value).decode() if not isinstance(value, dict | list) else "what is there"


def _lines_of(text: str) -> Iterator[tuple[str, int]]:
    """Each key of a TOML file and its line, as well as can be told without parsing it again."""
    section = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?", line)
        key = re.match(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\")\s*=", line)
        if header:
            section = re.sub(r'^queues\.("?)([^"]*)\1$', r'queues["\2"]', header[2])
            if header[1] == "[[":
                counts[section] = counts.get(section, -1) + 1
                yield section, number
                section = f"{section}[{counts[section]}]"
            yield section, number
        elif key:
            yield _below(section, key[1].strip('"')), number


def _value(text: str, keys: list[str]) -> Any:
    """A value as TOML would read it, if the option is not text anyway. What TOML can't read is text."""
    if is_text(keys) or keys == ["flight"]:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
