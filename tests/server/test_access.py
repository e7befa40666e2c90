"""Access rules, without a broker."""

from __future__ import annotations

import hashlib
import os
import pwd
from typing import Any

import pytest

from penstock.companions.rights import Right
from penstock.patterns import fits
from penstock.server.network.access import IDENTITY_BYTES, Peer, Rights, allowed, plain_address
from penstock.server.options.broker_options import AccessRule

ANYBODY = Peer("192.0.2.1")


def allows(peer: Peer, queue: str = "default/q", **rule: Any) -> bool:
    namespace, _, name = queue.partition("/")
    return Rights([AccessRule(**({"may": ["publish"]} | rule))], peer).allow("publish", namespace, name)


def test_without_rules_every_peer_may_do_everything() -> None:
    assert Rights([], ANYBODY).allow("administer", "any", "queue")


def test_with_rules_only_what_one_of_them_grants() -> None:
    rules = [AccessRule(may=["publish"], where=["a/*"]), AccessRule(may=["consume", "dead-letter"], where=["b/*"])]
    rights = Rights(rules, ANYBODY)
    every: tuple[Right, ...] = ("publish", "consume", "dead-letter", "administer")
    allowed = {(right, namespace) for right in every for namespace in "abc" if rights.allow(right, namespace, "q")}
    assert allowed == {("publish", "a"), ("consume", "b"), ("dead-letter", "b")}


@pytest.mark.parametrize(
    ("pattern", "queue", "expected"),
    [
        ("*", "any/queue", True),
        ("orders", "orders/new", True),
        ("orders", "orders2/new", False),
        ("orders/*", "orders/new/eu", True),
        ("orders/*", "orders-old/new", False),
        ("*/jobs", "default/jobs", True),
        ("*/jobs", "default/other/jobs", False),
        ("a/b*", "a/b/c", True),
        ("default/job-?", "default/job-1", True),
        ("default/job-?", "default/job-12", False),
        ("default/[ab]", "default/a", False),
        ("default/[ab]", "default/[ab]", True),
        ("default/a.c", "default/abc", False),
        ("default/*x", "default/line\nx", True),
        ("Default/q", "default/q", False),
    ],
)
def test_patterns(pattern: str, queue: str, expected: bool) -> None:
    assert allows(ANYBODY, queue=queue, where=[pattern]) is expected


def test_no_namespace_looks_like_a_queue_of_another_one() -> None:
    rights = Rights([AccessRule(may=["publish"], where=["a/b/*"])], ANYBODY)
    assert rights.allow("publish", "a", "b/c")
    assert not rights.allow("publish", "a/b", "c")


def test_a_pattern_is_matched_quickly_whatever_the_name() -> None:
    assert not fits("*a*a*a", "b" * 255)


