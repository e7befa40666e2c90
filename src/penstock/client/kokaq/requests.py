"""Kokaq requests on their way, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.wire.kokaq import Response

#: What is known of an answer to a push where it is a plain one (most are): the ID. Otherwise the whole response.
Answer = Response | bytes


class PendingRequests:
    """Requests that were sent together. ``answers`` fill up; what is None when ``done`` is set was never answered.

    ``keep`` is called with each answer in the moment that it comes. What must not be lost with a cancelled caller is
    kept there, and not fetched from ``answers``.
    """

    def __init__(self, size: int, keep: Callable[[Answer], None] | None = None) -> None:
        self.answers: list[Answer | None] = [None] * size
        self.left = size
        self.done = asyncio.Event()
        self.keep = keep

    def take(self, index: int, answer: Answer) -> None:
        """Note one answer."""
        self.answers[index] = answer
        self.left -= 1
        if self.keep is not None:
            self.keep(answer)
        if self.left == 0:
            self.done.set()
