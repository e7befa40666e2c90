"""``penstock ping``: check that a broker answers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click
from msgspec.structs import replace

from penstock.cli.output import json_option, print_json, say
from penstock.cli.protocol_help import with_protocols
from penstock.client import ClientError, aio
from penstock.client.event_loop import run
from penstock.client.hosts import none_serves
from penstock.client.options import ClientOptions
from penstock.client.urls import Address, parse

#: One host's result: its address, and either times in ms and its health problem, or the reason why it does not serve.
PingResult = dict[str, Any]


@click.command("ping")
@click.argument("url")
@click.option("--count", type=click.IntRange(1), default=1, help="Number of pings. [default: 1]")
@click.option("--interval", type=float, default=1.0, metavar="S", help="Seconds between two. [default: 1]")
@click.option("--retry", type=float, default=0.0, metavar="S", help="Retry connecting for this time. [default: 0]")
@json_option
@with_protocols
def command(url: str, count: int, interval: float, retry: float, as_json: bool) -> int:
    """Check that the broker at URL answers.

    Some protocols have a ping ({pinging}) and a health check. With the others, a connection that is accepted and not
    closed at once counts as an answer. URL is of one of these: {urls}

    With several hosts (a,b), the state of each is shown: one serves, and standbys refuse connections.

    \b
    Examples:
      penstock ping kokaq://127.0.0.1
      penstock ping phpmq://127.0.0.1 --count 5
      penstock ping kokaq://127.0.0.1 --retry 30      wait until a broker is up
      penstock ping kokaq://mq1.example.com,mq2.example.com

    Exit codes: 0 the broker is healthy (of several hosts: one), 1 it is unreachable or does not answer, 2 wrong use,
    3 it reports a problem.
    """
    return run(_ping(url, count, interval, retry, as_json))


async def _ping(url: str, count: int, interval: float, retry: float, as_json: bool) -> int:
    addresses, options = parse(url)
    results: list[PingResult] = []
    for number in range(count):
        if number:
            await asyncio.sleep(interval)
        results = await _round(addresses, options, time.monotonic() + retry)
        for result in results:
            print_json(result) if as_json else say(_line(result))
    return 3 if any(result.get("ailment") for result in results) else 0


def _line(result: PingResult) -> str:
    if "reason" in result:
        return f"{result['address']}: does not serve: {result['reason']}"
    how = f"answered in {result['answer_ms']} ms" if "answer_ms" in result else "the protocol has no ping"
    well = f"; not well: {result['ailment']}" if result.get("ailment") else ""
    return f"{result['address']}: connected in {result['connect_ms']} ms, {how}{well}"


async def _round(addresses: tuple[Address, ...], options: ClientOptions, until: float) -> list[PingResult]:
    """The result of each host. Raises ClientError if none of them serves."""
    if len(addresses) > 1:
        options = replace(options, reconnect=False, timeout=min(options.timeout, options.connect_timeout))
    while True:
        found = await asyncio.gather(*(_once(address, options) for address in addresses))
        errors = [each for each in found if isinstance(each, ClientError)]
        if len(errors) < len(found):
            return [_result_of(*each) for each in zip(addresses, found, strict=True)]
        if not any(error.retriable for error in errors) or time.monotonic() > until:
            raise none_serves(errors)
        await asyncio.sleep(0.2)


def _result_of(address: Address, found: PingResult | ClientError) -> PingResult:
    if isinstance(found, ClientError):
        return {"address": str(address), "reason": str(found).removeprefix(f"{address}: ")}
    return found


async def _once(address: Address, options: ClientOptions) -> PingResult | ClientError:
    began = time.perf_counter()
    try:
        async with aio.Connecting(aio.AsyncClient((address,), options)) as client:
            return await _ask(client, began)
    except ClientError as error:
        return error


async def _ask(client: aio.AsyncClient, began: float) -> PingResult:
    connected = time.perf_counter()
    result: PingResult = {"address": str(client.address), "connect_ms": _ms(connected - began)}
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
