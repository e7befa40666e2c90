"""Who may do what. A peer's rights are worked out from the rules when it connects, and asked for by queue."""

from __future__ import annotations

import ipaddress
import pwd
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from penstock.server.options import AccessRule, Right


class Peer(NamedTuple):
    """What is known of the other end of a connection."""

    #: Its address, or "unix" for a Unix-domain socket.
    address: str
    #: The common name of its certificate.
    subject: str = ""
    #: The number of the user at the other end of a Unix-domain socket.
    user: int | None = None


class Rights:
    """What one peer may do. Without any rules: everything."""

    def __init__(self, rules: Sequence[AccessRule], peer: Peer) -> None:
        self._open = not rules
        self._rules = [rule for rule in rules if _matches(rule, peer)]
        self._known: dict[tuple[Right, str], bool] = {}

    def allow(self, right: Right, queue: str) -> bool:
        """Whether the peer may do this with the queue, given as namespace/name."""
        if self._open:
            return True
        known = self._known.get((right, queue))
        if known is None:
            known = any(
                right in rule.may and any(fnmatchcase(queue, pattern) for pattern in rule.where) for rule in self._rules
            )
            if len(self._known) < 10_000:  # a peer may name queues without end
                self._known[(right, queue)] = known
        return known


def _matches(rule: AccessRule, peer: Peer) -> bool:
    if rule.subject and not (peer.subject and fnmatchcase(peer.subject, rule.subject)):
        return False
    if rule.user and not _is_user(rule.user, peer.user):
        return False
    return not rule.network or _is_in(rule.network, peer.address)


def _is_user(wanted: str, user: int | None) -> bool:
    if user is None:
        return False
    if wanted.isdigit():
        return int(wanted) == user
    try:
        return pwd.getpwnam(wanted).pw_uid == user
    except KeyError:
        return False


def _is_in(network: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]) in ipaddress.ip_network(network)
    except ValueError:
        return False
