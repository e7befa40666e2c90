"""Searching and listing messages over the HTTP API: the options and the table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, get_args

import click
import msgspec

from penstock.admin.resources.common import DeadReason, State
from penstock.admin.resources.messages import MessagePage, MessagesQuery, MessageSummary, Payload, Search
from penstock.cli.api import Api, queue_of
from penstock.cli.api_options import with_options
from penstock.cli.output import amount, when
from penstock.cli.pages import ListRange, pages, show_pages

#: The fields of ``Search``, which are the options' names.
FIELDS = Search.__struct_fields__
COLUMNS = ("ID", "PUBLISHED", "PRIORITY", "DELIVERIES", "SIZE", "PAYLOAD")


def moment_of(text: str) -> datetime:
    """Parse a time of RFC 3339; without an offset it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time: write it as 2026-01-05T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def search_options(command: Callable[..., Any]) -> Any:
    """Options that select messages. The command receives them as ``search``, which is None for all messages."""

    @wraps(command)
    def called(**flags: Any) -> Any:
        search = Search(**{name: flags.pop(name) for name in FIELDS})
        return command(search=None if search == Search() else search, **flags)

    return with_options(
        called,
        click.option("--text", metavar="TEXT", default="", help="Only messages with this in their payload."),
        click.option("--hex", metavar="HEX", default="", help="The same as bytes, in hex."),
        click.option("--id", metavar="HEX", default="", help="Only messages whose ID begins like this."),
        click.option("--correlation-id", metavar="TEXT", default="", help="Only those with this correlation ID."),
        click.option("--published-from", type=moment_of, metavar="TIME", help="Only those published then or later."),
        click.option("--published-to", type=moment_of, metavar="TIME", help="Only those published before."),
        click.option("--reason", type=click.Choice(get_args(DeadReason)), help="Only those dead for this reason."),
        click.option("--deliveries", type=click.IntRange(0), default=0, metavar="N", help="Delivered N times or more."),
    )


def show_messages(
    api: Api, queue: str, state: State, search: Search | None, want: ListRange, *, as_json: bool
) -> None:  # fmt: skip
    """List messages without taking them."""
    fields = {name: getattr(search, name) for name in FIELDS} if search is not None else {}
    query = MessagesQuery(state=state, **fields)
    found = pages(api, "messages", MessagePage, *queue_of(queue), query=query, want=want)
    columns = (*COLUMNS[:-1], "REASON", COLUMNS[-1]) if state == "dead" else COLUMNS
    nothing = f"{queue} has no {state} messages" + (" like this" if search is not None else "")
    shown = lambda each: row(each, state)  # noqa: E731
    show_pages(found, columns, shown, as_json=as_json, nothing=nothing, counted=search is None)


def row(message: MessageSummary, state: State) -> tuple[object, ...]:
    """A message in a list."""
    facts = (message.id, when(message.published_at), message.priority, message.deliveries, amount(message.payload.size))
    return (*facts, *([message.reason or "-"] if state == "dead" else []), payload_text(message.payload))


def payload_text(payload: Payload) -> str:
    """The shown part of a payload."""
    value = (
        bytes(payload.value).decode() if payload.encoding == "json" else msgspec.json.decode(payload.value, type=str)
    )
    return value + ("…" if payload.truncated else "")
