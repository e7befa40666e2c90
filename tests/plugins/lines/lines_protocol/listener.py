"""The options of a listener: ``[[lines]]`` in penstock.toml, ``--lines ADDR,namespace=…`` on the command line."""

from __future__ import annotations

from typing import ClassVar

from penstock.server.options.listener_options import Listener


class LinesListener(Listener, frozen=True, kw_only=True):
    """A listener of Lines."""

    #: The namespace that its queues live in.
    namespace: str = "default"

    example: ClassVar[str] = "namespace=default"

    def namespaces(self) -> list[str]:
        """See Listener."""
        return [self.namespace]
