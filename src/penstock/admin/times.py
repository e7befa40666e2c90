"""Conversion between the broker's microseconds since 1970 and the API's times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The last time that RFC 3339 can express: the end of the year 9999.
_LAST = 253_402_300_799_000_000


def to_datetime(microseconds: int) -> datetime:
    """A time of the broker, capped at the end of the year 9999."""
    return _EPOCH + timedelta(microseconds=max(0, min(microseconds, _LAST)))


def to_datetime_or_none(microseconds: int) -> datetime | None:
    """The same; None for 0."""
    return to_datetime(microseconds) if microseconds else None


@overload
def to_micros(when: datetime) -> int: ...
@overload
def to_micros(when: datetime | None) -> int | None: ...
def to_micros(when: datetime | None) -> int | None:
    """A time of the API. Without a zone it is UTC."""
    if when is None:
        return None
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
