"""Requests about readers and writers by name, which companion processes list and drop alike.

``owner`` limits a request to names of that identity; empty means all, for operators and for brokers without rules.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.companions.framing import Change, Request


class Readers(Request, frozen=True, kw_only=True, tag="readers"):
    """List readers. Answered by a list of ``ReaderRow``: there are 1,000 at most."""


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
    #: The journal was restored to this position, so events that the reader has read from here on are lost. 0: none.
    lost_from: int = 0


class Writers(Request, frozen=True, kw_only=True, tag="writers"):
    """List writers with names after this one, by name. Answered by a list of ``WriterRow``. Limit 0: all."""

    owner: str = ""
    after: str = ""
    contains: str = ""
    limit: int = 0


class WriterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A writer as operators see it. ``at`` is when its last chunk was accepted; 0 if unknown."""

    writer: str
    owner: str
    epoch: int
    partitions: int
    at: int


class _Drop(Change, frozen=True, kw_only=True):
    name: str
    owner: str = ""
    #: How ``by`` sent the request.
    over: Literal["flight", "http"]


class DropReader(_Drop, frozen=True, kw_only=True, tag="drop-reader"):
    """Drop a reader and its pin, and return its leases. Answered by true if it was known."""


class DropWriter(_Drop, frozen=True, kw_only=True, tag="drop-writer"):
    """Forget a writer. Answered by true if it was known."""
