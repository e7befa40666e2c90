"""A peer's rights, as the broker sends them to companion processes, which must enforce them."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.companions.framing import Request
from penstock.patterns import fits_queue, includes_every_queue

#: "read" is for a queue's history, over Flight. "create" is for creating queues on first use; if no rule names it,
#: "publish" and "consume" suffice for that.
#: "view", "operate" and "admin" are for the HTTP API; each includes those before it.
Right = Literal["publish", "consume", "dead-letter", "administer", "read", "create", "view", "operate", "admin"]


class AskRights(Request, frozen=True, kw_only=True, tag="rights"):
    """Ask for a peer's rights. Answered by ``Allowed``."""

    address: str
    subject: str = ""
    token: str = ""
    #: SHA-256 of the token, in hex.
    hashed: bool = False
    #: The protocol rejects peers without credentials, even without rules.
    closed: bool = False


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """The access rules for a peer: rights with patterns of namespace/queue. ``open``: there are no rules."""

    open: bool
    #: The peer showed a token that no rule knows.
    unknown_token: bool = False
    rules: list[tuple[list[Right], list[str]]] = []
    #: The owner of the names that the peer creates. Empty: there are no rules.
    identity: str = ""
    #: The ID of the token shown, if known: names of tokens are not unique.
    token_id: str = ""

    def may(self, right: Right, namespace: str, name: str) -> bool:
        """Whether the rules grant this right on this queue."""
        return self.open or any(
            right in rights and any(fits_queue(pattern, namespace, name) for pattern in patterns)
            for rights, patterns in self.rules
        )

    def may_everywhere(self, right: Right) -> bool:
        """Whether the rules grant this right on all queues, including future ones."""
        return self.open or any(
            right in rights and any(map(includes_every_queue, patterns)) for rights, patterns in self.rules
        )

    def may_somewhere(self, right: Right) -> bool:
        """Whether the rules grant this right on some queue."""
        return self.open or any(right in rights and patterns for rights, patterns in self.rules)

    def may_anything(self) -> bool:
        """Whether the peer has any right at all."""
        return self.open or any(rights and patterns for rights, patterns in self.rules)

    def patterns(self, right: Right) -> list[str]:
        """Patterns of the queues on which the rules grant this right."""
        if self.open:
            return ["*"]
        return [pattern for rights, patterns in self.rules if right in rights for pattern in patterns]
