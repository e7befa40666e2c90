"""The broker counts microseconds since 1970, the API tells RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: As far as times can be told: the end of the year 9999.
_LAST = 253_402_300_799_000_000


def moment(microseconds: int) -> datetime:
    """A time of the broker's."""
    return _EPOCH + timedelta(microseconds=max(0, min(microseconds, _LAST)))


def moment_or_none(microseconds: int) -> datetime | None:
    """The same, where 0 is none."""
    return moment(microseconds) if microseconds else None


@overload
def micros(when: datetime) -> int: ...
@overload
def micros(when: datetime | None) -> int | None: ...
def micros(when: datetime | None) -> int | None:
    """A time of the API's. One without a zone is UTC."""
    if when is None:
        return None
    known = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (known - _EPOCH) // timedelta(microseconds=1)
