"""Protocols, and the operations they support, in the help of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.client.protocol import who_can
from penstock.protocols import having


def able(operation: str) -> str:
    """The protocols that support an operation: ``PHPMQ, Kokaq``."""
    return ", ".join(who_can(operation)) or "no protocol"


def help_for(operation: str, text: str) -> str:
    """The help of an option that only some protocols support."""
    return f"{text} {able(operation)}."


def with_protocols(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace {urls}, {confirming} and {pinging} in the docstring of a command."""
    assert function.__doc__ is not None
    function.__doc__ = function.__doc__.format(
        urls=", ".join(f"{each.name}://" for each in having("client")),
        confirming=able("confirmed publishing"),
        pinging=able("ping"),
    )
    return function
