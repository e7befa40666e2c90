"""A queue's rules mean the same in the configuration, over the API and in commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock.admin.openapi import document
from penstock.admin.resources.queues import RulesChange
from penstock.cli.queue import configure, create
from penstock.core.policy import SECOND, Policy, QueueRules, policy_of, rules_of
from penstock.server.options.option_tree import ROOT, known_keys
from support.commands import penstock_here
from support.web import Api, WebBroker, path_of

#: Seconds that are no whole number of microseconds, and the microseconds they become: rounded, and never to 0.
TIMES = [(1e-7, 1e-6), (0.000249, 0.000249), (1.0000004, 1.0), (2**32, 2**32)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    tables = {f"configured/{at}": rules(seconds) for at, (seconds, _) in enumerate(TIMES)}
    with WebBroker(tmp_path_factory.mktemp("broker"), queues=tables) as found:
        yield found


def rules(seconds: float) -> dict[str, float]:
    """Rules with this time in every field that is a time."""
    return dict.fromkeys(("default_ttl_seconds", "lock_seconds", "deduplication_seconds"), seconds)


@pytest.mark.parametrize("at", range(len(TIMES)))
@pytest.mark.parametrize("way", ["configured", "api", "changed", "definitions", "command"])
def test_times_are_rounded_to_microseconds_in_every_way(broker: WebBroker, way: str, at: int) -> None:
    api, name, (seconds, expected) = broker.api, f"{way}/{at}", TIMES[at]
    match way:
        case "api":
            api.do("PUT", f"queues/{path_of(name)}", {"rules": rules(seconds)})
        case "changed":
            api.do("PUT", f"queues/{path_of(name)}", {})
            api.do("PATCH", f"queues/{path_of(name)}", rules(seconds), {"If-Match": "*"})
        case "definitions":
            api.do("POST", "definitions", {"queues": {name: rules(seconds)}})
        case "command":
            flags = [f"--{rule.replace('_', '-')}={value!r}" for rule, value in rules(seconds).items()]
            where = [f"--url={broker.addresses['http']}", f"--token-file={broker.folder / 'admin-token'}"]
            assert penstock_here("queue", "create", name, *flags, *where).code == 0
    assert times(api, name) == rules(expected)
    api.do("POST", f"queues/{path_of(name)}/pause")
    assert times(api, name) == rules(expected)


def times(api: Api, name: str) -> dict[str, Any]:
    """Names of the rules that are times."""
    return {rule: value for rule, value in api.get(f"queues/{path_of(name)}")["rules"].items() if "_seconds" in rule}


#: For each rule, a value other than the default, and how it is journaled.
OTHERS: dict[str, Any] = {
    "default_ttl_seconds": 1.5,
    "on_expiry": "drop",
    "max_deliveries": 2,
    "dead_letters": False,
    "max_depth": 3,
    "max_bytes": 4,
    "on_full": "drop-oldest",
    "lock_seconds": 5.25,
    "deduplication_seconds": 6.0,
    "paused": True,
}
JOURNALLED = (
    b'{"default_ttl":1500000,"on_expiry":"drop","max_deliveries":2,"dead_letters":false,"max_depth":3,"max_bytes":4,'
    b'"on_full":"drop-oldest","lock_duration":5250000,"deduplication":6000000,"paused":true}'
)


def test_the_journal_format_of_rules_is_unchanged() -> None:
    policy = policy_of(QueueRules(**OTHERS))
    assert msgspec.json.encode(policy) == JOURNALLED
    assert msgspec.json.decode(JOURNALLED, type=Policy) == policy
    assert msgspec.json.encode(Policy()) == b"{}"


def test_the_broker_has_every_rule_with_the_same_default() -> None:
    assert policy_of(QueueRules()) == Policy()
    assert rules_of(Policy()) == QueueRules()
    assert rules_of(policy_of(QueueRules(**OTHERS))) == QueueRules(**OTHERS)
    names = tuple(name.removesuffix("_seconds") for name in QueueRules.__struct_fields__)
    assert names == Policy.__struct_fields__


@pytest.mark.parametrize("microseconds", [1, 249, 10**6 - 1, 86_400 * SECOND + 1, 2**32 * SECOND])
def test_a_time_in_microseconds_survives_a_round_trip_to_the_user(microseconds: int) -> None:
    policy = Policy(default_ttl=microseconds, lock=microseconds, deduplication=microseconds)
    assert policy_of(rules_of(policy)) == policy


@pytest.mark.parametrize("rule", QueueRules.__struct_fields__)
def test_a_rule_is_an_option_a_field_of_the_api_and_a_flag(rule: str) -> None:
    assert rule in known_keys(ROOT / "queues" / "default/jobs")
    schemas = document("1", "cookie")["components"]["schemas"]
    shown = schemas["QueueRules"]["properties"][rule]
    assert shown["title"]
    assert shown["description"]
    assert sorted(shown.get("x-choices", ())) == shown.get("enum", [])
    default = shown.pop("default")
    assert default == getattr(QueueRules(), rule)
    assert default != OTHERS[rule]
    assert schemas["RulesChange"]["properties"][rule] == shown
    change = msgspec.convert({rule: OTHERS[rule]}, RulesChange)
    assert msgspec.to_builtins(change) == {rule: OTHERS[rule]}
    for command in (create, configure):
        flags = {each.name: each for each in command.params}
        assert (rule in flags) == (rule != "paused")
        assert rule not in flags or flags[rule].help == f"{shown['description']}."
