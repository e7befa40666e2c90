"""``penstock dead``: dead letters, as far as the protocols can reach them."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from typing import Any

import click

from penstock.cli.errors import NOT_ENOUGH
from penstock.cli.formats import written
from penstock.cli.output import json_option, note, run, tell
from penstock.client import Outgoing, aio
from penstock.client.abilities import require
from penstock.client.messages import Message

#: Letters that ``peek`` shows at most: each needs a connection of its own.
MOST = 100

wait_option = click.option(
    "--wait", type=float, default=0.5, metavar="S", help="Give up after so long without one. [default: 0.5]"
)


@click.group("dead", short_help="Look at dead letters, take them, or give them another chance.")
def command() -> None:
    """Look at dead letters, take them, or give them another chance.

    Of the three protocols only SSPQ can ask for dead letters, so URL is that of an SSPQ listener. It reaches the dead
    letters of its queue whichever protocol the messages came over: start the broker with
    --sspq 127.0.0.1:8889,queue=default/jobs to reach those of default/jobs.

    \b
    Examples:
      penstock dead peek sspq://127.0.0.1
      penstock dead take sspq://127.0.0.1 --all --json > dead.json
      penstock dead redrive sspq://127.0.0.1 --count 10

    Exit codes: 0 done, 1 connection trouble, 2 wrong use, 3 the broker gives out no dead letters, 4 fewer were there.
    """


@command.command("peek", short_help="Show dead letters and leave them.")
@click.argument("url")
@click.option("--count", type=click.IntRange(1, MOST), default=10, help="Show so many at most. [default: 10]")
@wait_option
@json_option
def peek(url: str, count: int, wait: float, as_json: bool) -> None:
    """Show dead letters and leave them where they are.

    Each is held by a connection of its own for that moment, which a broker puts back when it ends.

    \b
    Examples:
      penstock dead peek sspq://127.0.0.1
      penstock dead peek sspq://127.0.0.1 --count 50 --json
    """
    run(_peek(url, count, wait, as_json))


@command.command("take", short_help="Print dead letters and remove them.")
@click.argument("url")
@click.option("--count", type=click.IntRange(1), default=1, help="So many. [default: 1]")
@click.option("--all", "everything", is_flag=True, help="All there are.")
@wait_option
@json_option
def take(url: str, **flags: Any) -> int:
    """Print dead letters and remove them, each after it was printed.

    \b
    Examples:
      penstock dead take sspq://127.0.0.1
      penstock dead take sspq://127.0.0.1 --all --json > dead.json
    """
    return run(_each(url, redrive=False, **flags))


@command.command("redrive", short_help="Send dead letters to their queue again.")
@click.argument("url")
@click.option("--count", type=click.IntRange(1), default=1, help="So many. [default: 1]")
@click.option("--all", "everything", is_flag=True, help="All there are.")
@click.option("--retries", type=click.IntRange(0, 255), default=3, help="Their new retry counter. [default: 3]")
@wait_option
@json_option
def redrive(url: str, **flags: Any) -> int:
    """Send dead letters to their queue again, as new messages, and remove each from the dead ones after that.

    SSPQ does not confirm what it takes, so a broker that fails between the two may keep a letter in both places.

    \b
    Examples:
      penstock dead redrive sspq://127.0.0.1 --all
      penstock dead redrive sspq://127.0.0.1 --count 10 --retries 0
    """
    return run(_each(url, redrive=True, **flags))


async def _peek(url: str, count: int, wait: float, as_json: bool) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(count):
            client = await stack.enter_async_context(aio.connect(url))
            letter = await anext(client.dead_letters(idle=wait), None)
            if letter is None:
                break
            _show(letter, as_json)


async def _each(
    url: str, *, redrive: bool, count: int, everything: bool, wait: float, as_json: bool, retries: int = 3
) -> int:
    done = 0
    async with aio.connect(url) as client:
        require(client.address.abilities, "dead_letters")
        while everything or done < count:
            letter = await anext(client.dead_letters(idle=wait), None)
            if letter is None:
                break
            if redrive:
                await client.publish(Outgoing(letter.body, retries=retries))
            else:
                _show(letter, as_json)
            await letter.ack()
            done += 1
    if redrive and as_json:
        tell({"redriven": done})
    elif redrive:
        note(f"{done} sent to the queue again")
    return 0 if everything or done == count else NOT_ENOUGH


def _show(letter: Message, as_json: bool) -> None:
    form = "json" if as_json else "escaped" if sys.stdout.isatty() else "raw"
    sys.stdout.buffer.write(written(form, letter))
    sys.stdout.buffer.flush()
