"""The options of a PHPMQ listener."""

from __future__ import annotations

from typing import ClassVar, Literal

from typing_extensions import override

from penstock.server.options.listener_options import Listener


class PhpmqListener(Listener, frozen=True, kw_only=True):
    """A PHPMQ listener."""

    #: The namespace that its queues live in.
    namespace: str = "default"
    #: Pins the dialect, for clients that hard-code the number of packets they read.
    dialect: Literal["36", "32", "ttl"] | None = None

    example: ClassVar[str] = "dialect=32"

    @override
    def namespaces(self) -> list[str]:
        return [self.namespace]
