"""Long lists of the HTTP API, page by page, as tables or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import click
import msgspec

from penstock.admin.resources.common import PageQuery
from penstock.cli.api import Api
from penstock.cli.api_options import with_options
from penstock.cli.displays import table
from penstock.cli.errors import NOT_ENOUGH, OK
from penstock.cli.output import note, print_json, print_resource

#: Entries per request.
PAGE = 500
#: Default number of entries in a list.
USUAL = 100


class PageOf(Protocol):
    """A page of any kind of entries."""

    @property
    def items(self) -> Sequence[Any]:
        """The entries."""

    @property
    def next(self) -> str | None:
        """The cursor of the next page; None on the last one."""

    @property
    def total(self) -> int | None:
        """Entries of all pages, if known."""


P = TypeVar("P", bound=PageOf)


class ListRange(NamedTuple):
    """The wanted part of a list. ``limit`` None is all of it."""

    limit: int | None
    cursor: str


def page_options(command: Callable[..., Any]) -> Any:
    """Options for how much of a list is shown. The command receives them as ``want``."""

    @wraps(command)
    def called(*, limit: int | None, everything: bool, cursor: str, **flags: Any) -> Any:
        if everything and limit is not None:
            raise click.UsageError("--limit and --all: one or the other")
        return command(want=ListRange(None if everything else limit or USUAL, cursor), **flags)

    return with_options(
        called,
        click.option("--limit", type=click.IntRange(1), metavar="N", help=f"At most this many. [default: {USUAL}]"),
        click.option("--all", "everything", is_flag=True, help="All there are."),
        click.option("--cursor", default="", metavar="CURSOR", help="Continue where an earlier list ended."),
    )


def pages(api: Api, route: str, kind: type[P], *places: str, query: PageQuery, want: ListRange) -> Iterator[P]:
    """Pages with the wanted entries. The last page's ``next`` continues the list."""
    left, cursor = want.limit, want.cursor
    while left is None or left > 0:
        size = PAGE if left is None else min(left, PAGE)
        page = api.ask(route, kind, *places, query=msgspec.structs.replace(query, limit=size, cursor=cursor))
        yield page
        if page.next is None:
            return
        cursor = page.next
        left = None if left is None else left - len(page.items)


def show_pages(
    found: Iterator[PageOf], columns: Sequence[str], row: Callable[[Any], Sequence[object]], *, as_json: bool,
    nothing: str, counted: bool = True,
) -> None:  # fmt: skip
    """Print a table per page, or a JSON value per entry; and on standard error how to continue.

    Without ``counted`` the pages' total is not that of this list.
    """
    shown = 0
    page: PageOf | None = None
    for page in found:
        if as_json:
            for each in page.items:
                print_resource(each)
        elif page.items:
            table(columns, [row(each) for each in page.items])
        shown += len(page.items)
    if page is not None and page.next is not None:
        total = f" of {page.total}" if counted and page.total is not None else ""
        note(f"{shown}{total}; there are more: --all, or --cursor {page.next}")
    elif not shown and not as_json:
        note(nothing)


def show_one(value: msgspec.Struct, rows: Sequence[tuple[str, object]], *, as_json: bool) -> None:
    """Print one resource: a fact per line, or JSON."""
    if as_json:
        print_resource(value)
    else:
        table(("", ""), rows, headings=False)


def forget_name(api: Api, kind: Literal["reader", "writer"], name: str, *, as_json: bool) -> int:
    """Forget a reader or writer, and report whether it was known. Returns the exit code."""
    known = api.forget(f"forget-{kind}", name)
    if as_json:
        print_json({kind: name, "known": known})
    else:
        note(f"{name} is forgotten" if known else f"there is no {kind} {name}")
    return OK if known else NOT_ENOUGH
