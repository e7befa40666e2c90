"""``penstock bench``: a load generator. The load itself is in the package ``penstock.bench``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import click

from penstock.bench import report
from penstock.bench.load import LEAST, Load, load_of
from penstock.bench.run import BenchPlan, Result, measure, prepare
from penstock.cli.displays import table
from penstock.cli.errors import NOT_ENOUGH, OK
from penstock.cli.output import json_option, note, print_json, say
from penstock.cli.protocol_help import help_for
from penstock.client.event_loop import run
from penstock.client.protocol import who_can
from penstock.client.urls import parse
from penstock.demo.broker import running_broker
from penstock.protocols import having, protocols

PROTOCOLS = [each.name for each in having("load")]


def _defaults(value: Callable[[Load], int]) -> str:
    """The defaults by protocol: ``PHPMQ 10000, SSPQ 1000``."""
    return ", ".join(f"{each.title} {value(load_of(each.name))}" for each in having("load"))


@click.command("bench")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--protocol", "protocols", type=click.Choice(PROTOCOLS), multiple=True, help="Without URL: only these.")
@click.option(
    "--durability",
    type=click.Choice(["commit", "interval", "os"]),
    default="commit",
    help="Without URL: of the started broker. [default: commit]",
)
@click.option("--size", type=click.IntRange(LEAST), multiple=True, help="Bytes of a message. [default: 100]")
@click.option("--producers", type=click.IntRange(1), default=1, help="Connections that publish. [default: 1]")
@click.option("--consumers", type=click.IntRange(0), default=1, help="Connections that consume. [default: 1]")
@click.option(
    "--window",
    type=click.IntRange(1, 65_535),
    help=f"Unacknowledged messages per consumer. [default: {_defaults(lambda load: load.window(1))}]",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1),
    help=f"Limit of published messages not yet consumed. [default: {_defaults(lambda load: load.in_flight)}]",
)
@click.option("--processes", type=click.IntRange(1), default=1, help="Processes on either side. [default: 1]")
@click.option("--duration", "seconds", type=float, default=5.0, metavar="S", help="Seconds of a run. [default: 5]")
@click.option("--count", type=click.IntRange(1), help="Messages of a run, instead of --duration.")
@click.option("--rate", type=float, metavar="N", help="At most N messages a second, to see latency at that load.")
@click.option(
    "--one-at-a-time",
    is_flag=True,
    help=help_for("confirmed publishing", "Wait for each confirmation before the next message."),
)
@json_option
def command(
    urls: tuple[str, ...],
    protocols: tuple[str, ...],
    durability: str,
    size: tuple[int, ...],
    as_json: bool,
    **flags: Any,
) -> int:
    """Measure the broker at each URL; without any, a broker started in a temporary folder.

    Producers publish, consumers take and acknowledge every message, each side in its own process. The rate counts
    acknowledged messages after the first fifth of the run; latency is from publishing to arrival, or with
    --one-at-a-time until the broker's confirmation. All messages of the queue (penstock-bench unless URL names one)
    are consumed: do not name one that matters.

    While --in-flight is reached, latency is that of a queue under full load. Use --rate to measure below that.

    \b
    Examples:
      penstock bench
      penstock bench --protocol phpmq --size 100 --size 1024 --duration 10
      penstock bench --producers 25 --consumers 25
      penstock bench --protocol kokaq --one-at-a-time --consumers 0
      penstock bench phpmq://127.0.0.1/bench --rate 1000 --json

    Exit codes: 0 done, 1 it failed, 2 wrong use, 3 refused by the broker, 4 messages were missing at the end.
    """
    if urls and protocols:
        raise click.UsageError("--protocol is for a broker that is started here; a URL names its own protocol")
    results = []
    with ExitStack() as stack:
        if not urls:
            started = stack.enter_context(_temporary_broker(durability))
            urls = tuple(started[protocol] for protocol in protocols or _able(flags))
        for plan in [_plan(url, each, flags) for url in urls for each in size or (100,)]:
            results.append(_measure(plan))
            if as_json:
                print_json(report.as_json(results[-1]))
    if not as_json:
        _show(results)
    return NOT_ENOUGH if any(result.received < result.sent for result in results) else OK


@contextmanager
def _temporary_broker(durability: str) -> Iterator[dict[str, str]]:
    """The URLs of a new broker, by protocol."""
    with TemporaryDirectory(prefix="penstock-bench-") as folder:
        flags = [f"--{protocol}=127.0.0.1:0" for protocol in protocols()]
        flags += [f"--durability={durability}", f"--data={folder}", "--log-level=error", "--flight=off", "--http=off"]
        with running_broker(flags) as broker:
            yield {protocol: f"{protocol}://{address}" for protocol, address in broker.addresses.items()}


def _able(flags: dict[str, Any]) -> list[str]:
    able = who_can("confirmed publishing")
    return [name for name in PROTOCOLS if not flags["one_at_a_time"] or protocols()[name].title in able]


def _plan(url: str, size: int, flags: dict[str, Any]) -> BenchPlan:
    (address, *_), _ = parse(url)
    able = address.abilities.operations
    if flags["one_at_a_time"] and "confirmed publishing" not in able:
        others = " and ".join(who_can("confirmed publishing"))
        raise click.UsageError(
            f"--one-at-a-time waits for confirmations, and {address.protocol} has none; {others} can confirm"
        )
    if size > 65_535 and "payload over 65,535 bytes" not in able:
        raise click.UsageError(f"{address.protocol} carries at most 65535 bytes in a message")
    load = load_of(address.scheme)
    window = flags["window"] or load.window(flags["consumers"])
    in_flight = flags["in_flight"] or load.in_flight
    return BenchPlan(url=url, size=size, **{**flags, "window": window, "in_flight": in_flight})


def _measure(plan: BenchPlan) -> Result:
    address, options = run(prepare(plan))
    note(f"measuring {address} with {plan.size} B …")
    return measure(plan, address, options)


def _show(results: list[Result]) -> None:
    title = "end to end, with acknowledgements; connections are producers + consumers"
    table(report.COLUMNS, [report.row(result) for result in results], title=title, right=True)
    for result in results:
        say(*report.plot(result))
        if result.received < result.sent:
            say(f"{result.protocol}: {result.sent - result.received} of {result.sent} did not arrive in time")
