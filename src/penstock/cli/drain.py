"""``penstock drain``: empty the queues before a broker is stopped."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from penstock.admin.resources.operations import Drain, NewDrain
from penstock.cli.api import Api, ApiError
from penstock.cli.api_options import api_options
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.displays import counting
from penstock.cli.errors import CommandError
from penstock.cli.output import json_option, print_json, say, when

#: Seconds between two checks of what is left.
CHECK_EVERY = 0.5


@click.group("drain")
def command() -> None:
    """Refuse publishing so that consumers empty the queues.

    \b
    Examples:
      penstock drain start --wait
      penstock drain start --stop-when-empty --yes
      penstock drain show
      penstock drain end

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused.
    """


@command.command("start", short_help="Refuse publishing.")
@click.option("--stop-when-empty", is_flag=True, help="Stop the broker when nothing is left.")
@click.option("--wait", is_flag=True, help="Wait until nothing is left. Ctrl-C stops the waiting, not the drain.")
@yes_option
@api_options
@json_option
def start(stop_when_empty: bool, wait: bool, yes: bool, as_json: bool, api: Api) -> None:
    """Refuse publishing by all clients to all queues until `penstock drain end`, or until the broker stops.

    \b
    Examples:
      penstock drain start
      penstock drain start --wait --yes
      penstock drain start --stop-when-empty --yes
    """
    ends = ", and the broker ends when the queues are empty" if stop_when_empty else ""
    confirm(f"Publishing will be refused{ends}", yes=yes)
    drain = api.ask("begin-drain", Drain, body=NewDrain(stop_when_empty=stop_when_empty))
    if wait:
        drain = _wait(api, drain)
    _show(drain, as_json=as_json)


@command.command("show", short_help="Show whether the broker drains, and what is left.")
@api_options
@json_option
def show(as_json: bool, api: Api) -> None:
    """Show whether the broker refuses publishing, since when, by whom, and what is left in the queues.

    \b
    Examples:
      penstock drain show --json | jq .messages_left
    """
    _show(api.ask("drain", Drain), as_json=as_json)


@command.command("end", short_help="Accept messages again.")
@api_options
@json_option
def end(as_json: bool, api: Api) -> None:
    """Accept messages again.

    \b
    Examples:
      penstock drain end
    """
    _show(api.ask("end-drain", Drain), as_json=as_json)


def _wait(api: Api, drain: Drain) -> Drain:
    """Wait until nothing is left, or until the broker has stopped because of that."""
    most = drain.messages_left
    with counting() as bar:
        task: Any = bar.add_task("draining", total=most, rate="")
        while drain.messages_left:
            time.sleep(CHECK_EVERY)
            try:
                drain = api.ask("drain", Drain)
            except ApiError:
                raise
            except CommandError:
                if not drain.stop_when_empty:
                    raise
                return msgspec.structs.replace(drain, messages_left=0, connections=0)
            most = max(most, drain.messages_left)
            bar.update(task, total=most, completed=most - drain.messages_left)
    return drain


def _show(drain: Drain, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(drain))
        return
    ends = "; the broker ends when nothing is left" if drain.stop_when_empty else ""
    state = f"publishing is refused since {when(drain.since)}, by {drain.by}{ends}" if drain.active else "not draining"
    say(f"{state}: {drain.messages_left} messages in the queues, {drain.connections} connections")
