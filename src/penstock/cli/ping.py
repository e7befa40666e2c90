"""``penstock ping``."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from penstock.cli.output import json_option, run, say, tell
from penstock.cli.protocol_help import with_protocols
from penstock.client import ConnectFailed, aio


@click.command("ping", short_help="Is a broker there, and well?")
@click.argument("url")
@click.option("--count", type=click.IntRange(1), default=1, help="Ask so often. [default: 1]")
@click.option("--interval", type=float, default=1.0, metavar="S", help="Pause between two. [default: 1]")
@click.option("--retry", type=float, default=0.0, metavar="S", help="Keep trying to connect for so long. [default: 0]")
@json_option
@with_protocols
def command(url: str, count: int, interval: float, retry: float, as_json: bool) -> int:
    """Ask the broker of URL for a sign of life.

    Some protocols have a question for it ({pinging}), and one for the broker's health. With the others, a connection
    that is accepted, and not closed at once, is the sign. URL is of one of these: {urls}

    \b
    Examples:
      penstock ping kokaq://127.0.0.1
      penstock ping phpmq://127.0.0.1 --count 5
      penstock ping kokaq://127.0.0.1 --retry 30      wait until a broker is up

    Exit codes: 0 it is there and well, 1 nobody there or no answer, 2 wrong use, 3 it is there and says it is not well.
    """
    return run(_ping(url, count, interval, retry, as_json))


async def _ping(url: str, count: int, interval: float, retry: float, as_json: bool) -> int:
    ailment = None
    for number in range(count):
        if number:
            await asyncio.sleep(interval)
        result = await _once(url, time.monotonic() + retry)
        ailment = result.get("ailment")
        if as_json:
            tell(result)
        else:
            how = f"answered in {result['answer_ms']} ms" if "answer_ms" in result else "the protocol has no ping"
            well = f"; not well: {ailment}" if ailment else ""
            say(f"{result['address']}: connected in {result['connect_ms']} ms, {how}{well}")
    return 3 if ailment else 0


async def _once(url: str, until: float) -> dict[str, Any]:
    while True:
        began = time.perf_counter()
        try:
            async with aio.connect(url) as client:
                return await _ask(client, began)
        except ConnectFailed as error:
            if not error.retriable or time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


async def _ask(client: aio.AsyncClient, began: float) -> dict[str, Any]:
    connected = time.perf_counter()
    result: dict[str, Any] = {"address": str(client.address), "connect_ms": _ms(connected - began)}
    if client.can("ping"):
        await client.ping()
        result["answer_ms"] = _ms(time.perf_counter() - connected)
        result["ailment"] = await client.health() if client.can("health") else None
    else:
        await asyncio.sleep(0.05)
        client.check()
    return result


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
