"""``penstock receive``: take messages."""

from __future__ import annotations

import os
import sys
from asyncio import Task, create_task
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.cli.acknowledgement import acknowledge
from penstock.cli.errors import NOT_ENOUGH
from penstock.cli.formats import FORMATS, file_name, written
from penstock.cli.output import json_option, note, print_json
from penstock.cli.protocol_help import help_for
from penstock.client import aio
from penstock.client.event_loop import run
from penstock.client.messages import Message
from penstock.client.protocol import client_protocol


@click.command("receive")
@click.argument("url")
@click.option("--count", type=click.IntRange(1), default=1, help="Number of messages. [default: 1]")
@click.option("--all", "everything", is_flag=True, help="All, until none comes for --wait seconds.")
@click.option("--follow", is_flag=True, help="Without end.")
@click.option("--wait", type=float, default=2.0, metavar="S", help="Give up after this time without one. [default: 2]")
@click.option("--ack/--no-ack", default=True, help="Acknowledge messages once written, or leave them in the queue.")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write messages to files here.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    help="raw: the bytes and a line end. escaped: control characters are escaped. json: with all properties. "
    "auto: escaped on a terminal, else raw. [default: auto]",
)
@click.option("--lock", type=float, metavar="S", help=help_for("lock", "Lock messages this long while writing them."))
@json_option
def command(url: str, form: str, as_json: bool, **flags: Any) -> int:
    """Take messages of the queue of URL and write them to standard output, or to files.

    A message is acknowledged after it was written. With --no-ack it goes back to the queue at the end; over SSPQ this
    costs one of its retries, and shows only one message.

    \b
    Examples:
      penstock receive phpmq://127.0.0.1/jobs
      penstock receive kokaq://127.0.0.1/default/jobs --all --json
      penstock receive sspq://127.0.0.1 --follow --format raw >> jobs.txt
      penstock receive phpmq://127.0.0.1/images --count 10 --to images/
      penstock receive phpmq://127.0.0.1/jobs --count 5 --no-ack
      penstock receive kokaq://mq1.example.com,mq2.example.com/default/jobs --follow      from the one that serves

    Exit codes: 0 done, 1 connection trouble, 2 wrong use, 3 refused by the broker, 4 fewer than --count were there.
    """
    form = "json" if as_json else form
    if form == "auto":
        form = "escaped" if sys.stdout.isatty() else "raw"
    if form == "raw" and sys.stdout.isatty() and not flags["folder"]:
        raise click.UsageError("raw messages could control the terminal: redirect the output, or use --format escaped")
    if flags["everything"] and flags["follow"]:
        raise click.UsageError("--all ends when the queue is empty, --follow never does: use one of them")
    taken = run(_receive(url, form, flags))
    wanted = 0 if flags["everything"] or flags["follow"] else flags["count"]
    if taken < wanted:
        note(f"{taken} of {wanted} were there")
        return NOT_ENOUGH
    return 0


async def _receive(url: str, form: str, flags: dict[str, Any]) -> int:
    limit = None if flags["everything"] or flags["follow"] else flags["count"]
    write = _writer(form, flags["folder"])
    taken = 0
    kept: list[Message] = []
    async with aio.connect(url) as client:
        window = client_protocol(client.address.scheme).window
        if window == 1 and not flags["ack"] and limit != 1:
            raise click.UsageError(f"{client.protocol} delivers one message at a time, so --no-ack can show only one")
        window = window if flags["ack"] else 65_535
        window = min(window, limit or window)
        idle = None if flags["follow"] else flags["wait"]
        consumer = client.consume(window=window, idle=idle, lock=flags["lock"], poll=0.2)
        acks = _Acks(client)
        try:
            async for message in consumer:
                taken += 1
                write(taken, message)
                if flags["ack"] and (limit is None or taken <= limit - window):
                    acks.add(message)
                else:
                    kept.append(message)
                if taken == limit:
                    break
        finally:
            # An acknowledgement makes room for another message, so the last ones come after the consumer's end.
            consumer.close()
            await acks.end()
            if flags["ack"] and kept:
                await acknowledge(client, kept)
    return taken


class _Acks:
    """Acknowledges while the next messages are written. Those written during one wait for the disk share the next."""

    def __init__(self, client: aio.AsyncClient) -> None:
        self._client = client
        self._pending: list[Message] = []
        self._task: Task[None] | None = None

    def add(self, message: Message) -> None:
        """Acknowledge this soon. Raises the error of an earlier one."""
        self._pending.append(message)
        if self._task is None or self._task.done():
            if self._task is not None:
                self._task.result()
            self._task = create_task(self._run())

    async def end(self) -> None:
        """Wait until all are acknowledged, or raise the error."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._pending:
            pending, self._pending = self._pending, []
            await acknowledge(self._client, pending)


def _writer(form: str, folder: Path | None) -> Callable[[int, Message], None]:
    """A function that writes a message: once it returns, the message is written for good."""
    if folder is None:
        return lambda number, message: _print(form, message)
    folder.mkdir(parents=True, exist_ok=True)

    def save(number: int, message: Message) -> None:
        path = folder / file_name(number, message)
        with path.open("xb") as file:
            file.write(message.body)
            file.flush()
            os.fsync(file.fileno())
        if form == "json":
            print_json({"file": str(path), "bytes": len(message.body)})

    return save


def _print(form: str, message: Message) -> None:
    sys.stdout.buffer.write(written(form, message))
    sys.stdout.buffer.flush()
