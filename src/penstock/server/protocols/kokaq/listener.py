"""The options of a Kokaq listener."""

from __future__ import annotations

from typing import ClassVar

from penstock.server.options.listener_options import Listener


class KokaqListener(Listener, frozen=True, kw_only=True):
    """A Kokaq listener."""

    #: Push makes a queue, and its namespace, that does not exist.
    create_queues: bool = False

    example: ClassVar[str] = "create_queues=true"
