"""What the HTTP process asks the broker for: see ``admin/admin_requests.py``, which says what each answer means.

Each is answered within one turn and does a bounded amount of work. An answer that promises something waits for its
commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.admin import admin_requests as requests
from penstock.server.admin.figures import BrokerMeasures
from penstock.server.admin.message_requests import MessageRequests
from penstock.server.admin.peer_requests import PeerRequests
from penstock.server.admin.queue_requests import QueueRequests, source_of
from penstock.server.admin.refused import RequestRefused
from penstock.server.admin.tokens import TokenRefused, TokenStore
from penstock.server.network.runtime import Runtime

#: Seconds between two looks whether a broker that is to stop when it is empty is.
EMPTY_EVERY = 1.0


class AdminRequests:
    """Answers requests on behalf of a running broker. ``stop`` ends it, as a signal does."""

    def __init__(
        self, runtime: Runtime, tokens: TokenStore, measures: BrokerMeasures, stop: Callable[[str], None]
    ) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self._tokens = tokens
        self._measures = measures
        self._stop = stop
        self._queues = QueueRequests(runtime)
        self._messages = MessageRequests(runtime, self._queues)
        self._peers = PeerRequests(runtime)
        #: Where the broker listens, by protocol. Set when it does.
        self.listeners: dict[str, list[str]] = {}
        #: Since when publishing is refused, by whose wish, and whether the broker is to end then.
        self._drain: tuple[int, str, bool] = (0, "", False)

    async def answer(self, request: requests.Request) -> Any:
        """The answer, or a ``Refusal``. What was changed is on disk by then."""
        before = self._broker.log.next_position
        try:
            answer = await self._answer(request)
        except RequestRefused as error:
            return error.refusal
        except TokenRefused as error:
            return requests.Refusal(code="conflict", text=str(error))
        if self._broker.log.next_position > before:
            await self._runtime.durable()
        return answer

    async def _answer(self, request: requests.Request) -> Any:
        match request:
            case requests.Figures():
                return self._figures()
            case requests.Namespaces():
                return sorted(self._broker.namespaces)
            case requests.Queues():
                return self._queues.rows(request)
            case requests.QueueNamed():
                return self._queues.full(self._queues.find(request.namespace, request.name))
            case requests.CreateNamespace():
                return self._queues.create_namespace(request)
            case requests.DeleteNamespace():
                return self._queues.delete_namespace(request)
            case requests.CreateQueue():
                return self._queues.create(request)
            case requests.ConfigureQueue():
                return self._queues.configure(request)
            case requests.DeleteQueue():
                return self._queues.delete(request)
            case requests.Publish():
                return self._queues.publish(request)
            case requests.Drain() | requests.Stop():
                return self._end(request)
            case requests.Tokens():
                return self._tokens.listed()
            case requests.MakeToken():
                return await self._tokens.add(request, self._runtime.now())
            case requests.RevokeToken():
                return await self._revoke(request)
            case _:
                return await self._answer_about_messages(request)

    async def _answer_about_messages(self, request: requests.Request) -> Any:
        match request:
            case requests.Browse():
                return self._messages.browse(request)
            case requests.Find():
                return self._messages.find(request)
            case requests.PositionOf():
                return self._runtime.ids.position(request.id) or 0
            case requests.DeleteMessage():
                return self._messages.delete(request)
            case requests.Work():
                return self._messages.work(request)
            case requests.Connections():
                return self._peers.connections(request)
            case requests.ConnectionNumbered():
                return self._peers.connection(request)
            case requests.CloseConnection():
                return self._peers.close(request)
            case requests.Locks():
                return self._peers.locks(request)
            case requests.ReleaseLock():
                return self._peers.release(request)
            case requests.ReaderNames():
                return self._runtime.readers.listed(self._broker)
            case requests.WriterNames():
                return self._peers.writers(request)
            case requests.Leases():
                return self._peers.leases(request)
            case requests.DropReader():
                return await self._drop_reader(request)
            case requests.DropWriter():
                now, source = self._runtime.now(), source_of(request.by)
                return self._broker.end_writer(request.name, now, source)
        raise RequestRefused("bad-request", f"there is no request {type(request).__name__}")

    async def _drop_reader(self, request: requests.DropReader) -> bool:
        """Its leases go back one at a time: each may have thousands of messages."""
        known = self._runtime.readers.forget(request.name)
        while self._peers.return_leases(request.name):
            known = True
            self._runtime.touched()
            await asyncio.sleep(0)
        return known

    async def _revoke(self, request: requests.RevokeToken) -> requests.Token:
        token = await self._tokens.revoke(request.id, self._runtime.now())
        if token is None:
            raise RequestRefused("not-found", "there is no such token", "path.id")
        return token

    # The end

    def _end(self, request: requests.Drain | requests.Stop) -> bool:
        if isinstance(request, requests.Stop):
            self._runtime.loop.call_later(0.2, self._stop, f"by {request.by}")  # the answer leaves first
            return True
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

    # Figures

    def _figures(self) -> requests.BrokerFigures:
        runtime, broker, measures = self._runtime, self._broker, self._measures
        since, by, stops = self._drain
        memory = runtime.memory
        return requests.BrokerFigures(
            identity=runtime.ids.identity.to_bytes(8, "big"),
            started_at=runtime.started_at,
            now=runtime.now(),
            trouble=runtime.trouble(),
            draining=broker.publishing_stopped,
            drain_since=since,
            drain_by=by,
            drain_stops=stops,
            congested=runtime.congested,
            disk_full=broker.disk_full,
            memory_full=broker.memory_full,
            upkeep_trouble=runtime.upkeep_trouble,
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
            stalled=len(runtime.stalled),
            state_bytes=runtime.state_memory.bytes,
            unwritten=runtime.engine.unwritten,
            committed=broker.committed,
            readers=runtime.readers.count,
            commit_events=measures.commit_events.told(),
            commit_seconds=measures.commit_seconds.told(),
            sync_seconds=measures.sync_seconds.told(),
            loop_lag=measures.loop_lag.told(),
            listeners=self.listeners,
        )
