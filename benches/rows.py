"""The messages that the benches of reading put into a journal, and how they are made again elsewhere."""

from __future__ import annotations

from random import Random

#: Microseconds since 1970 at which the first commit is.
NOW = 1_750_000_000_000_000
#: Bytes of a payload.
SIZE = 1024
#: Messages in a commit.
BATCH = 1000


def payloads() -> list[bytes]:
    """Those of a commit, which can't be compressed; the same for all commits, in all processes."""
    made = Random(0)
    return [made.randbytes(SIZE) for _ in range(BATCH)]
