"""``penstock messages``: browse, search, publish, move and delete messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from penstock.admin.resources.common import Done, Page, State
from penstock.admin.resources.messages import (
    Encoding,
    Event,
    Job,
    Life,
    LifeQuery,
    MessageDetail,
    MessageQuery,
    NewJob,
    NewMessage,
    Publish,
    Published,
    Search,
)
from penstock.admin.resources.peers import Lock, LocksQuery
from penstock.cli.api import Api, queue_of
from penstock.cli.api_options import api_options
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.errors import WRONG_USE, CommandError
from penstock.cli.job_progress import background_option, finish
from penstock.cli.message_search import payload_text, search_options, show_messages
from penstock.cli.output import json_option, note, print_done, print_json, say, when
from penstock.cli.pages import ListRange, page_options, pages, show_one, show_pages

LOCKS = ("MESSAGE", "QUEUE", "CONNECTION", "PEER", "SECONDS LEFT")
EVENTS = ("POSITION", "AT", "WHAT", "QUEUE", "BY", "REASON", "DELIVERIES")


@click.group("messages")
def command() -> None:
    """Browse and search queues without taking messages; publish, move and delete messages.

    \b
    Examples:
      penstock messages list shop/orders
      penstock messages list shop/orders --text '"customer": 17' --all
      penstock messages show shop/orders 0123456789abcdef0123456789abcdef
      penstock messages life shop/orders 0123456789abcdef0123456789abcdef
      penstock messages move shop/orders --to shop/later --rate 100

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused, 4 no such queue or message.
    """


@command.command("list", short_help="Browse or search the messages of a queue.")
@click.argument("queue", metavar="NS/QUEUE")
@click.option("--state", type=click.Choice(get_args(State)), default="ready", help="[default: ready]")
@search_options
@page_options
@api_options
@json_option
def list_messages(queue: str, state: Any, as_json: bool, want: ListRange, api: Api, search: Search | None) -> None:
    """Browse or search the messages of a queue in order, without taking them.

    \b
    Examples:
      penstock messages list shop/orders --limit 20
      penstock messages list shop/orders --state out
      penstock messages list shop/orders --text error --published-from 2026-01-05T12:00:00Z --json
    """
    show_messages(api, queue, state, search, want, as_json=as_json)


@command.command("show", short_help="Show one message.")
@click.argument("queue", metavar="NS/QUEUE")
@click.argument("message", metavar="ID")
@click.option("--bytes", "size", type=click.IntRange(0, 2**20), default=4096, help="Bytes to show. [default: 4096]")
@click.option("--encoding", type=click.Choice(get_args(Encoding)), help="The encoding of the payload.")
@click.option("--output", type=click.Path(path_type=Path, allow_dash=True), help="Write all of it to a file or -.")
@api_options
@json_option
def show(queue: str, message: str, size: int, encoding: Any, output: Path | None, as_json: bool, api: Api) -> None:
    """Show one message with its payload, or write the whole payload, byte for byte, to a file.

    \b
    Examples:
      penstock messages show shop/orders 0123456789abcdef0123456789abcdef
      penstock messages show shop/orders 0123456789abcdef0123456789abcdef --output order.json
    """
    if output is not None:
        _download(api.raw("payload", *queue_of(queue), message), output)
        return
    query = MessageQuery(bytes=size, encoding=encoding)
    found = api.ask("message", MessageDetail, *queue_of(queue), message, query=query)
    facts = msgspec.structs.asdict(found)
    shown = [(name, value) for name, value in facts.items() if name not in ("payload", "holder") and value is not None]
    rows = [(name, when(value) if name.endswith("_at") else value) for name, value in shown if value != ""]
    if found.holder is not None:
        rows.append(("holder", f"{found.holder.peer}, until {when(found.holder.until)}"))
    show_one(found, [*rows, ("payload", payload_text(found.payload))], as_json=as_json)


@command.command("life", short_help="Show every event of one message.")
@click.argument("queue", metavar="NS/QUEUE")
@click.argument("message", metavar="ID")
@api_options
@json_option
def life(queue: str, message: str, as_json: bool, api: Api) -> None:
    """Show every event of one message that the journal still contains, even if the message is gone.

    \b
    Examples:
      penstock messages life shop/orders 0123456789abcdef0123456789abcdef
    """
    query, events, state = LifeQuery(), list[Event](), None
    while True:
        found = api.ask("life", Life, *queue_of(queue), message, query=query)
        events += found.events
        state = found.state
        if found.next is None:
            break
        query = LifeQuery(cursor=found.next)
    show_pages(
        iter([Page[Event](items=events)]), EVENTS, _event, as_json=as_json, nothing="the journal has nothing of it"
    )
    if not as_json:
        note(f"now: {state or 'no more'}")


@command.command("publish", short_help="Publish messages to any queue.")
@click.argument("queue", metavar="NS/QUEUE")
@click.argument("payloads", metavar="TEXT...", nargs=-1, required=True)
@click.option("--encoding", type=click.Choice(get_args(Encoding)), default="text", help="Of TEXT. [default: text]")
@click.option("--priority", type=click.IntRange(0), default=0, help="Their priority.")
@click.option("--ttl", type=click.FloatRange(0), metavar="S", help="Time to live; 0: none.")
@click.option("--delay", type=click.FloatRange(0), default=0.0, metavar="S", help="Time until they are ready.")
@click.option("--correlation-id", metavar="TEXT", default="", help="Their correlation ID.")
@api_options
@json_option
def publish(
    queue: str, payloads: tuple[str, ...], encoding: Any, priority: int, ttl: float | None, delay: float,
    correlation_id: str, as_json: bool, api: Api,
) -> None:  # fmt: skip
    """Publish each TEXT as a message, all or none, and print their IDs once they are on disk.

    For more than a few messages `penstock send` is faster.

    \b
    Examples:
      penstock messages publish shop/orders hello
      penstock messages publish shop/orders '{"order": 1}' --encoding json --priority 5
    """
    details: dict[str, Any] = {"priority": priority, "ttl_seconds": ttl, "delay_seconds": delay}
    messages = [
        NewMessage(payload=_payload(each, encoding), encoding=encoding, correlation_id=correlation_id, **details)
        for each in payloads
    ]
    done = api.ask("publish", Published, *queue_of(queue), body=Publish(messages=messages))
    if as_json:
        print_json(msgspec.to_builtins(done))
    else:
        say(*done.ids)


@command.command("move", short_help="Move messages to another queue.")
@click.argument("queue", metavar="NS/QUEUE")
@click.argument("messages", metavar="[ID]...", nargs=-1)
@click.option("--to", "target", metavar="NS/QUEUE", required=True, help="The other queue.")
@click.option("--state", type=click.Choice(["ready", "delayed", "dead"]), default="ready", help="[default: ready]")
@click.option("--rate", type=click.FloatRange(0), default=0.0, metavar="N", help="At most N a second.")
@search_options
@background_option
@api_options
@json_option
def move(
    queue: str, messages: tuple[str, ...], target: str, state: Any, rate: float, background: bool, as_json: bool,
    api: Api, search: Search | None,
) -> int:  # fmt: skip
    """Move messages to another queue: those with these IDs, those that a search finds, or all.

    \b
    Examples:
      penstock messages move shop/orders --to shop/later
      penstock messages move shop/orders --to shop/errors --text error --rate 100
    """
    queue_of(queue), queue_of(target)
    request = NewJob(kind="move", queue=queue, state=state, target=target, ids=list(messages), search=search, rate=rate)
    return finish(api, api.ask("create-job", Job, body=request), background=background, as_json=as_json)


@command.command("delete", short_help="Remove messages for good.")
@click.argument("queue", metavar="NS/QUEUE")
@click.argument("messages", metavar="[ID]...", nargs=-1)
@click.option("--state", type=click.Choice(["ready", "delayed", "dead"]), default="ready", help="[default: ready]")
@search_options
@yes_option
@background_option
@api_options
@json_option
def delete(
    queue: str,
    messages: tuple[str, ...],
    state: Any,
    yes: bool,
    background: bool,
    as_json: bool,
    api: Api,
    search: Search | None,
) -> int:
    """Remove messages for good: those with these IDs, or those that a search finds. `penstock queue purge` removes all.

    \b
    Examples:
      penstock messages delete shop/orders 0123456789abcdef0123456789abcdef
      penstock messages delete shop/orders --text test --yes
    """
    queue_of(queue)
    if not messages and search is None:
        hint = f"penstock queue purge {queue} --state {state} removes all of them"
        raise CommandError("no message is selected: give IDs, or a search as in --text TEXT", hint, exit_code=WRONG_USE)
    which = f"{len(messages)} messages" if messages else "the messages that the search finds"
    confirm(f"This removes {which} of {queue} ({state}) for good", yes=yes)
    request = NewJob(kind="delete", queue=queue, state=state, ids=list(messages), search=search)
    return finish(api, api.ask("create-job", Job, body=request), background=background, as_json=as_json)


@command.command("locks", short_help="List locked messages.")
@click.argument("pattern", metavar="[PATTERN]", default="*")
@page_options
@api_options
@json_option
def locks(pattern: str, as_json: bool, want: ListRange, api: Api) -> None:
    """List messages that a connection has locked, those whose lock ends first.

    \b
    Examples:
      penstock messages locks
      penstock messages locks "shop/*" --json
    """
    found = pages(api, "locks", Page[Lock], query=LocksQuery(pattern=pattern), want=want)
    show_pages(found, LOCKS, _lock, as_json=as_json, nothing="nothing is locked")


@command.command("release", short_help="Release a locked message.")
@click.argument("message", metavar="ID")
@api_options
@json_option
def release(message: str, as_json: bool, api: Api) -> None:
    """Release a locked message: it returns to its place in the queue.

    \b
    Examples:
      penstock messages release 0123456789abcdef0123456789abcdef
    """
    done = api.ask("release-lock", Done, message)
    print_done({"message": message, "released": done.done}, f"{message} is released", as_json=as_json)


def _payload(text: str, encoding: Encoding) -> msgspec.Raw:
    """A payload for the API. JSON keeps every digit."""
    if encoding != "json":
        return msgspec.Raw(msgspec.json.encode(text))
    try:
        return msgspec.Raw(msgspec.json.format(text, indent=-1))
    except msgspec.MsgspecError as error:
        raise CommandError(f"{text!r} is not JSON: {error}", exit_code=WRONG_USE) from None


def _download(data: bytes, output: Path) -> None:
    if str(output) != "-":
        output.write_bytes(data)
    elif sys.stdout.isatty():
        raise CommandError("--output - is a terminal: raw bytes go to a file or a pipe", exit_code=WRONG_USE)
    else:
        sys.stdout.buffer.write(data)


def _event(event: Event) -> tuple[object, ...]:
    deliveries = "-" if event.deliveries is None else event.deliveries
    facts = (event.position, event.at.isoformat(), event.kind, event.queue, event.source)
    return (*facts, event.reason or "-", deliveries)


def _lock(lock: Lock) -> tuple[object, ...]:
    return (lock.message, lock.queue, lock.connection, lock.peer, f"{lock.seconds_left:.1f}")
