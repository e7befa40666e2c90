"""The HTTP process's requests about the broker as a whole, and the table of all its requests.

Each is answered within one turn of the loop and does a bounded amount of work.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.admin.admin_requests import (
    BrokerFigures,
    Drain,
    Figures,
    MakeToken,
    Namespaces,
    RevokeToken,
    Stop,
    Token,
    Tokens,
)
from penstock.server.admin.figures import BrokerMeasures
from penstock.server.admin.message_requests import MessageRequests
from penstock.server.admin.peer_requests import PeerRequests
from penstock.server.admin.queue_requests import QueueRequests
from penstock.server.admin.tokens import TokenStore
from penstock.server.companions.request_table import Handlers, RequestRefused
from penstock.server.network.runtime import Runtime

#: Seconds between two checks whether a broker that is to stop when it is empty is empty.
EMPTY_EVERY = 1.0


class AdminRequests:
    """Answers requests of the HTTP process. ``stop`` ends the broker, as a signal does."""

    def __init__(
        self, runtime: Runtime, tokens: TokenStore, measures: BrokerMeasures, stop: Callable[[str], None]
    ) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self._tokens = tokens
        self._measures = measures
        self._stop = stop
        #: Where the broker listens, by protocol.
        self._listeners: dict[str, list[str]] = {}
        #: Since when publishing is refused, who asked for it, and whether the broker stops once it is empty.
        self._drain: tuple[int, str, bool] = (0, "", False)
        queues = QueueRequests(runtime)
        self.handlers: Handlers = {
            Figures: self._figures,
            Namespaces: lambda request: sorted(self._broker.namespaces),
            Drain: self._begin_drain,
            Stop: self._stop_soon,
            Tokens: lambda request: tokens.listed(),
            MakeToken: lambda request: tokens.add(request, runtime.now()),
            RevokeToken: self._revoke,
            **queues.handlers,
            **MessageRequests(runtime, queues).handlers,
            **PeerRequests(runtime).handlers,
        }

    def add_listener(self, protocol: str, address: str) -> None:
        """Report this address among those where the broker listens."""
        self._listeners.setdefault(protocol, []).append(address)

    @property
    def listeners(self) -> dict[str, str]:
        """The addresses of each protocol, in one text."""
        return {protocol: " ".join(addresses) for protocol, addresses in self._listeners.items()}

    async def _revoke(self, request: RevokeToken) -> Token:
        token = await self._tokens.revoke(request.id, self._runtime.now())
        if token is None:
            raise RequestRefused("not-found", "there is no such token", "path.id")
        return token

    def _stop_soon(self, request: Stop) -> bool:
        self._runtime.loop.call_later(0.2, self._stop, f"by {request.by}")  # the answer leaves first
        return True

    def _begin_drain(self, request: Drain) -> bool:
        self._broker.publishing_stopped = request.active
        since = self._drain[0] or self._runtime.now()
        self._drain = (since, request.by, request.stop_when_empty) if request.active else (0, "", False)
        event = "publishing is refused: the queues are to get empty" if request.active else "messages are taken again"
        self._runtime.log.warning(event, by=request.by, stop_when_empty=request.stop_when_empty)
        if request.stop_when_empty:
            self._runtime.loop.call_later(EMPTY_EVERY, self._stop_when_empty)
        return True

    def _stop_when_empty(self) -> None:
        if not self._drain[2]:
            return
        if self._broker.out or any(queue.depth for queue in self._broker.queues.values()):
            self._runtime.loop.call_later(EMPTY_EVERY, self._stop_when_empty)
        else:
            self._stop("the queues are empty")

    def _figures(self, request: Figures) -> BrokerFigures:
        runtime, broker, measures = self._runtime, self._broker, self._measures
        since, by, stops = self._drain
        memory = runtime.memory
        return BrokerFigures(
            identity=runtime.ids.identity.to_bytes(8, "big"),
            started_at=runtime.started_at,
            now=runtime.now(),
            trouble=runtime.health.trouble(),
            draining=broker.publishing_stopped,
            drain_since=since,
            drain_by=by,
            drain_stops=stops,
            congested=runtime.memory.congested,
            disk_full=broker.disk_full,
            memory_full=broker.memory_full,
            upkeep_trouble=runtime.health.upkeep_trouble,
            counters=dict(runtime.counters),
            protocol_errors=dict(runtime.protocol_errors),
            namespaces=len(broker.namespaces),
            queues=len(broker.queues),
            connections=dict(runtime.connected),
            out=broker.out,
            leased=broker.leased,
            locks=len(broker.lock_ends),
            held_input=memory.input,
            held_output=memory.output,
            stalled=len(runtime.rounds.stalled),
            state_bytes=runtime.state_memory.bytes,
            unwritten=runtime.engine.unwritten,
            committed=broker.committed,
            readers=runtime.readers.count,
            commit_events=measures.commit_events.histogram(),
            commit_seconds=measures.commit_seconds.histogram(),
            sync_seconds=measures.sync_seconds.histogram(),
            loop_lag=measures.loop_lag.histogram(),
            listeners=self._listeners,
        )
