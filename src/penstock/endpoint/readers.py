"""Who reads the journal, as the broker tells it to any process beside it."""

from __future__ import annotations

import msgspec


class ReaderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A reader as operators see it. ``at`` is when it was last heard of."""

    reader: str
    view: str
    where: str
    position: int
    lag_rows: int
    lag_seconds: float
    pin: bool
    peer: str
    at: int
    leased: int = 0
    owner: str = ""
    #: The journal was put back behind what it has read: lost is what it has read from this position on. 0: nothing is.
    lost_from: int = 0
