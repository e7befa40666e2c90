"""Traffic for the benches."""

from __future__ import annotations

#: What a busy connection reads at once.
CHUNK = 64 * 1024


def chunks(stream: bytes, size: int) -> list[bytes]:
    """The stream in pieces of ``size``, as reads from a socket would give it."""
    return [stream[pos : pos + size] for pos in range(0, len(stream), size)]
