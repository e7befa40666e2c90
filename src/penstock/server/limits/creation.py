"""Who may make a queue, and how many: the places for queues are few, are kept for ever, and belong to everybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.core.broker import Broker
from penstock.core.queue import Queue
from penstock.endpoint.rights import Right
from penstock.server.network.access import Rights
from penstock.server.process.options import AccessRule, BrokerOptions

#: What allows making queues on first use where no rule names the right to.
USING: tuple[Right, ...] = ("publish", "consume")


class Creation:
    """Counts the queues that peers have made since the start and that exist, by rule or by address."""

    def __init__(self, options: BrokerOptions, broker: Broker) -> None:
        self._limits = options.limits
        self._broker = broker
        self._rules = options.access
        #: Once a rule names it, it is needed.
        self._needs_right = any("create" in rule.may for rule in options.access)
        #: Whose account each queue is on.
        self._makers: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._deleted = self._deletions

    def why_not(self, rights: Rights, origin: str, namespace: str, name: str) -> str:
        """Why this peer may not make this queue, in a few words; empty if it may."""
        accounts = list(self._accounts(rights, origin, namespace, name))
        if not accounts:
            return "it has no right to create queues"
        self._forget_deleted()
        if any(self._counts[maker] < most for maker, most in accounts):
            return ""
        maker, most = accounts[0]
        return f"{maker} has made {most} queues already"

    def why_not_over_flight(self, origin: str) -> str:
        """The same for a peer of the Flight endpoint, which has looked at its rights."""
        self._forget_deleted()
        maker, most = f"the address {origin}", self._limits.queues_per_address
        return "" if self._counts[maker] < most else f"{maker} has made {most} queues already"

    def note_over_flight(self, origin: str, queue: Queue) -> None:
        """A peer of the Flight endpoint has made this queue."""
        maker = f"the address {origin}"
        self._counts[maker] += 1
        self._makers[queue.id] = maker

    def note(self, rights: Rights, origin: str, queue: Queue) -> None:
        """The peer has made this queue."""
        for maker, most in self._accounts(rights, origin, queue.namespace, queue.name):
            if self._counts[maker] < most:
                self._counts[maker] += 1
                self._makers[queue.id] = maker
                return

    def _accounts(self, rights: Rights, origin: str, namespace: str, name: str) -> Iterator[tuple[str, int]]:
        """On whose accounts the peer may make the queue, and how many each may have: its rules', or its address's."""
        if rights.open:
            yield f"the address {origin}", self._limits.queues_per_address
            return
        needed: tuple[Right, ...] = ("create", "administer") if self._needs_right else (*USING, "administer")
        for rule in rights.rules(needed, namespace, name):
            if rule.queues is None:
                yield f"the address {origin}", self._limits.queues_per_address
            else:
                yield f"access rule {self._number(rule)}", rule.queues

    def _number(self, rule: AccessRule) -> int:
        return next(number for number, each in enumerate(self._rules, 1) if each is rule)

    @property
    def _deletions(self) -> int:
        return self._broker.next_queue_id - len(self._broker.queues)

    def _forget_deleted(self) -> None:
        if self._deleted == self._deletions:
            return
        self._deleted = self._deletions
        self._makers = {queue: maker for queue, maker in self._makers.items() if queue in self._broker.queues}
        self._counts = Counter(self._makers.values())
