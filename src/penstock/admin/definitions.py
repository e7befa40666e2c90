"""Definitions: namespaces, queues and limits as one value. They are exported, compared and imported."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import QueueDetails, QueueRow
from penstock.admin.mirror import Mirror
from penstock.admin.problems import ApiProblem, fail, problem
from penstock.admin.resources.common import Change
from penstock.admin.resources.operations import Definitions
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.policy import QueueRules, policy_of, rules_of


class Importer:
    """Exports, compares and applies definitions. It asks for one queue at a time, to keep the broker responsive."""

    def __init__(self, broker: WatchedBroker, mirror: Mirror) -> None:
        self._broker = broker
        self._mirror = mirror

    async def exported(self, limits: dict[str, Any]) -> Definitions:
        """The current definitions."""
        await self._mirror.refresh()
        queues = {name: (await self._rules(name))[0] for name in sorted(self._mirror.names)}
        namespaces = await self._broker.ask(requests.Namespaces(), list[str])
        return Definitions(namespaces=namespaces, queues=queues, limits=limits)

    async def difference(self, wanted: Definitions, limits: dict[str, Any], *, remove: bool) -> list[Change]:
        """The changes to make, in order. Raises ApiProblem for definitions that are invalid or can't be applied."""
        for name in wanted.queues:
            namespace, slash, queue = name.partition("/")
            if not (namespace and slash and queue):
                text = f"a queue is named namespace/name, as in default/jobs, not {name!r}"
                fail("bad-request", text, field=f'body.queues["{name}"]')
        now = await self.exported(limits)
        needed = sorted({*wanted.namespaces, *(name.partition("/")[0] for name in wanted.queues)})
        changes = [
            Change(what="namespace", name=name, action="create") for name in needed if name not in now.namespaces
        ]
        for name, rules in wanted.queues.items():
            before = now.queues.get(name)
            if before is None:
                changes.append(Change(what="queue", name=name, action="create", after=rules))
            elif policy_of(before) != policy_of(rules):
                changes.append(Change(what="queue", name=name, action="change", before=before, after=rules))
        if remove:
            changes += _removals(wanted, now, needed)
        self._check_applicable(changes, now, limits)
        return changes + _limits(wanted.limits, limits)

    def _check_applicable(self, changes: list[Change], now: Definitions, limits: dict[str, Any]) -> None:
        """Reject an import that the broker would refuse halfway."""
        queues = [change.name for change in changes if (change.what, change.action) == ("queue", "create")]
        namespaces = [change.name for change in changes if (change.what, change.action) == ("namespace", "create")]
        for namespace, _, queue in (
            *((name, "", "") for name in namespaces),
            *(name.partition("/") for name in queues),
        ):
            longest = max(len(namespace.encode()), len(queue.encode()))
            if not namespace or "/" in namespace or longest > limits["name_bytes"]:
                name = f"{namespace}/{queue}" if queue else namespace
                text = f"a name has 1 to {limits['name_bytes']} bytes, and a namespace no /; not {name[:300]!r}"
                fail("bad-request", text, field="body")
        _check_number("queues", now.queues, queues, limits)
        _check_number("namespaces", now.namespaces, namespaces, limits)
        rows = {f"{row.namespace}/{row.name}": row for row in self._mirror.rows.values()}
        for change in changes:
            if (change.what, change.action) == ("queue", "delete") and not _is_empty(rows.get(change.name)):
                text = f"the queue {change.name} has messages and can't be deleted; nothing was changed"
                fail("conflict", text, field="query.remove")

    async def apply(self, changes: list[Change], by: str) -> None:
        """Make the changes one by one. Raises ApiProblem at the first failure, with the changes made so far."""
        wanted = [change for change in changes if change.what != "limit"]
        for made, change in enumerate(wanted):
            try:
                await self._apply(change, by)
            except ApiProblem as error:
                if not made:
                    raise
                raise _partial(error, wanted, made) from None
        await self._mirror.refresh()

    async def _apply(self, change: Change, by: str) -> None:
        namespace, _, name = change.name.partition("/")
        match change.what, change.action:
            case "namespace", "create":
                await self._broker.ask(requests.CreateNamespace(namespace=change.name, by=by), bool)
            case "namespace", "delete":
                await self._broker.ask(requests.DeleteNamespace(namespace=change.name, by=by), bool)
            case "queue", "create":
                policy = policy_of(change.after)
                asked = requests.CreateQueue(namespace=namespace, name=name, policy=policy, by=by)
                await self._broker.ask(asked, QueueDetails)
            case "queue", "change":
                await self._configure(namespace, name, change, by)
            case "queue", "delete":
                await self._broker.ask(requests.DeleteQueue(namespace=namespace, name=name, by=by), bool)

    async def _configure(self, namespace: str, name: str, change: Change, by: str) -> None:
        _, current = await self._rules(change.name)
        asked = requests.ConfigureQueue(
            namespace=namespace, name=name, policy=policy_of(change.after), expected=current.policy, by=by
        )
        await self._broker.ask(asked, QueueDetails)

    async def _rules(self, full_name: str) -> tuple[QueueRules, QueueDetails]:
        namespace, _, name = full_name.partition("/")
        found = await self._broker.ask(requests.DescribeQueue(namespace=namespace, name=name), QueueDetails)
        return rules_of(found.policy), found


