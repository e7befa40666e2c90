"""``penstock send``: publish messages."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from asyncio import Event, get_running_loop
from collections.abc import AsyncIterator
from typing import IO, Any

import click

from penstock.cli.displays import counting
from penstock.cli.output import json_option, note, print_json, say
from penstock.cli.protocol_help import able, help_for, with_protocols
from penstock.client import Disconnected, Outgoing, Published, Refused, aio
from penstock.client.event_loop import run

#: Bytes of one read, whose lines are published together.
CHUNK = 1024 * 1024

#: Flags that set a detail of each message, as the client calls it.
DETAILS = ("ttl", "priority", "delay", "retries", "correlation_id", "id", "source_info")


@click.command("send")
@click.argument("url")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--file", "file", type=click.File("rb"), help="Each line of this file is a message; - is standard input.")
@click.option("--whole", is_flag=True, help="The whole file, or standard input, is one message.")
@click.option("--count", type=click.IntRange(1), default=1, help="Send everything this many times. [default: 1]")
@click.option("--ttl", type=float, metavar="S", help=help_for("ttl", "Time to live in seconds; 0 is unlimited."))
@click.option("--priority", type=int, help=help_for("priority", "Higher comes first."))
@click.option("--delay", type=float, metavar="S", help=help_for("delay", "Deliver only after this many seconds."))
@click.option(
    "--retries",
    type=click.IntRange(0, 255),
    help=help_for("retries", "Redeliveries; 255 is unlimited."),
)
@click.option("--correlation-id", help=help_for("correlation_id", "Kept with the message."))
@click.option("--id", "id", help=help_for("id", "Ask for this ID, 32 hex digits."))
@click.option("--source-info", help=help_for("source_info", "Source shown to consumers, instead of our address."))
@click.option("--create", is_flag=True, help=help_for("create_queue", "Create the queue if it is not there."))
@click.option("--ids", "show_ids", is_flag=True, help=help_for("confirmed publishing", "Print the ID of each message."))
@json_option
@with_protocols
def command(url: str, messages: tuple[str, ...], file: IO[bytes] | None, whole: bool, **flags: Any) -> None:
    """Publish each MESSAGE to the queue of URL; without any, each line of standard input.

    Some protocols confirm when a message is on disk ({confirming}). With the others, `sent` means that the connection
    accepted it and was closed in order. URL is of one of these: {urls}

    \b
    Examples:
      penstock send phpmq://127.0.0.1/jobs hello world
      penstock send kokaq://127.0.0.1/default/jobs --create --priority 5 --ids urgent
      penstock send sspq://127.0.0.1 --retries 3 < lines.txt
      penstock send phpmq://127.0.0.1/images --file cat.jpg --whole
      tail -f app.log | penstock send kokaq://127.0.0.1/default/log
      penstock send "phpmq+tls://mq.example.com/jobs?ca=ca.pem" --count 1000 test

    Exit codes: 0 sent, 1 connection trouble (the message says what is known), 2 wrong use, 3 refused by the broker.
    """
    if messages and file:
        raise click.UsageError("messages are given as arguments or with --file, not both")
    if whole and messages:
        raise click.UsageError("--whole is about --file or standard input, and messages are given as arguments")
    if flags["id"] is not None and not re.fullmatch(r"[0-9A-Fa-f]{32}", flags["id"]):
        raise click.UsageError(f"--id is 32 hex digits, not {flags['id']!r}")
    if file is None and not messages:
        file = sys.stdin.buffer
        if sys.stdin.isatty():
            note(f"{'all of it is one' if whole else 'each line is a'} message; end with Ctrl-D")
    run(_send(url, messages, file, whole, flags))


async def _send(
    url: str, messages: tuple[str, ...], file: IO[bytes] | None, whole: bool, flags: dict[str, Any]
) -> None:
    details = {name: flags[name] for name in DETAILS if flags[name] is not None}
    if "correlation_id" in details:
        details["correlation_id"] = details["correlation_id"].encode()
    sent, confirmed, ids = 0, True, list[str]()
    began = time.monotonic()
    async with aio.connect(url) as client:
        if flags["create"]:
            if not client.can("create_queue"):
                where = f"over {client.protocol} the queue is there, or is made on first use"
                raise click.UsageError(f"--create is for {able('create_queue')}: {where}. Leave it out")
            await client.create_queue(exist_ok=True)
        with counting(hidden=flags["as_json"]) as bar:
            total = len(messages) * flags["count"] if messages else None
            task = bar.add_task("sending", total=total, rate="")
            async for bodies in _bodies(messages, file, whole, flags["count"]):
                published = await _publish(client, [Outgoing(body, **details) for body in bodies])
                sent += published.count
                confirmed = confirmed and published.confirmed
                if flags["show_ids"]:
                    ids += published.ids
                bar.update(task, completed=sent, rate=f"{sent / (time.monotonic() - began):,.0f}/s")
    if sent and not confirmed and not client.parted:
        raise Disconnected(
            f"unknown whether all {sent} message(s) were accepted: {client.address} did not end the connection in "
            f"order; {await client.why_closed()}"
        )
    if sent and not confirmed and (refusal := await client.refusal()):
        raise Refused(f"{client.address}: {refusal}: it was not accepted, nor anything sent after it")
    _report(client, sent, confirmed and sent > 0, ids, time.monotonic() - began, flags["as_json"])


async def _publish(client: aio.AsyncClient, messages: list[Outgoing]) -> Published:
    try:
        return await client.publish_many(messages)
    except Refused as error:
        if error.reason == "bad":
            raise Refused(f"{error}. If the queue is missing, --create creates it") from None
        raise


def _report(client: aio.AsyncClient, sent: int, confirmed: bool, ids: list[str], took: float, as_json: bool) -> None:
    if as_json:
        print_json({"sent": sent, "confirmed": confirmed, "seconds": round(took, 6), **({"ids": ids} if ids else {})})
        return
    say(*ids)
    note(f"{sent} sent{', and on disk' if confirmed else f' ({client.protocol} does not confirm)' if sent else ''}")


async def _bodies(
    messages: tuple[str, ...], file: IO[bytes] | None, whole: bool, count: int
) -> AsyncIterator[list[bytes]]:
    """The payloads, in lists that are published together."""
    if file is None:
        bodies = [message.encode(errors="surrogateescape") for message in messages]
    elif whole:
        bodies = [file.read()]
    elif count == 1:
        async for lines in _lines(file):
            yield lines
        return
    else:
        bodies = file.read().splitlines()
    at_once = max(1, 1000 // max(1, len(bodies)))
    for done in range(0, count, at_once):
        yield bodies * min(at_once, count - done)


async def _lines(file: IO[bytes]) -> AsyncIterator[list[bytes]]:
    """The lines of a file or pipe, as soon as they arrive."""
    rest = b""
    while chunk := await _read(file.fileno()):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


async def _read(descriptor: int) -> bytes:
    """Read what is there, or what comes next. Waits without a thread, so that Ctrl-C works."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        ready = Event()
        loop = get_running_loop()
        try:
            loop.add_reader(descriptor, ready.set)
        except PermissionError:  # /dev/null and the like are always ready, and epoll refuses them
            return os.read(descriptor, CHUNK)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
    return os.read(descriptor, CHUNK)
