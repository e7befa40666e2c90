"""``penstock queue``: show, create, configure, pause, purge and delete one queue."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from msgspec import structs

from penstock.admin.resources.common import Done
from penstock.admin.resources.messages import Job
from penstock.admin.resources.queues import NewQueue, Purge, QueueDetail, RulesChange
from penstock.cli.api import Api, queue_of
from penstock.cli.api_options import api_options, with_options
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.errors import WRONG_USE, CommandError
from penstock.cli.job_progress import background_option, finish
from penstock.cli.output import age, amount, json_option, print_done, when
from penstock.cli.pages import show_one
from penstock.core.policy import QueueRules

#: The rules with a flag; ``paused`` has commands instead.
RULES = tuple(name for name in QueueRules.__struct_fields__ if name != "paused")
STATES = ("ready", "delayed", "dead")


def rule_options(command: Any) -> Any:
    """A flag for each rule of a queue, named as in the configuration file."""
    return with_options(command, *(_flag(rule) for rule in structs.fields(QueueRules) if rule.name in RULES))


def _flag(rule: structs.FieldInfo) -> Any:
    schema, flag = msgspec.json.schema(rule.type), rule.name.replace("_", "-")
    about = f"{schema['description']}."
    least, most = schema.get("exclusiveMinimum", schema.get("minimum")), schema.get("maximum")
    match schema.get("type"):
        case "boolean":
            return click.option(f"--{flag}/--no-{flag}", default=None, help=about)
        case "number":
            seconds = click.FloatRange(least, most, min_open="exclusiveMinimum" in schema)
            return click.option(f"--{flag}", type=seconds, metavar="S", help=about)
        case "integer":
            return click.option(f"--{flag}", type=click.IntRange(least, most), metavar="N", help=about)
        case _:
            return click.option(f"--{flag}", type=click.Choice(list(schema["x-choices"])), help=about)


@click.group("queue")
def command() -> None:
    """Show, create, configure, pause, resume, purge and delete one queue.

    \b
    Examples:
      penstock queue show shop/orders
      penstock queue create shop/orders --max-deliveries 5
      penstock queue configure shop/orders --max-depth 100000 --on-full reject
      penstock queue pause shop/orders
      penstock queue purge shop/orders --state dead --yes

    Exit codes: 0 done, 1 the broker is unreachable, 2 wrong use, 3 refused or changed concurrently, 4 no such queue.
    """


@command.command("show", short_help="Show one queue.")
@click.argument("queue", metavar="NS/QUEUE")
@api_options
@json_option
def show(queue: str, as_json: bool, api: Api) -> None:
    """Show a queue: its messages by state, rates, counters, dead letters by reason, and its rules.

    \b
    Examples:
      penstock queue show shop/orders
      penstock queue show shop/orders --json | jq .rules
    """
    _show(api.ask("queue", QueueDetail, *queue_of(queue)), as_json=as_json)


@command.command("create", short_help="Create a queue and its namespace.")
@click.argument("queue", metavar="NS/QUEUE")
@rule_options
@api_options
@json_option
def create(queue: str, as_json: bool, api: Api, **flags: Any) -> None:
    """Create a queue and its namespace. By default it has no limits and keeps dead letters.

    \b
    Examples:
      penstock queue create shop/orders
      penstock queue create shop/offers --default-ttl-seconds 3600 --on-expiry drop
    """
    rules = QueueRules(**_given(flags))
    created = api.ask("create-queue", QueueDetail, *queue_of(queue), body=NewQueue(rules=rules))
    _show(created, as_json=as_json)


@command.command("configure", short_help="Change some rules of a queue.")
@click.argument("queue", metavar="NS/QUEUE")
@rule_options
@click.option("--if-version", metavar="VERSION", default="", help="Only if its rules have this version; see show.")
@api_options
@json_option
def configure(queue: str, if_version: str, as_json: bool, api: Api, **flags: Any) -> None:
    """Change some rules of a queue; the others stay. Exit 3 if another client has changed them at the same time.

    \b
    Examples:
      penstock queue configure shop/orders --max-depth 100000
      penstock queue configure shop/orders --no-dead-letters --if-version 4f1c2ab90d3e5f67
    """
    given = _given(flags)
    if not given:
        raise CommandError("no rule is given: name those to change, as in --max-depth 1000", exit_code=WRONG_USE)
    version = if_version or api.ask("queue", QueueDetail, *queue_of(queue)).version
    change = RulesChange(**given)
    changed = api.ask("configure-queue", QueueDetail, *queue_of(queue), body=change, version=version)
    _show(changed, as_json=as_json)


@command.command("pause", short_help="Stop delivering messages.")
@click.argument("queue", metavar="NS/QUEUE")
@api_options
@json_option
def pause(queue: str, as_json: bool, api: Api) -> None:
    """Stop delivering messages; publishing continues.

    \b
    Examples:
      penstock queue pause shop/orders
    """
    _show_paused(api.ask("pause-queue", QueueDetail, *queue_of(queue)), as_json=as_json)


@command.command("resume", short_help="Deliver messages again.")
@click.argument("queue", metavar="NS/QUEUE")
@api_options
@json_option
def resume(queue: str, as_json: bool, api: Api) -> None:
    """Deliver messages again.

    \b
    Examples:
      penstock queue resume shop/orders
    """
    _show_paused(api.ask("resume-queue", QueueDetail, *queue_of(queue)), as_json=as_json)


@command.command("purge", short_help="Remove all messages in some states.")
@click.argument("queue", metavar="NS/QUEUE")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="May be repeated. [default: ready]")
@yes_option
@background_option
@api_options
@json_option
def purge(queue: str, states: tuple[Any, ...], yes: bool, background: bool, as_json: bool, api: Api) -> int:
    """Remove all messages in some states for good. Messages that are out stay.

    \b
    Examples:
      penstock queue purge shop/orders
      penstock queue purge shop/orders --state ready --state dead --yes
    """
    wanted = list(dict.fromkeys(states)) or ["ready"]
    detail = api.ask("queue", QueueDetail, *queue_of(queue))
    count = sum(getattr(detail, state) for state in wanted)
    confirm(f"This removes {count} messages ({', '.join(wanted)}) of {queue} for good", yes=yes, word=queue)
    job = api.ask("purge-queue", Job, *queue_of(queue), body=Purge(states=wanted, confirm=queue))
    return finish(api, job, background=background, as_json=as_json)


@command.command("delete", short_help="Delete an empty queue.")
@click.argument("queue", metavar="NS/QUEUE")
@yes_option
@api_options
@json_option
def delete(queue: str, yes: bool, as_json: bool, api: Api) -> None:
    """Delete an empty queue.

    \b
    Examples:
      penstock queue delete shop/orders
      penstock queue delete shop/orders --yes
    """
    namespace, name = queue_of(queue)
    confirm(f"This deletes the queue {queue}", yes=yes, word=queue)
    done = api.ask("delete-queue", Done, namespace, name)
    print_done({"queue": queue, "deleted": done.done}, f"{queue} is deleted", as_json=as_json)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    """Remove the rules from the flags, and return those that were given."""
    found = {name: flags.pop(name) for name in RULES}
    return {name: value for name, value in found.items() if value is not None}


def _show_paused(queue: QueueDetail, *, as_json: bool) -> None:
    state = "paused" if queue.paused else "not paused"
    print_done(msgspec.to_builtins(queue), f"{queue.name} is {state}", as_json=as_json)


def _show(queue: QueueDetail, *, as_json: bool) -> None:
    rates = queue.rates
    dead = ", ".join(f"{reason} {count}" for reason, count in queue.dead_by_reason.items())
    counters = structs.asdict(queue.counters)
    rows: list[tuple[str, object]] = [
        ("queue", f"{queue.name}, created {when(queue.created_at)}{', paused' if queue.paused else ''}"),
        ("messages", f"{queue.ready} ready, {queue.out} out, {queue.delayed} delayed, {queue.dead} dead"),
        ("dead by reason", dead or "-"),
        ("payloads", amount(queue.bytes)),
        ("oldest", age(queue.oldest)),
        ("consumers", queue.consumers),
        ("rates", f"{rates.published:.1f}/s published, {rates.delivered:.1f}/s delivered, {rates.settled:.1f}/s done"),
        ("counters", ", ".join(f"{name} {count}" for name, count in counters.items() if count) or "-"),
        *((name.replace("_", "-"), f"{getattr(queue.rules, name)}") for name in RULES),
        ("version", queue.version),
    ]
    show_one(queue, rows, as_json=as_json)
