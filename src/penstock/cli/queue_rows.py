"""Queues of the HTTP API as rows of a table, and the options that choose them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, get_args

import click

from penstock.admin.resources.common import Order
from penstock.admin.resources.queues import QueueSort, QueuesQuery, QueueState, QueueSummary
from penstock.cli.api_options import with_options
from penstock.cli.output import age

COLUMNS = ("QUEUE", "READY", "OUT", "DELAYED", "DEAD", "CONSUMERS", "OLDEST", "IN/S", "OUT/S", "DONE/S", "")


def filter_options(command: Callable[..., Any], default_sort: QueueSort = "name") -> Any:
    """Options that select and sort queues. The command receives them as ``query``."""
    states, sorts = get_args(QueueState), get_args(QueueSort)

    @wraps(command)
    def called(
        *, pattern: str, state: QueueState | None, contains: str, sort: QueueSort | None, reverse: bool, **flags: Any
    ) -> Any:
        by = sort or default_sort
        descending = (by not in ("name", "oldest")) != reverse  # the largest numbers are what one looks for
        order: Order = "descending" if descending else "ascending"
        query = QueuesQuery(pattern=pattern, state=state, contains=contains, sort=by, order=order)
        return command(query=query, **flags)

    return with_options(
        called,
        click.argument("pattern", metavar="[PATTERN]", default="*"),
        click.option("--state", type=click.Choice(states), help="Only queues in this state."),
        click.option("--contains", metavar="TEXT", default="", help="Only queues with this in their name."),
        click.option("--sort", type=click.Choice(sorts), help="The column; all but name from the largest down."),
        click.option("--reverse", is_flag=True, help="Reverse the order."),
    )


def row(queue: QueueSummary) -> tuple[object, ...]:
    """A row for a queue."""
    rates = (f"{each:.1f}" for each in (queue.rates.published, queue.rates.delivered, queue.rates.settled))
    counts = (queue.ready, queue.out, queue.delayed, queue.dead, queue.consumers)
    return (queue.name, *counts, age(queue.oldest), *rates, _remark(queue))


def _remark(queue: QueueSummary) -> str:
    remarks = [f"{queue.damaged} damaged"] if queue.damaged else []
    return ", ".join(remarks + ["paused"] * queue.paused)
