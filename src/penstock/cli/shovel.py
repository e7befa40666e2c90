"""``penstock shovel``: move messages to another broker or queue."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import md5
from typing import Any

import click
from msgspec import Struct

from penstock.cli.acknowledgement import acknowledge
from penstock.cli.displays import counting
from penstock.cli.errors import INTERRUPTED
from penstock.cli.output import json_option, note, print_json
from penstock.cli.protocol_help import help_for
from penstock.client import Outgoing, aio
from penstock.client.consumer import Consumer
from penstock.client.errors import BadURL
from penstock.client.event_loop import run
from penstock.client.messages import Message
from penstock.client.urls import parse

#: Messages in flight on one connection: taken from the source and not yet acknowledged there.
BATCH = 256


@click.command("shovel")
@click.argument("source")
@click.argument("destination")
@click.option("--count", type=click.IntRange(1), help="Move at most this many.")
@click.option("--follow", is_flag=True, help="Wait for more when the source is empty, without end.")
@click.option("--wait", type=float, default=2.0, metavar="S", help="Stop after this time without one. [default: 2]")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N messages a second.")
@click.option(
    "--connections",
    type=click.IntRange(1, 64),
    default=1,
    help="Parallel connections; more than 1 lose the order. [default: 1]",
)
@click.option(
    "--create", is_flag=True, help=help_for("create_queue", "Create the destination's queue if it is not there.")
)
@json_option
def command(source: str, destination: str, **flags: Any) -> int:
    """Move the messages of the queue SOURCE to the queue DESTINATION. Both are URLs, of any of the protocols.

    A message is removed from the source after the destination has confirmed it. Only Kokaq confirms: with another
    destination it is removed once the connection has accepted it, and a warning says so.

    If Ctrl-C or an error stops it, the rest stays in the source: run it again to continue. Messages that were confirmed
    and not yet removed are then sent twice, unless the source has message IDs (PHPMQ, Kokaq), the destination is Kokaq,
    and its de-duplication time (5 minutes) has not passed.

    TTL, priority, retries and correlation ID are kept if both protocols can express them.

    \b
    Examples:
      penstock shovel phpmq://old.example.com/jobs kokaq://127.0.0.1/default/jobs --create
      penstock shovel "phpmq://old.example.com/jobs?dialect=32" phpmq://127.0.0.1/jobs --rate 500
      penstock shovel sspq://old.example.com kokaq://127.0.0.1/default/sspq --connections 16
      penstock shovel kokaq://127.0.0.1/default/a kokaq://127.0.0.1/default/b --count 100 --json

    Exit codes: 0 done, 1 connection trouble, 2 wrong use, 3 refused by a broker, 130 ended by Ctrl-C.
    """
    if _same_place(source, destination):
        raise click.UsageError("source and destination are the same queue: its messages would circulate without end")
    return run(_shovel(source, destination, flags))


def _same_place(source: str, destination: str) -> bool:
    """Whether both have the same address; a broker may have several."""
    try:
        return any(address in parse(destination)[0] for address in parse(source)[0])
    except BadURL:  # reported when connecting
        return False


class SharedProgress(Struct):
    """State shared by the connections."""

    limit: int | None
    rate: float | None
    stop: asyncio.Event
    taken: int = 0
    moved: int = 0
    confirmed: bool = True
    next_at: float = 0.0

    def room(self) -> int:
        """How many messages may be taken now."""
        most = BATCH if self.rate is None else min(BATCH, max(1, int(self.rate)))
        return most if self.limit is None else min(most, self.limit - self.taken)

    async def pace(self, count: int) -> None:
        """Wait until the rate permits this many messages."""
        if self.rate is not None:
            now = time.monotonic()
            start = max(self.next_at, now)
            self.next_at = start + count / self.rate
            await asyncio.sleep(start - now)


async def _shovel(source: str, destination: str, flags: dict[str, Any]) -> int:
    work = SharedProgress(flags["count"], flags["rate"], asyncio.Event())
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, work.stop.set)
    began = time.monotonic()
    with counting(hidden=flags["as_json"]) as bar:
        task = bar.add_task("moving", total=flags["count"], rate="")

        def show() -> None:
            bar.update(task, completed=work.moved, rate=f"{work.moved / (time.monotonic() - began):,.0f}/s")

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(flags["connections"]):
                    group.create_task(_move(source, destination, work, flags, show, first=not number))
        except BaseExceptionGroup as errors:  # most likely they have one cause
            errors.exceptions[0].add_note(f"{work.moved} were moved before that; run it again to continue")
            raise errors.exceptions[0] from None
    interrupted = work.stop.is_set()
    took = round(time.monotonic() - began, 6)
    if flags["as_json"]:
        print_json({"moved": work.moved, "confirmed": work.confirmed, "seconds": took, "interrupted": interrupted})
    else:
        note(f"{work.moved} moved{'; run it again to continue' if interrupted else ''}")
    return INTERRUPTED if interrupted else 0


async def _move(
    source: str, destination: str, work: SharedProgress, flags: dict[str, Any], show: Callable[[], None], *, first: bool
) -> None:
    """One connection to each side."""
    async with aio.connect(source) as origin, aio.connect(destination) as target:
        if first:
            await _prepare(target, flags["create"])
        window = min(BATCH, flags["count"] or BATCH)
        async with origin.consume(window=window, idle=None if flags["follow"] else flags["wait"], poll=0.2) as consumer:
            while batch := await _batch(consumer, work):
                await work.pace(len(batch))
                published = await target.publish_many([_outgoing(message, target) for message in batch])
                work.confirmed = work.confirmed and published.confirmed
                if await acknowledge(origin, batch):
                    work.moved += len(batch)
                else:
                    work.taken -= len(batch)
                show()


async def _prepare(target: aio.AsyncClient, create: bool) -> None:
    if create:
        await target.create_queue(exist_ok=True)
    if not target.can("confirmed publishing"):
        note(
            f"warning: {target.protocol} does not confirm messages. They are removed from the source once "
            f"sent; if {target.address} fails at that moment, they are lost"
        )


async def _batch(consumer: Consumer, work: SharedProgress) -> list[Message]:
    """Available messages, at least one; none at the end."""
    room = work.room()
    if room <= 0:
        return []
    work.taken += room  # the other connections must not take them too
    batch: list[Message] = []
    first = await _unless(work.stop, anext(consumer, None))
    if first is not None:
        batch.append(first)
        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(0):  # only those that have arrived
                while len(batch) < room:
                    batch.append(await anext(consumer))
    work.taken -= room - len(batch)
    return batch


async def _unless(stop: asyncio.Event, work: Awaitable[Message | None]) -> Message | None:
    """The result of the work; None if it was stopped before."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return None if stop.is_set() else tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


def _outgoing(message: Message, target: aio.AsyncClient) -> Outgoing:
    """The message for the destination, with the properties that its protocol can express."""
    request_id = message.request_id
    if request_id is None and message.id is not None:
        request_id = md5(message.id.encode(), usedforsecurity=False).digest()
    details: dict[str, Any] = {
        "ttl": message.ttl or None,
        "priority": message.priority or None,
        "retries": message.retries,
        "correlation_id": message.correlation_id,
        "request_id": request_id,
        "source_info": message.source,
    }
    return Outgoing(message.body, **{name: value for name, value in details.items() if target.can(name)})
