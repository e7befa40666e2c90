"""The peers of a broker: their number by address, their identities and rights."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from penstock.companions.certificate_subjects import common_name_of, subject_of_certificate
from penstock.companions.rights import Allowed, AskRights
from penstock.server.logs import Logger
from penstock.server.network.access import Peer, TokenRule, allowed, names_subject, plain_address
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.system.descriptors import connections_with_descriptors


class Peers:
    """Admits peers up to the limits of connections, and identifies them."""

    def __init__(self, options: BrokerOptions, log: Logger, count: Callable[[str], None]) -> None:
        self._limits = options.limits
        self._access = options.access
        self._log = log
        self._count = count
        #: As many as the options say, and no more than leave file descriptors for the journal.
        self.most = connections_with_descriptors(options.limits.connections)
        #: Connections by origin, including those whose handshake is not done.
        self.by_origin: Counter[str] = Counter()
        #: Tokens that were made while the broker runs, as rules.
        self.token_rules: Callable[[int], list[TokenRule]] = lambda now: []

    def arrive(self, protocol: str, peer: Peer) -> bool:
        """Count a new connection. False: it exceeds a limit and is to be closed."""
        origin = origin_of(peer.address)
        if self.by_origin.total() >= self.most:
            event, limit = "too many connections", self.most
        elif origin != "unix" and self.by_origin[origin] >= self._limits.connections_per_address:
            event, limit = "too many connections from one address", self._limits.connections_per_address
        else:
            self.by_origin[origin] += 1
            return True
        self._count("turned_away")
        self._log.warning(event, protocol=protocol, peer=peer.address, limit=limit)
        return False

    def leave(self, peer: Peer) -> None:
        """A connection that ``arrive`` has counted is closed."""
        origin = origin_of(peer.address)
        self.by_origin[origin] -= 1
        if not self.by_origin[origin]:
            del self.by_origin[origin]

    def identify(self, protocol: str, peer: Peer, certificate: Mapping[str, Any]) -> Peer:
        """The peer with the subject of its certificate. Warns about rules that name the common name instead."""
        subject, common_name = subject_of_certificate(certificate), common_name_of(certificate)
        if subject != common_name and any(names_subject(rule, common_name, subject) for rule in self._access):
            self._log.warning(
                "an access rule names a certificate's common name, but its subject is its first alternative name",
                protocol=protocol, common_name=common_name, subject=subject,
            )  # fmt: skip
        return peer._replace(subject=subject)

    def allowed(self, asked: AskRights, now: int) -> Allowed:
        """What a peer of the Flight endpoint or the HTTP process may do."""
        token, digest = ("", asked.token) if asked.hashed else (asked.token, "")
        peer = Peer(asked.address, asked.subject, token=token, token_sha256=digest)
        return allowed(self._access, peer, self.token_rules(now), closed=asked.closed)


def origin_of(address: str) -> str:
    """Whose connections are counted together: an IPv4 address, or the smallest network that one gets in IPv6."""
    plain = plain_address(address)
    if not isinstance(plain, ipaddress.IPv6Address):
        return str(plain) if plain else address
    return str(ipaddress.ip_network((int(plain) >> 64 << 64, 64)))


def origin_of_peer(peer: Peer) -> str:
    """Whose connections take turns: as ``origin_of``, and over a Unix-domain socket those of one user."""
    origin = origin_of(peer.address)
    return origin if peer.user is None else f"{origin} user {peer.user}"


def source_of(protocol: str, peer: Peer) -> bytes:
    """The protocol and address of a peer, as the source of events."""
    if peer.address != "unix":
        place = f"[{peer.address}]:{peer.port}" if ":" in peer.address else f"{peer.address}:{peer.port}"
    else:
        place = "unix" if peer.user is None else f"unix:{peer.user}"
    return f"{protocol} {place}".encode()
