"""Kokaq requests about queues, namespaces and the broker; and the queues that a peer may use, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr

from penstock.companions.rights import Right
from penstock.core.policy import MILLISECOND, SECOND, Policy
from penstock.core.queue import Queue
from penstock.server.network.session import EFFORT, Session
from penstock.server.protocols.kokaq.message_answer import MOST
from penstock.server.protocols.kokaq.pending import PendingAnswers
from penstock.wire.kokaq import MessageType, Metadata, Reason, Request, Status

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime

    AnySession = Session[Any]

#: The namespace of a queue that is named without one.
DEFAULT_NAMESPACE: Final = "default"
NO_METADATA: Final = Metadata()


@mypyc_attr(native_class=False)
class Missing(Exception):
    """The queue or namespace that a request names does not exist, or it names none."""


@mypyc_attr(native_class=False)
class NotAllowed(Exception):
    """The peer may not do this."""


class QueueRequests:
    """Looks up, creates, describes and deletes queues for one session. Raises Missing or NotAllowed."""

    def __init__(self, runtime: Runtime, answers: PendingAnswers, *, create_on_push: bool) -> None:
        self._runtime = runtime
        self._answers = answers
        self._create_on_push = create_on_push

    def find(self, session: AnySession, request: Request) -> Queue:
        """The queue that a request names, for a peer that may consume from it."""
        namespace, name = _names(request)
        _require(session, "consume", namespace, name)
        queue = self._runtime.broker.queue(namespace, name)
        if queue is None:
            raise Missing
        return queue

    def find_or_create(self, session: AnySession, namespace: str | None, name: str | None) -> Queue:
        """The queue that a Push names. It is created if the listener's options say so."""
        if namespace is None or name is None:
            raise Missing
        namespace = namespace or DEFAULT_NAMESPACE
        if not session.rights.open:
            _require(session, "publish", namespace, name)
        queue = self._runtime.broker.queue(namespace, name)
        if queue is not None:
            return queue
        if not (self._create_on_push and name):
            raise Missing
        queue = self._runtime.creation.make_queue(namespace, name, session)
        if queue is None:
            raise NotAllowed
        return queue

    def create(self, session: AnySession, request: Request) -> None:
        """Create a queue or, without a queue name, a namespace."""
        namespace, name = _names(request)
        _require(session, "administer", namespace, name)
        broker, creation = self._runtime.broker, self._runtime.creation
        if broker.queue(namespace, name) is not None if name else namespace in broker.namespaces:
            self._answers.fail(request, Reason.EXISTS)
            return
        if name:
            policy = _policy(request.metadata or NO_METADATA)
            created = creation.make_queue(namespace, name, session, policy=policy) is not None
        elif created := not creation.why_no_queue(namespace):
            broker.create_namespace(namespace, self._runtime.now(), session.connection.source)
        self._answer(request, created)

    def delete(self, session: AnySession, request: Request) -> None:
        """Delete an empty queue or, without a queue name, a namespace without queues."""
        broker, now, source = self._runtime.broker, self._runtime.now(), session.connection.source
        namespace, name = _names(request)
        _require(session, "administer", namespace, name)
        if name:
            queue = broker.queue(namespace, name)
            if queue is None:
                raise Missing
            deleted = broker.delete_queue(queue, now, source)
        elif namespace in broker.namespaces:
            deleted = broker.delete_namespace(namespace, now, source)
        else:
            raise Missing
        self._answer(request, deleted)

    def describe(self, session: AnySession, request: Request) -> None:
        """Give the facts of a queue or, for a Control message without a name, of the broker."""
        if request.namespace is None and request.message_type is MessageType.CONTROL:
            if not session.rights.allow_everywhere("consume", "administer"):  # they are totals of all queues
                raise NotAllowed
            session.effort += len(self._runtime.broker.queues) // EFFORT
            facts = self._broker_facts()
        else:
            facts = _queue_facts(self.find(session, request))
        self._answers.answer(request, Status.SUCCESS, Reason.OK, facts)

    def check_health(self, request: Request) -> None:
        """Answer a Nop; for a Control message, with the reason if the broker is not healthy."""
        trouble = self._runtime.health.trouble() if request.message_type is MessageType.CONTROL else ""
        if trouble:
            # The text takes the place of a second opaque byte: a peer that sent one gets that back instead.
            text = Metadata(source=trouble) if not request.nop_opaque else None
            self._answers.answer(request, Status.FAIL, Reason.INFRA, text)
        else:
            self._answers.answer(request, Status.SUCCESS, Reason.OK)

    def _answer(self, request: Request, done: bool) -> None:
        if done:
            self._answers.succeed(request)
        else:
            self._answers.fail(request, Reason.NOT_ALLOWED)

    def _broker_facts(self) -> Metadata:
        """How many messages are ready in all queues, since when the broker runs, and its counters."""
        runtime = self._runtime
        broker = runtime.broker
        totals = {"connections": len(runtime.sessions), "queues": len(broker.queues)}
        for queue in broker.queues.values():
            for name in ("published", "acknowledged"):
                totals[name] = totals.get(name, 0) + getattr(queue.counters, name)
        if broker.damaged:
            totals["damaged"] = broker.damaged
        totals["max_payload"] = runtime.options.limits.payload_bytes
        ready = sum(len(queue.ready) for queue in broker.queues.values())
        return Metadata(created_at=min(runtime.started_at // SECOND, MOST), depth=ready, source=_listed(totals))


def _require(session: AnySession, right: Right, namespace: str, name: str) -> None:
    if not session.allowed(right, namespace, name):
        raise NotAllowed


def _names(request: Request) -> tuple[str, str]:
    """The namespace and the queue. An empty namespace is the default one; an empty queue is the namespace itself."""
    if request.namespace is None or request.queue is None:
        raise Missing
    return request.namespace or DEFAULT_NAMESPACE, request.queue


def _policy(metadata: Metadata) -> Policy:
    """The rules in a Create."""
    standard = Policy()
    return Policy(
        default_ttl=(metadata.time_to_live or 0) * SECOND,
        max_deliveries=metadata.max_deliveries or 0,
        lock=(metadata.lock_duration or 0) * MILLISECOND or standard.lock,
    )


def _queue_facts(queue: Queue) -> Metadata:
    """How many messages are ready in a queue, since when it exists, and its rules."""
    policy = queue.policy
    limits = {"max_depth": policy.max_depth, "max_bytes": policy.max_bytes}
    given = {name: value for name, value in limits.items() if value}
    return Metadata(
        created_at=min(queue.created_at // SECOND, MOST),
        depth=len(queue.ready),
        time_to_live=min(policy.default_ttl // SECOND, MOST) or None,
        max_deliveries=policy.max_deliveries or None,
        lock_duration=min(policy.lock // 1000, MOST),
        source=_listed({**given, "bytes": queue.bytes}) if given else None,
    )


def _listed(facts: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items())
