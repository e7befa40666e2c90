"""``penstock dead``: the dead letters of every queue."""

from __future__ import annotations

import click

from penstock.admin.resources.common import Page
from penstock.admin.resources.messages import DeadGroup, DeadQuery, Job, NewJob, Search
from penstock.admin.resources.queues import Purge, QueueDetail
from penstock.cli.api import Api, queue_of
from penstock.cli.api_options import api_options
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.job_progress import background_option, finish
from penstock.cli.message_search import search_options, show_messages
from penstock.cli.output import age, json_option
from penstock.cli.pages import ListRange, page_options, pages, show_pages

COLUMNS = ("QUEUE", "REASON", "MESSAGES", "OLDEST")


@click.group("dead")
def command() -> None:
    """Look at the dead letters of any queue, redrive or remove them.

    \b
    Examples:
      penstock dead list
      penstock dead show shop/orders --reason rejected
      penstock dead redrive shop/orders --rate 50
      penstock dead purge shop/orders --yes

    Exit codes: 0 done, 1 the broker is unreachable or the job failed; 2 wrong use, 3 refused, 4 no such queue.
    """


@command.command("list", short_help="Count dead letters by queue and reason.")
@click.argument("pattern", metavar="[PATTERN]", default="*")
@page_options
@api_options
@json_option
def list_dead(pattern: str, as_json: bool, want: ListRange, api: Api) -> None:
    """Count dead letters by queue and reason.

    \b
    Examples:
      penstock dead list
      penstock dead list "shop/*" --json
    """
    found = pages(api, "dead", Page[DeadGroup], query=DeadQuery(pattern=pattern), want=want)
    row = lambda each: (each.queue, each.reason, each.count, age(each.oldest))  # noqa: E731
    show_pages(found, COLUMNS, row, as_json=as_json, nothing="there are no dead letters")


@command.command("show", short_help="Show the dead letters of a queue.")
@click.argument("queue", metavar="NS/QUEUE")
@search_options
@page_options
@api_options
@json_option
def show(queue: str, as_json: bool, want: ListRange, api: Api, search: Search | None) -> None:
    """Show the dead letters of a queue without taking them.

    \b
    Examples:
      penstock dead show shop/orders
      penstock dead show shop/orders --all --json > dead.json
    """
    show_messages(api, queue, "dead", search, want, as_json=as_json)


@command.command("redrive", short_help="Send dead letters back to work.")
@click.argument("queue", metavar="NS/QUEUE")
@click.argument("messages", metavar="[ID]...", nargs=-1)
@click.option("--to", "target", metavar="NS/QUEUE", default="", help="Send them to this queue instead of their own.")
@click.option("--rate", type=click.FloatRange(0), default=0.0, metavar="N", help="At most N a second.")
@search_options
@background_option
@api_options
@json_option
def redrive(
    queue: str,
    messages: tuple[str, ...],
    target: str,
    rate: float,
    background: bool,
    as_json: bool,
    api: Api,
    search: Search | None,
) -> int:
    """Send dead letters back to work: those with these IDs, those that a search finds, or all.

    \b
    Examples:
      penstock dead redrive shop/orders
      penstock dead redrive shop/orders --reason rejected --rate 50
      penstock dead redrive shop/orders 0123456789abcdef0123456789abcdef --to shop/retry
    """
    for name in filter(None, (queue, target)):
        queue_of(name)
    job = NewJob(kind="redrive", queue=queue, target=target, ids=list(messages), search=search, rate=rate)
    return finish(api, api.ask("create-job", Job, body=job), background=background, as_json=as_json)


@command.command("purge", short_help="Remove dead letters for good.")
@click.argument("queue", metavar="NS/QUEUE")
@click.argument("messages", metavar="[ID]...", nargs=-1)
@search_options
@yes_option
@background_option
@api_options
@json_option
def purge(
    queue: str, messages: tuple[str, ...], yes: bool, background: bool, as_json: bool, api: Api,
    search: Search | None,
) -> int:  # fmt: skip
    """Remove dead letters for good: those with these IDs, those that a search finds, or all.

    \b
    Examples:
      penstock dead purge shop/orders
      penstock dead purge shop/orders --reason expired --yes
    """
    place = queue_of(queue)
    if messages or search is not None:
        which = f"{len(messages)} dead letters" if messages else "the dead letters that the search finds"
        confirm(f"This removes {which} of {queue} for good", yes=yes)
        wish = NewJob(kind="delete", queue=queue, state="dead", ids=list(messages), search=search)
        job = api.ask("create-job", Job, body=wish)
    else:
        count = api.ask("queue", QueueDetail, *place).dead
        confirm(f"This removes all {count} dead letters of {queue} for good", yes=yes, word=queue)
        job = api.ask("purge-queue", Job, *place, body=Purge(states=["dead"], confirm=queue))
    return finish(api, job, background=background, as_json=as_json)
