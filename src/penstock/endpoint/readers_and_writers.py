"""The readers of the journal, as the broker lists them for companion processes."""

from __future__ import annotations

import msgspec


class ReaderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A reader as operators see it. ``at`` is when it last reported."""

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
    #: The journal was restored to this position, so what the reader has read from here on is lost. 0: nothing is.
    lost_from: int = 0
