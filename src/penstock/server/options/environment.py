"""The ``PENSTOCK_…`` environment variables of a process: options, variables of services, and unknown ones.

Unknown variables are ignored; the log suggests the closest option. They are no error, since a process does not control
its whole environment: in Kubernetes a service named ``penstock…`` adds such variables to every container beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from penstock import compiled

PREFIX = "PENSTOCK_"
#: Read elsewhere: the configuration file, the URL and token of commands, the choice of compiled modules.
_OTHERS = (f"{PREFIX}CONFIG", f"{PREFIX}URL", f"{PREFIX}TOKEN", compiled.VARIABLE)
#: Variables that Kubernetes, and Docker's links before it, set for a service. No option may have such a name.
_SERVICE = re.compile(
    r"PENSTOCK(_[A-Z0-9_]+?)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
#: ``…_PORT`` could be an option, so its value must look like a service's, too.
_SERVICE_PORT = re.compile(r"PENSTOCK(_[A-Z0-9_]+?)?_PORT")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


class Unknown(NamedTuple):
    """A variable that names no option, and the closest one that does, if any is close."""

    variable: str
    nearest: str

    def facts(self) -> dict[str, Any]:
        """Its facts for the log."""
        return {"variable": self.variable, **({"nearest": self.nearest} if self.nearest else {})}

    def __str__(self) -> str:
        nearest = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"the environment variable {self.variable} names no option and is ignored{nearest}"


class Variables(NamedTuple):
    """The variables of the environment by kind."""

    options: list[str]
    services: list[str]
    unknown: list[Unknown]


def classify(environment: Mapping[str, str], options: Sequence[str]) -> Variables:
    """Classify all variables with our prefix. ``options`` are those that name an option."""
    found = Variables([], [], [])
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in _OTHERS:
            continue
        if variable in options:
            found.options.append(variable)
        elif is_of_service(variable, environment[variable]):
            found.services.append(variable)
        else:
            nearest = get_close_matches(variable, [*options, *_OTHERS], n=1, cutoff=0.7)
            found.unknown.append(Unknown(variable, nearest[0] if nearest else ""))
    return found


def is_of_service(variable: str, value: str) -> bool:
    """Whether Kubernetes has set the variable for a service."""
    if _SERVICE.fullmatch(variable):
        return True
    return _SERVICE_PORT.fullmatch(variable) is not None and _SERVICE_URL.match(value) is not None
