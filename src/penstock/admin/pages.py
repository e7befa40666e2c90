"""Pages of lists: cursors are what the last entry was sorted by, so that they stay good whatever comes and goes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.admin.problems import fail
from penstock.admin.resources.common import Page

T = TypeVar("T")


def cursor_of(*values: Any) -> str:
    """A cursor that says this."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(values)).decode().rstrip("=")


def values_of(cursor: str, kind: Any) -> Any:
    """What a cursor says, None for none. Raises ApiProblem for one that is not ours."""
    if not cursor:
        return None
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(data, type=kind)
    except (ValueError, msgspec.DecodeError):
        fail("bad-request", "this cursor is not `next` of a page of this list", field="query.cursor")


def numbers_of(cursor: str, count: int) -> tuple[int, ...] | None:
    """So many numbers out of a cursor."""
    found: tuple[int, ...] | None = values_of(cursor, tuple[int, ...])
    if found is not None and (len(found) != count or any(not 0 <= abs(each) < 2**63 for each in found)):
        fail("bad-request", "this cursor is not `next` of a page of this list", field="query.cursor")
    return found


def page(
    items: Sequence[T], limit: int, cursor: Callable[[T], str], kind: type[Page[T]], total: int | None = None
) -> Page[T]:
    """A page of the first ``limit``; there is a next one if there are more."""
    shown = list(items[:limit])
    return kind(items=shown, next=cursor(shown[-1]) if len(items) > limit and shown else None, total=total)
