"""Layers of options: defaults < TOML file < environment < flags.

Each layer is a table like the TOML file. The layers are merged, and the result is checked once (``option_tree``). Each
value keeps its origin, so that errors name the file and line, the variable or the flag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.companions import bounded_toml
from penstock.protocols import protocols
from penstock.server.options.broker_options import BrokerOptions, FlightListener, HttpListener
from penstock.server.options.environment import PREFIX, Variables, classify
from penstock.server.options.listener_options import ListenOptions
from penstock.server.options.option_tree import ROOT, OptionPath, check, is_text, known_keys
from penstock.server.options.toml_lines import lines_of

DEFAULT = "default"
#: Listeners with a companion process: one of each at most.
ENDPOINTS: dict[str, type[ListenOptions]] = {"flight": FlightListener, "http": HttpListener}
#: Tables, for which there is no environment variable.
_TABLES = ("access", "queues", "journal", "limits", "log", "traces")
_SECTIONS = ("journal", "limits", "log", "traces", *ENDPOINTS)


class ConfigurationError(Exception):
    """Problems of options, each with the value's origin and advice: the first as text, the others as notes."""


class Layers:
    """Merged options, and the origin of each."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        #: The environment variables by kind.
        self.variables = Variables([], [], [])
        #: The origin of each key, tables and lists included.
        self._origins: dict[OptionPath, str] = {}

    def add_file(self, path: str) -> None:
        """Add the layer of a TOML file."""
        try:
            text = _read(path)
            table = bounded_toml.parse(text)
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror or error}") from None
        except ValueError as error:
            raise ConfigurationError(f"{path}: {error}") from None
        self._merge(self.table, table, ROOT, path)
        self._origins |= {option: f"{path}, line {line}" for option, line in lines_of(text).items()}

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Add the layer of environment variables. Those that name no option are in ``variables``."""
        self.variables = classify(environment, variables())
        for variable in self.variables.options:
            path = _path_of(variable)
            text = environment[variable]
            value = text.split() if path[-1] in protocols() else _value(text, path)
            self.add_value(path, value, f"the environment variable {variable}")

    def add_value(self, path: tuple[str | int, ...], value: Any, origin: str) -> None:
        """Set one option."""
        for key in reversed(path):
            value = {key: value}
        self._merge(self.table, value, ROOT, origin)

    def options(self) -> BrokerOptions:
        """The options, checked. Raises ConfigurationError."""
        options, problems = check(self._spelled_out())
        if options is not None:
            return options
        first, *others = (self._located(*problem) for problem in problems)
        error = ConfigurationError(first)
        for each in others:
            error.add_note(each)
        raise error

    def origin(self, path: OptionPath) -> str:
        """The origin of the value at a path: a file and line, a variable, a flag, or ``default``."""
        value: Any = self._spelled_out()
        try:
            for step in path:
                value = value[step]
        except (KeyError, IndexError):
            return DEFAULT
        return self._nearest(path)

    def _nearest(self, path: OptionPath) -> str:
        """The origin of the value at a path, or of the closest table or list around it."""
        prefixes = (OptionPath(path[:end]) for end in range(len(path), 0, -1))
        return next((self._origins[each] for each in prefixes if each in self._origins), DEFAULT)

    def _spelled_out(self) -> dict[str, Any]:
        """The merged table, with every listener as a table."""
        table = dict(self.table)
        for protocol in protocols():
            if protocol in table:
                listeners = [each for each in _as_list(table[protocol]) if each != "off"]
                table[protocol] = [self._listener(protocol, each) for each in listeners]
        for endpoint in ENDPOINTS:
            if endpoint in table:
                value = table[endpoint]
                table[endpoint] = None if value == "off" else value
        return table

    def _merge(self, under: dict[str, Any], over: Mapping[str, Any], path: OptionPath, origin: str) -> None:
        for key, value in over.items():
            place = path / key
            endpoint = path == ROOT and key in ENDPOINTS
            if endpoint and under.get(key) == "off" and isinstance(value, dict) and "address" not in value:
                continue  # an option of an endpoint that is off does not switch it on
            self._origins[place] = origin
            if endpoint and value != "off":
                value = self._listener(key, value)  # noqa: PLW2901 - and its other options stay
            if isinstance(value, dict):
                if not isinstance(under.get(key), dict):
                    under[key] = {}
                self._merge(under[key], value, place, origin)
            else:
                replaced, under[key] = under.get(key), value
                if not isinstance(replaced, dict | list):
                    continue
                for old in [each for each in self._origins if len(each) > len(place) and each[: len(place)] == place]:
                    del self._origins[old]

    def _listener(self, protocol: str, value: Any) -> Any:
        """Parse a listener given as text: the address, then options after commas. Values may contain commas."""
        if not isinstance(value, str):
            return value
        address, comma, rest = value.partition(",")
        table: dict[str, Any] = {"address": address}
        for option in _OPTION.split(rest) if comma else ():
            key, equals, text = option.partition("=")
            if not equals:
                reason = f"{option!r} is not an option of a listener; they follow the address as name=value, as in"
                raise ConfigurationError(self._located(ROOT / protocol, f"{reason} {address},{_example(protocol)}"))
            path = ROOT / protocol / key if protocol in ENDPOINTS else ROOT / protocol / 0 / key
            table[key] = _value(text, path)
        return table

    def _located(self, path: OptionPath, text: str) -> str:
        """A problem's text after its origin and path."""
        origin = self._nearest(path)
        return ": ".join([*([origin] if origin != DEFAULT else []), *([str(path)] if path else []), text])


def layers(config: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Layers:
    """Merge all layers. ``flags`` maps a flag to its path and value: ``{"--data": (("data",), "x")}``."""
    found = Layers()
    file = config or environment.get(f"{PREFIX}CONFIG")
    if file:
        found.add_file(file)
    found.add_environment(environment)
    for flag, (keys, value) in flags.items():
        found.add_value(keys, value, f"the flag {flag}")
    return found


def load(config: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> BrokerOptions:
    """Merge and check all layers: see :func:`layers`. Raises ConfigurationError."""
    return layers(config, environment, flags).options()


def variables() -> list[str]:
    """The environment variables that name an option."""
    names = [name for name in known_keys(ROOT) if name not in _TABLES]
    names += [f"{section}_{key}" for section in _SECTIONS for key in known_keys(ROOT / section)]
    return [f"{PREFIX}{name.upper()}" for name in names]


#: A comma before another option.
_OPTION = re.compile(r",(?=\w+=)")


def _example(listener: str) -> str:
    """An example of a listener's option."""
    kind: type[ListenOptions] = ENDPOINTS.get(listener) or protocols()[listener].part("listener")
    return kind.example


def _path_of(variable: str) -> OptionPath:
    """The option of an environment variable."""
    name = variable.removeprefix(PREFIX).lower()
    section, _, key = name.partition("_")
    return ROOT / section / key if key and section in _SECTIONS else ROOT / name


def _value(text: str, path: OptionPath) -> Any:
    """Parse a value like TOML, unless the option is text. A value that is not TOML is text."""
    if is_text(path):
        return text
    try:
        return bounded_toml.parse(f"value = {text}")["value"]
    except ValueError:
        return text


def _read(path: str) -> str:
    """The text of a file, up to the limit of the parser."""
    with Path(path).open(encoding="utf-8") as file:
        return file.read(bounded_toml.TEXT_BYTES + 1)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
