"""Flags that several pipelines share, as groups of click options, and the broker that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import json_option

if TYPE_CHECKING:
    from penstock.spark.pipelines.run import BrokerSource

DEFAULT_LAKE = "penstock-lake"
EXIT_CODES = "Exit codes: 0 done, 1 failed (run it again to continue), 2 wrong use, 3 refused, 130 ended by Ctrl-C."


def options(*groups: list[Any]) -> Callable[[Any], Any]:
    """A decorator that adds groups of options, in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed([each for group in groups for each in group]):
            function = option(function)
        return function

    return decorate


def _pairs(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The values of a repeatable option that is KEY=VALUE."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{option.opts[0]} is KEY=VALUE, not {text!r}", ctx, option)
        found[name] = value
    return found


def pairs_option(*names: str, help: str) -> Any:  # noqa: A002 - as click calls it
    """A repeatable option that is KEY=VALUE."""
    return click.option(*names, multiple=True, callback=_pairs, metavar="KEY=VALUE", help=help)


SPARK = [
    click.option("--master", metavar="URL", help="Spark's master. [default: local[*], or that of spark-submit]"),
    pairs_option("--conf", "confs", help="A setting of Spark. May be repeated."),
    json_option,
]
LAKE = [
    click.option(
        "--lake", default=DEFAULT_LAKE, metavar="DIR", help=f"The folder for tables. [default: {DEFAULT_LAKE}]"
    )
]
STORE = [
    pairs_option(
        "--store", help="For s3://…: endpoint, region, key, secret, session; @FILE is read. [default: AWS_… variables]"
    ),
    pairs_option(
        "--catalogue",
        help="Iceberg's catalogue: properties of pyiceberg, and name, namespace. [default: SQLite in the lake]",
    ),
    click.option(
        "--state",
        metavar="DIR",
        help="The folder of the pipeline's state. [default: the lake; for s3://…, ./penstock-state]",
    ),
]
BROKER = [
    click.option("--endpoint", metavar="URL", help="The broker's Flight endpoint. [default: grpc://127.0.0.1:8815]"),
    click.option("--token", envvar="PENSTOCK_TOKEN", metavar="TOKEN", help="As in the broker's access rules."),
    click.option("--tls-ca", metavar="FILE", help="Certificates to trust; the endpoint is grpc+tls://…"),
    pairs_option("--option", "more", help="For the data source."),
]
STREAM = [
    click.option("--once", is_flag=True, help="Process what is there now, and stop."),
    click.option(
        "--every", type=click.FloatRange(0), default=5.0, metavar="S", help="A batch every S seconds. [default: 5]"
    ),
]
PATTERN = click.option("--pattern", metavar="NS/QUEUE", help="Only queues like this: * is anything, ? one character.")


def broker_of(flags: dict[str, Any]) -> BrokerSource:
    """The broker that the flags name. Raises if it is away."""
    from penstock.spark.pipelines.run import BrokerSource  # noqa: PLC0415

    given = {"endpoint": flags["endpoint"], "token": flags["token"], "tlsCa": flags["tls_ca"]}
    broker = BrokerSource({**{name: value for name, value in given.items() if value}, **flags["more"]})
    broker.reach()
    return broker
