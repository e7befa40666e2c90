"""The options of a listener: ``[[lines]]`` in penstock.toml, ``--lines ADDR,namespace=…`` on the command line."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from penstock.server.options.listener_options import Listener


class LinesListener(Listener, frozen=True, kw_only=True):
    """A listener of Lines."""

    #: The namespace of its queues.
    namespace: str = "default"

    example: ClassVar[str] = "namespace=default"

    @override
    def namespaces(self) -> list[str]:
        return [self.namespace]
