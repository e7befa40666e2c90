"""The ``PENSTOCK_…`` variables of a process: which of them are options, which belong to others, and which to nobody.

A variable that names no option is told and passed over: the environment of a process is not all its owner's. In
Kubernetes a service whose name begins with ``penstock`` puts variables of that name into every container beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from penstock import compiled

PREFIX = "PENSTOCK_"
#: Read elsewhere: the file of the broker's options, and where commands find a broker and their token.
_OTHERS = (f"{PREFIX}CONFIG", f"{PREFIX}URL", f"{PREFIX}TOKEN", compiled.VARIABLE)
#: What Kubernetes, and Docker's links before it, tell of a service. No option may ever have a name like these.
_SERVICE = re.compile(
    r"PENSTOCK(_[A-Z0-9_]+?)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
#: The variable with a common name has an uncommon value.
_SERVICE_PORT = re.compile(r"PENSTOCK(_[A-Z0-9_]+?)?_PORT")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


class Unknown(NamedTuple):
    """A variable that names no option, and the one that it may be meant for; empty if none is like it."""

    variable: str
    nearest: str

    def facts(self) -> dict[str, Any]:
        """For a line in the log."""
        return {"variable": self.variable, **({"nearest": self.nearest} if self.nearest else {})}

    def __str__(self) -> str:
        nearest = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"the environment variable {self.variable} names no option, and is passed over{nearest}"


class Sorted(NamedTuple):
    """The variables by what they are: options, Kubernetes', unknown."""

    options: list[str]
    services: list[str]
    unknown: list[Unknown]


def sort_out(environment: Mapping[str, str], known: Sequence[str]) -> Sorted:
    """Look at all variables that begin like ours. ``known`` are those that name an option."""
    found = Sorted([], [], [])
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in _OTHERS:
            continue
        if variable in known:
            found.options.append(variable)
        elif of_a_service(variable, environment[variable]):
            found.services.append(variable)
        else:
            nearest = get_close_matches(variable, [*known, *_OTHERS], n=1, cutoff=0.7)
            found.unknown.append(Unknown(variable, nearest[0] if nearest else ""))
    return found


def of_a_service(variable: str, value: str) -> bool:
    """Whether a variable is one that Kubernetes sets for a service."""
    if _SERVICE.fullmatch(variable):
        return True
    return _SERVICE_PORT.fullmatch(variable) is not None and _SERVICE_URL.match(value) is not None
