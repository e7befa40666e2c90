"""``penstock queues``: the queues of a broker."""

from __future__ import annotations

import click

from penstock.admin.resources.common import Page
from penstock.admin.resources.queues import QueuesQuery, QueueSummary
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.output import json_option
from penstock.cli.pages import ListRange, page_options, pages, show_pages
from penstock.cli.queue_rows import COLUMNS, filter_options, row


@click.command("queues")
@filter_options
@page_options
@api_options
@json_option
def command(as_json: bool, query: QueuesQuery, want: ListRange, api: Api) -> None:
    """List queues that match PATTERN: messages by state, consumers, age of the oldest message, and rates.

    PATTERN is NAMESPACE/QUEUE with * and ?; a namespace alone is all its queues. `penstock top` shows changes.

    \b
    Examples:
      penstock queues
      penstock queues "shop/*" --sort ready --limit 10
      penstock queues --state backlog
      penstock queues --all --json | jq -r .name

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused.
    """
    found = pages(api, "queues", Page[QueueSummary], query=query, want=want)
    show_pages(found, COLUMNS, row, as_json=as_json, nothing="there are no such queues")
