"""Pages of lists. A cursor holds the sort key of the last entry, so it stays valid while entries come and go."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.admin.problems import fail
from penstock.admin.resources.common import Page, PageQuery

T = TypeVar("T")


def encode_cursor(*values: Any) -> str:
    """A cursor with these values."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(values)).decode().rstrip("=")


def decode_cursor(cursor: str, kind: Any) -> Any:
    """The values of a cursor; None if it is empty. Raises ApiProblem if it is not one of ours."""
    if not cursor:
        return None
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(data, type=kind)
    except (ValueError, msgspec.DecodeError):
        fail("bad-request", "this cursor is not `next` of a page of this list", field="query.cursor")


def decode_numbers(cursor: str, count: int) -> tuple[int, ...] | None:
    """``count`` signed 64-bit integers from a cursor."""
    numbers: tuple[int, ...] | None = decode_cursor(cursor, tuple[int, ...])
    if numbers is not None and (len(numbers) != count or any(abs(each) >= 2**63 for each in numbers)):
        fail("bad-request", "this cursor is not `next` of a page of this list", field="query.cursor")
    return numbers


def page(
    items: Sequence[T], limit: int, cursor: Callable[[T], str], kind: type[Page[T]], total: int | None = None
) -> Page[T]:
    """A page of the first ``limit`` items; it has a successor if there are more."""
    shown = list(items[:limit])
    return kind(items=shown, next=cursor(shown[-1]) if len(items) > limit and shown else None, total=total)


def slice_page(
    items: Sequence[T],
    query: PageQuery,
    key: Callable[[T], tuple[Any, ...]],
    key_type: Any,
    *,
    descending: bool = False,
) -> tuple[list[T], str | None]:
    """The items of the page that ``query`` asks for, and the cursor of the next page.

    ``items`` is the whole list, sorted by ``key``, which is unique; ``key_type`` is its type.
    """
    after = decode_cursor(query.cursor, key_type)
    rest = list(items)
    if after is not None:
        rest = [item for item in items if (key(item) < after if descending else key(item) > after)]
    shown = rest[: query.limit]
    return shown, encode_cursor(*key(shown[-1])) if len(rest) > query.limit else None
