"""Where options come from: defaults < TOML file < environment < flags. And errors that say where they came from.

Each layer is a table like the TOML file; the layers are laid over each other, and the result is checked once. Every
value remembers its origin, so that an error can name the file and line, the variable or the flag.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.server.options import Options

PREFIX = "PENSTOCK_"
PROTOCOLS = ("phpmq", "sspq", "kokaq")
_SECTIONS = {name: kind for name, kind in Options.__annotations__.items() if name in ("journal", "limits", "log")}
_FIELDS = {each.name: each for each in msgspec.structs.fields(Options)}


class ConfigurationError(Exception):
    """An option that can't be used. The text says which, where it came from, and what would be right."""


class Layers:
    """The options so far, and where each of them came from."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
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
        lines = _lines_of(text)
        self._lay(self.table, table, "", lambda key: f"{path}{f', line {lines[key]}' if key in lines else ''}")

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Lay the variables that start with ``PENSTOCK_`` over what is there."""
        for variable in sorted(environment):
            if variable.startswith(PREFIX) and variable != f"{PREFIX}CONFIG":
                keys = _keys_of(variable)
                value: Any = _scalar(environment[variable])
                if keys[-1] in PROTOCOLS:
                    value = str(environment[variable]).split()
                self.add_value(keys, value, f"the environment variable {variable}")

    def add_value(self, keys: tuple[str, ...], value: Any, origin: str) -> None:
        """Set one option, named by its path."""
        for key in reversed(keys):
            value = {key: value}
        self._lay(self.table, value, "", lambda key: origin)

    def options(self) -> Options:
        """The options, checked. Raises ConfigurationError."""
        table = dict(self.table)
        for protocol in PROTOCOLS:
            if protocol in table:
                table[protocol] = [
                    self._listener(protocol, each) for each in _as_list(table[protocol]) if each != "off"
                ]
        try:
            return msgspec.convert(table, Options)
        except msgspec.ValidationError as error:
            raise ConfigurationError(self._explain(str(error))) from None

    def _lay(self, under: dict[str, Any], over: Mapping[str, Any], path: str, origin: Any) -> None:
        for key, value in over.items():
            place = f"{path}.{key}" if path else key
            self._origins[place] = origin(place)
            if isinstance(value, dict) and isinstance(under.get(key), dict):
                self._lay(under[key], value, place, origin)
            elif isinstance(value, dict):
                under[key] = {}
                self._lay(under[key], value, place, origin)
            else:
                under[key] = value

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
                    f"{self._origins.get(protocol, protocol)}: {option!r} is not an option of a listener; "
                    f"they follow the address as name=value, as in {address},dialect=32"
                )
            table[key] = text if key in ("dialect", "queue", "namespace") else _scalar(text)
        return table

    def _explain(self, message: str) -> str:
        """Msgspec's message with the origin, and the names that would be right."""
        text, _, place = message.partition(" - at `$.")
        path = place.rstrip("`")
        unknown = re.search(r"unknown field `([^`]*)`", text)
        if unknown:
            parent = re.sub(r"\[.*?\]", "", path) if path else ""
            key = f"{parent}.{unknown[1]}".lstrip(".")
            text = f"there is no option {unknown[1]!r} here; there are: {', '.join(_known_keys(parent))}"
            return self._at(key, text)
        return self._at(path, text[:1].lower() + text[1:])

    def _at(self, path: str, text: str) -> str:
        plain = re.sub(r"\[.*?\]", "", path)
        while plain and plain not in self._origins:
            plain = plain.rpartition(".")[0]
        origin = self._origins.get(plain)
        return f"{f'{origin}: ' if origin else ''}{f'{path}: ' if path else ''}{text}"


def load(config: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Options:
    """All layers, checked. ``flags`` maps a flag to its path and value: ``{"--data": (("data",), "x")}``."""
    layers = Layers()
    file = config or environment.get(f"{PREFIX}CONFIG")
    if file:
        layers.add_file(file)
    layers.add_environment(environment)
    for flag, (keys, value) in flags.items():
        layers.add_value(keys, value, f"the flag {flag}")
    return layers.options()


def _keys_of(variable: str) -> tuple[str, ...]:
    """The option that an environment variable names."""
    name = variable.removeprefix(PREFIX).lower()
    if name in _FIELDS and name not in ("access", "queues", *_SECTIONS):
        return (name,)
    section, _, key = name.partition("_")
    if section in _SECTIONS and key in _known_keys(section):
        return section, key
    known = [f"{PREFIX}{name.upper()}" for name in _FIELDS if name not in ("access", "queues", *_SECTIONS)]
    known += [f"{PREFIX}{section}_{key}".upper() for section in _SECTIONS for key in _known_keys(section)]
    raise ConfigurationError(f"the environment variable {variable} names no option; there are: {', '.join(known)}")


def _known_keys(path: str) -> list[str]:
    """The keys of the table at this path."""
    kind: Any = Options
    for key in path.split(".") if path else ():
        found = {each.name: each.type for each in msgspec.structs.fields(kind)}.get(key)
        if found is None:
            break
        inner = getattr(found, "__args__", None)
        kind = inner[-1] if inner else found
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            break
    return [each.name for each in msgspec.structs.fields(kind)] if isinstance(kind, type) else []


def _lines_of(text: str) -> dict[str, int]:
    """The line of each key of a TOML file, as well as can be told without parsing it again."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?", line)
        key = re.match(r"\s*([A-Za-z0-9_\"/-]+)\s*=", line)
        if header:
            section = header[1].replace('"', "")
            lines.setdefault(section, number)
        elif key:
            name = key[1].strip('"')
            lines[f"{section}.{name}" if section else name] = number
    return lines


def _scalar(text: str) -> Any:
    """A value as TOML would read it; what TOML can't read is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
