"""What a peer may do, as the broker tells the processes beside it, which have to hold their clients to that."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.patterns import fits_queue, includes_every_queue

#: "read" is for the history of a queue, over Flight. "create" is for making queues on first use; where no rule names
#: it, "publish" and "consume" are enough for that.
#: "view", "operate" and "admin" are for the HTTP API, each with those before it.
Right = Literal["publish", "consume", "dead-letter", "administer", "read", "create", "view", "operate", "admin"]


class AskRights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="rights"):
    """What may this peer do? Answered by ``Allowed``."""

    address: str
    subject: str = ""
    token: str = ""
    #: The token is told by its SHA-256, in hex.
    hashed: bool = False
    #: Over a protocol that is closed to who shows nothing, whether there are rules or not.
    closed: bool = False


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """What the access rules say of a peer: a list of rights and patterns of namespace/queue. ``open``: no rules."""

    open: bool
    #: A token was shown, and no rule knows it.
    unknown_token: bool = False
    rules: list[tuple[list[Right], list[str]]] = []
    #: To whom the names belong that the peer makes. Empty: nobody, as there are no rules.
    identity: str = ""
    #: Which token was shown, where it is known: names of tokens repeat.
    token_id: str = ""

    def may(self, right: Right, namespace: str, name: str) -> bool:
        """Whether the rules say so for this queue."""
        return self.open or any(
            right in rights and any(fits_queue(pattern, namespace, name) for pattern in patterns)
            for rights, patterns in self.rules
        )

    def may_everywhere(self, right: Right) -> bool:
        """Whether the rules say so for all queues, those that do not exist yet too."""
        return self.open or any(
            right in rights and any(map(includes_every_queue, patterns)) for rights, patterns in self.rules
        )

    def may_somewhere(self, right: Right) -> bool:
        """Whether there may be a queue for which the rules say so."""
        return self.open or any(right in rights and patterns for rights, patterns in self.rules)

    def may_anything(self) -> bool:
        """Whether there is any right that the peer has."""
        return self.open or any(rights and patterns for rights, patterns in self.rules)

    def patterns(self, right: Right) -> list[str]:
        """Of the queues for which the rules say so."""
        if self.open:
            return ["*"]
        return [pattern for rights, patterns in self.rules if right in rights for pattern in patterns]
