"""``penstock status``: how a broker is."""

from __future__ import annotations

import click

from penstock.admin.resources.operations import Overview
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.errors import OK, REFUSED
from penstock.cli.output import age, amount, json_option
from penstock.cli.pages import show_one


@click.command("status")
@api_options
@json_option
def command(as_json: bool, api: Api) -> int:
    """How a broker is: whether it takes messages, runs compiled, its backlog and rates, connections, disk, and alarms.

    \b
    Examples:
      penstock status
      penstock status --url https://mq.example.com:9180 --token-file token
      penstock status --json | jq .totals.dead

    Exit codes: 0 it takes messages, 1 the broker is unreachable, 2 wrong use, 3 it refuses them, or the token.
    """
    overview = api.ask("overview", Overview)
    show_one(overview, _rows(overview), as_json=as_json)
    return OK if overview.ready else REFUSED


def _rows(overview: Overview) -> list[tuple[str, object]]:
    totals, rates, commits = overview.totals, overview.totals.rates, overview.commits
    dead = f" ({_counted(overview.dead_by_reason)})" if overview.dead_by_reason else ""
    rows: list[tuple[str, object]] = [
        ("broker", f"{overview.name or '-'}, Penstock {overview.version}, started {age(overview.started_at)} ago"),
        ("code", overview.code),
        ("state", "takes messages" if overview.ready else f"takes NO messages: {'; '.join(overview.reasons)}"),
        ("queues", f"{totals.queues} in {totals.namespaces} namespaces, {amount(totals.bytes)} of payloads"),
        ("messages", f"{totals.ready} ready, {totals.out} out, {totals.delayed} delayed, {totals.dead} dead{dead}"),
        ("oldest", f"{age(totals.oldest)} old" if totals.oldest else "-"),
        ("rates", f"{rates.published:.1f}/s published, {rates.delivered:.1f}/s delivered, {rates.settled:.1f}/s done"),
        ("connections", _connections(overview)),
        ("commits", f"{commits.per_second:.1f}/s, {commits.events:.1f} events in {commits.seconds * 1000:.1f} ms each"),
        ("disk", _disk(overview)),
    ]
    rows += [(f"{protocol}", " ".join(places)) for protocol, places in overview.listeners.items()]
    return rows + [(alarm.level.upper(), alarm.text) for alarm in overview.alarms if alarm.code != "not-ready"]


def _connections(overview: Overview) -> str:
    if overview.connections is None:
        return f"{overview.totals.consumers} consumers; a token that may view all queues sees more"
    by = f" ({_counted(overview.connections_by_protocol)})" if overview.connections_by_protocol else ""
    return f"{overview.connections}{by}, {overview.totals.consumers} consumers, {overview.readers} readers"


def _disk(overview: Overview) -> str:
    disk = overview.disk
    if disk is not None:
        return f"{amount(disk.free_bytes)} free of {amount(disk.total_bytes)}"
    return "none: everything is in memory" if overview.ephemeral else "that of the database"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