@pytest.mark.parametrize(
    ("network", "address", "expected"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:11.1.2.3", False),
        ("0.0.0.0/0", "2001:db8::1", False),
        ("2001:db8::/32", "2001:db8:1::1", True),
        ("2001:db8::/32", "2001:db9::1", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("::1", "::1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "unix", False),
    ],
)
def test_networks(network: str, address: str, expected: bool) -> None:
    assert allows(Peer(address), network=network) is expected


def test_subjects() -> None:
    assert allows(Peer("192.0.2.1", "billing-1"), subject="billing-*")
    assert not allows(Peer("192.0.2.1", "xbilling-1"), subject="billing-*")
    assert not allows(Peer("192.0.2.1"), subject="*")


def test_users_by_name_and_number() -> None:
    me = os.getuid()
    peer = Peer("unix", user=me)
    assert allows(peer, user=str(me))
    assert allows(peer, user=pwd.getpwuid(me).pw_name)
    assert not allows(peer, user=str(me + 1))
    assert not allows(peer, user="no-user-of-this-name")
    assert not allows(Peer("127.0.0.1"), user=str(me))


def test_everything_that_a_rule_gives_must_match() -> None:
    rule: dict[str, Any] = {"subject": "billing", "network": "10.0.0.0/8"}
    assert allows(Peer("10.0.0.1", "billing"), **rule)
    assert not allows(Peer("10.0.0.1", "other"), **rule)
    assert not allows(Peer("11.0.0.1", "billing"), **rule)


def test_a_peer_that_names_endless_queues_fills_no_memory() -> None:
    rights = Rights([AccessRule(may=["publish"], where=["default/1*"])], ANYBODY)
    answers = [rights.allow("publish", "default", str(number)) for number in range(20_000)]
    assert sum(answers) == sum(str(number).startswith("1") for number in range(20_000))
    assert len(rights._known) <= 1_000


def test_addresses() -> None:
    assert str(plain_address("::ffff:10.0.0.1")) == "10.0.0.1"
    assert str(plain_address("fe80::1%eth0")) == "fe80::1"
    assert plain_address("unix") is None


@pytest.mark.parametrize("rule", [{"network": "10.0.0.1/8"}, {"network": "here"}, {"where": [""]}])
def test_invalid_rules_are_errors(rule: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"a network is as in|pattern"):
        AccessRule(may=["publish"], **rule)


class TestTokens:
    TOKEN = "a token"
    RULE = AccessRule(token_sha256=hashlib.sha256(TOKEN.encode()).hexdigest(), may=["read"])

    @pytest.mark.parametrize("token", ["", "another", "a token ", "\udcff"])
    def test_a_rule_with_a_token_applies_to_peers_that_present_it(self, token: str) -> None:
        shown = Peer("192.0.2.1", token=self.TOKEN)
        assert Rights([self.RULE], shown).allow("read", "a", "b")
        assert not Rights([self.RULE], shown._replace(token=token)).allow("read", "a", "b")

    def test_the_hash_of_an_empty_token_grants_nothing(self) -> None:
        rule = AccessRule(token_sha256=hashlib.sha256(b"").hexdigest(), may=["read"])
        assert not Rights([rule], Peer("192.0.2.1")).allow("read", "a", "b")

    def test_hashes_may_be_upper_case(self) -> None:
        rule = AccessRule(token_sha256=self.RULE.token_sha256.upper(), may=["read"])
        assert Rights([rule], Peer("192.0.2.1", token=self.TOKEN)).allow("read", "a", "b")


class TestIdentity:
    """The owners of readers' and writers' names."""

    RULES = (
        AccessRule(network="10.0.0.0/8", may=["read"]),
        AccessRule(network="10.1.0.0/16", may=["read"]),
        AccessRule(network="10.2.0.0/16", name="site two", may=["read"]),
        AccessRule(subject="billing-*", may=["read"]),
        AccessRule(subject="shop-*", name="shop", may=["read"]),
        AccessRule(token_sha256=hashlib.sha256(b"plain").hexdigest(), may=["read"]),
        AccessRule(token_sha256=hashlib.sha256(b"old").hexdigest(), name="etl", may=["read"]),
        AccessRule(token_sha256=hashlib.sha256(b"new").hexdigest(), name="etl", may=["read"]),
    )

    @pytest.mark.parametrize(
        ("peer", "expected"),
        [
            (Peer("192.0.2.1"), "no credentials"),
            (Peer("unix"), "no credentials"),
            (Peer("10.9.0.1"), "network 10.0.0.0/8"),
            (Peer("10.1.0.1"), "network 10.1.0.0/16"),
            (Peer("10.2.0.1"), "site two"),
            (Peer("10.2.0.1", subject="billing-1"), "subject billing-1"),
            (Peer("10.2.0.1", subject="shop-1"), "shop"),
            (Peer("10.2.0.1", subject="somebody"), "subject somebody"),
            (Peer("10.2.0.1", subject="shop-1", token="old"), "etl"),
            (Peer("192.0.2.1", token="new"), "etl"),
            (Peer("10.2.0.1", token="plain"), "token " + hashlib.sha256(b"plain").hexdigest()[:16]),
        ],
    )
    def test_the_strongest_credential_counts(self, peer: Peer, expected: str) -> None:
        assert allowed(self.RULES, peer).identity == expected

    def test_it_is_never_empty_with_rules_and_never_long(self) -> None:
        assert allowed((), Peer("10.2.0.1", subject="x", token="y")).identity == ""
        first, second = (allowed(self.RULES, Peer("", subject="x" * 10_000 + each)).identity for each in "ab")
        assert first != second
        assert max(len(first), len(second)) <= IDENTITY_BYTES
