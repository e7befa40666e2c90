"""Creating queues for peers. Queues are few and permanent, so the right to create them and their number are limited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.companions.rights import Right
from penstock.core.broker import Broker
from penstock.core.policy import Policy
from penstock.core.queue import Queue
from penstock.server.logs import Logger
from penstock.server.network.access import Rights
from penstock.server.options.broker_options import AccessRule, BrokerOptions

if TYPE_CHECKING:
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Rights that include creating queues on first use if no rule grants ``create``.
USING: tuple[Right, ...] = ("publish", "consume")


class Creation:
    """Creates queues, and counts by rule or by address those that peers have created since the start and that exist."""

    def __init__(self, options: BrokerOptions, broker: Broker, log: Logger, now: Callable[[], int]) -> None:
        self._limits = options.limits
        self._broker = broker
        self._log = log
        self._now = now
        self._rules = options.access
        #: Some rule grants ``create``, so creating needs that right.
        self._needs_right = any("create" in rule.may for rule in options.access)
        #: The rule or address for which each queue counts, by the queue's number.
        self._makers: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._deleted = self._deletions

    @overload
    def make_queue(
        self, namespace: str, name: str, session: AnySession, *, policy: Policy | None = None, always: Literal[True]
    ) -> Queue: ...

    @overload
    def make_queue(
        self, namespace: str, name: str, session: AnySession, *, policy: Policy | None = None
    ) -> Queue | None: ...

    def make_queue(
        self, namespace: str, name: str, session: AnySession, *, policy: Policy | None = None, always: bool = False
    ) -> Queue | None:
        """Create a queue, and its namespace if needed. None if the peer may not; ``always`` skips the check."""
        if not always and (reason := self._why_not(namespace, name, session)):
            self._log.warning("queue not made", **session.facts(), queue=f"{namespace}/{name}", reason=reason)
            return None
        now, source = self._now(), session.connection.source
        self._broker.create_namespace(namespace, now, source)
        queue = self._broker.create_queue(namespace, name, now, policy, source)
        if not always:
            self._note(session.rights, session.origin, queue)
        return queue

    def why_no_queue(self, namespace: str, name: str = "") -> str:
        """Why this queue or namespace may not be created by any peer; an empty string if it may."""
        broker, limits = self._broker, self._limits
        if max(len(namespace.encode()), len(name.encode())) > limits.name_bytes:
            return f"a name is longer than {limits.name_bytes} bytes"
        if "/" in namespace:
            return "there is a / in the namespace"
        if name and len(broker.queues) >= limits.queues:
            return f"there are {limits.queues} queues already"
        if namespace not in broker.namespaces and len(broker.namespaces) >= limits.namespaces:
            return f"there are {limits.namespaces} namespaces already"
        return ""

    def _why_not(self, namespace: str, name: str, session: AnySession) -> str:
        """Why this peer may not create this queue; an empty string if it may."""
        if why_not := self.why_no_queue(namespace, name):
            return why_not
        rights, origin = session.rights, session.origin
        accounts = list(self._accounts(rights, origin, namespace, name))
        if not accounts:
            return "it has no right to create queues"
        self._forget_deleted()
        if any(self._counts[maker] < most for maker, most in accounts):
            return ""
        maker, most = accounts[0]
        return f"{maker} has made {most} queues already"

    def why_not_over_flight(self, origin: str) -> str:
        """The same for a peer of the Flight endpoint, which has already checked its rights."""
        self._forget_deleted()
        maker, most = f"the address {origin}", self._limits.queues_per_address
        return "" if self._counts[maker] < most else f"{maker} has made {most} queues already"

    def note_over_flight(self, origin: str, queue: Queue) -> None:
        """Count a queue that a peer of the Flight endpoint has created."""
        maker = f"the address {origin}"
        self._counts[maker] += 1
        self._makers[queue.id] = maker

    def _note(self, rights: Rights, origin: str, queue: Queue) -> None:
        """Count a queue that the peer has created."""
        for maker, most in self._accounts(rights, origin, queue.namespace, queue.name):
            if self._counts[maker] < most:
                self._counts[maker] += 1
                self._makers[queue.id] = maker
                return

    def _accounts(self, rights: Rights, origin: str, namespace: str, name: str) -> Iterator[tuple[str, int]]:
        """The rules, or the address, for which the queue would count, each with its limit of queues."""
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