def _check_number(what: str, now: Sized, new: Sized, limits: dict[str, Any]) -> None:
    if new and len(now) + len(new) > limits[what]:
        text = f"{len(now)} {what} and {len(new)} new ones exceed limits.{what}, which is {limits[what]}"
        fail("conflict", f"{text}; nothing was changed", field=f"body.{what}")


def _is_empty(row: QueueRow | None) -> bool:
    return row is None or not (row.ready or row.out or row.delayed or row.dead or row.damaged)


def _partial(error: ApiProblem, changes: list[Change], made: int) -> ApiProblem:
    """The problem of an import that stopped halfway: the changes made, the one refused, and how many are left."""
    done, refused = changes[:made], changes[made]
    names = [{"what": each.what, "name": each.name, "action": each.action} for each in (*done, refused)]
    text = (
        f"{made} of {len(changes)} changes were made, up to {done[-1].action} {done[-1].what} {done[-1].name}; then "
        f"{refused.action} {refused.what} {refused.name} was refused: {error.problem.detail}. "
        "Import again to make the rest"
    )
    state = {"made": names[:-1], "refused": names[-1], "left": len(changes) - made}
    summary = {"made": made, "of": len(changes), "last": names[-2], "refused": names[-1]}
    return problem(error.problem.code, text, field=error.problem.field, current=state, made=summary)


def _removals(wanted: Definitions, now: Definitions, needed: list[str]) -> list[Change]:
    found = [
        Change(what="queue", name=name, action="delete", before=rules)
        for name, rules in now.queues.items()
        if name not in wanted.queues
    ]
    return found + [
        Change(what="namespace", name=name, action="delete") for name in now.namespaces if name not in needed
    ]


def _limits(wanted: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    """Limits belong to the configuration: differences are reported, not applied."""
    note = "limits are set in the configuration file and take effect with a restart"
    return [
        Change(what="limit", name=name, action="change", before=now.get(name), after=value, note=note)
        for name, value in wanted.items()
        if now.get(name) != value
    ]


def as_toml(definitions: Definitions) -> str:
    """Definitions as TOML."""
    lines = [f'format = "{definitions.format}"', f"namespaces = {_toml(definitions.namespaces)}", "", "[limits]"]
    lines += [f"{name} = {_toml(value)}" for name, value in definitions.limits.items()]
    for name, rules in definitions.queues.items():
        lines += ["", f"[queues.{_toml(name)}]"]
        lines += [f"{each} = {_toml(value)}" for each, value in msgspec.structs.asdict(rules).items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value in TOML, whose strings and lists are those of JSON except for the escaping of DEL."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
