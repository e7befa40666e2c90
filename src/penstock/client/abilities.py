"""Check whether a protocol has an operation; the error names the protocols that do."""

from __future__ import annotations

from penstock.client.errors import Unsupported
from penstock.client.protocol import Abilities, who_can


def unsupported(abilities: Abilities, operation: str) -> Unsupported:
    """The error for an ``operation`` that a protocol lacks. It names the protocols that have it."""
    instead = who_can(operation)
    error = Unsupported(f"{abilities.title} can't express {operation!r}; {' and '.join(instead) or 'none'} can")
    error.protocol, error.operation, error.instead = abilities.title, operation, instead
    return error


def require(abilities: Abilities, operation: str) -> None:
    """Raise :class:`Unsupported` unless the protocol has the operation."""
    if operation not in abilities.operations:
        raise unsupported(abilities, operation)
