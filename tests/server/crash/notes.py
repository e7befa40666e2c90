"""How the broker's process reports to the one that kills it: payloads made of numbers, and lines in a side file.

A line is written only once the broker may confirm it to its peer, so each line is a promise:

    P position number      the publish was confirmed
    D position number      the message was shown to a consumer
    S position …           these messages are settled, and the peer got the confirmation
    X position …           these are about to be purged: they may or may not be gone
    U count                the broker is up, with this many segments
"""

from __future__ import annotations

import os
from hashlib import blake2b

_NUMBER = 8
_MARK = 8
MOST = 300


def payload(number: int) -> bytes:
    """The payload of this number: the number, a mark derived from it, and padding."""
    head = number.to_bytes(_NUMBER, "big")
    mark = blake2b(head, digest_size=_MARK).digest()
    return head + mark + (mark * (MOST // _MARK + 1))[: number * 7919 % MOST]


def number_of(data: bytes) -> int | None:
    """The number of a message; None if it was never published like this."""
    number = int.from_bytes(data[:_NUMBER], "big")
    return number if data == payload(number) else None


class Notes:
    """The side file, written by the broker's process. Bytes handed to the kernel survive the process."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self._lines: list[str] = []

    def add(self, kind: str, *values: int) -> None:
        """Note a line, to be written with the next ``flush``."""
        self._lines.append(" ".join((kind, *map(str, values))) + "\n")

    def flush(self) -> None:
        """Hand the lines to the kernel."""
        data = memoryview("".join(self._lines).encode())
        self._lines.clear()
        while data:
            data = data[os.write(self._fd, data) :]
