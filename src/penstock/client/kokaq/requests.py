"""Kokaq requests in flight, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.wire.kokaq import Response

#: The message ID of a plain push's answer (most are), otherwise the whole response.
Answer = Response | bytes


class PendingRequests:
    """Requests that were sent together. An entry of ``answers`` that is None when ``done`` is set was never answered.

    ``keep`` is called with each answer as it arrives, for what must not be lost with a cancelled caller.
    """

    def __init__(self, size: int, keep: Callable[[Answer], None] | None = None) -> None:
        self.answers: list[Answer | None] = [None] * size
        self.left = size
        self.done = asyncio.Event()
        self.keep = keep

    def take(self, index: int, answer: Answer) -> None:
        """Record one answer."""
        self.answers[index] = answer
        self.left -= 1
        if self.keep is not None:
            self.keep(answer)
        if self.left == 0:
            self.done.set()
