"""Asking whether a protocol has an operation, and the error that says who has it instead."""

from __future__ import annotations

from penstock.client.errors import Unsupported
from penstock.client.protocol import Abilities, who_can


def unsupported(abilities: Abilities, operation: str) -> Unsupported:
    """The error that says that a protocol has no ``operation``, and who has it."""
    instead = who_can(operation)
    error = Unsupported(f"{abilities.title} can't express {operation!r}; {' and '.join(instead) or 'none'} can")
    error.protocol, error.operation, error.instead = abilities.title, operation, instead
    return error


def require(abilities: Abilities, operation: str) -> None:
    """Raise :class:`Unsupported` unless the protocol has the operation."""
    if operation not in abilities.operations:
        raise unsupported(abilities, operation)
