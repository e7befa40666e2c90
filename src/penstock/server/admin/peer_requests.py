"""Requests about connections, locks and leases."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.admin import admin_requests as requests
from penstock.core.queue import Out
from penstock.patterns import fits_queue
from penstock.server.companions.request_table import Handlers, RequestRefused
from penstock.server.network.runtime import Runtime

if TYPE_CHECKING:
    from penstock.server.network.session import Session


class PeerRequests:
    """Answers them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self.handlers: Handlers = {
            requests.Connections: self.connections,
            requests.DescribeConnection: self.connection,
            requests.CloseConnection: self.close,
            requests.Locks: self.locks,
            requests.ReleaseLock: self.release,
            requests.Leases: self.leases,
        }

    # Connections

    def connections(self, request: requests.Connections) -> requests.ConnectionRows:
        """The next piece by number: sessions are in ascending order of their numbers."""
        sessions = self._runtime.sessions
        chosen = list(islice((number for number in sessions if number > request.after), requests.PIECE))
        wanted = self._wanted_by(request.queue)
        rows = [_row(self._runtime, session) for number in chosen if wanted(session := sessions[number])]
        last = chosen[-1] if chosen else request.after
        return requests.ConnectionRows(rows=rows, after=last, more=len(chosen) == requests.PIECE)

    def _wanted_by(self, full_name: str) -> Callable[[Session[Any]], bool]:
        """A test for the consumers of a queue, or for all sessions."""
        if not full_name:
            return lambda session: True
        namespace, _, name = full_name.partition("/")
        queue = self._broker.queue(namespace, name)
        if queue is None:
            raise RequestRefused("not-found", f"there is no queue {full_name}", "query.queue")
        keys = ((queue.id, False), (queue.id, True))
        polling = {poll.connection.id for poll in self._runtime.pollers.of_queue(queue, self._runtime.loop.time())}
        return lambda session: (
            session.connection.id in polling or any(key in session.connection.subscriptions for key in keys)
        )

    def connection(self, request: requests.DescribeConnection) -> requests.ConnectionDetails:
        """A connection with its consumers."""
        session = self._session(request.id)
        wants = [
            (each.queue.full_name, each.window, each.credit, each.dead)
            for each in islice(session.connection.subscriptions.values(), requests.PIECE)
        ]
        polls = self._runtime.pollers.of_connection(session.connection, self._runtime.loop.time())
        wants += ((poll.queue.full_name, 0, 0, False) for poll in polls)
        return requests.ConnectionDetails(row=_row(self._runtime, session), consumers=wants)

    def close(self, request: requests.CloseConnection) -> bool:
        """Close a connection: its messages return to their queues."""
        self._session(request.id).close("closed by an operator", by=request.by)
        return True

    def _session(self, number: int) -> Session[Any]:
        session = self._runtime.sessions.get(number)
        if session is None:
            raise RequestRefused("not-found", f"there is no connection {number}", "path.id")
        return session

    # Locks

    def locks(self, request: requests.Locks) -> requests.LockRows:
        """The next piece by expiry."""
        until, serial = request.after
        ends: Any = self._broker.lock_ends
        found = list(islice(ends.up_from((until, serial + 1)), requests.PIECE))
        rows = [self._lock(*each) for each in found]
        after = (found[-1][0], found[-1][1]) if len(found) == requests.PIECE else None
        return requests.LockRows(now=self._runtime.now(), rows=rows, after=after)

    def release(self, request: requests.ReleaseLock) -> str:
        """Release a lock. Without the right on its queue, the response is as if there were no such message."""
        position = self._runtime.ids.position(request.id) or 0
        out = self._locked(position)
        if out is None or not any(
            fits_queue(pattern, out.queue.namespace, out.queue.name) for pattern in request.allowed
        ):
            raise RequestRefused("not-found", "no such message is locked", "path.id")
        self._broker.release(out.connection, out.queue, position, self._runtime.now())
        return out.queue.full_name

    def _locked(self, position: int) -> Out | None:
        for connection in self._broker.connections.values():
            out = connection.out.get(position)
            if out is not None and out.deadline:
                return out
        return None

    def _lock(self, until: int, serial: int, out: Out) -> requests.LockRow:
        queue, position = out.queue, out.item.position
        return requests.LockRow(
            until,
            serial,
            position,
            self._runtime.ids.raw(queue, position),
            queue.namespace,
            queue.name,
            out.connection.id,
            out.connection.source.decode("utf-8", "replace"),
            out.delivered_at,
        )

    def leases(self, request: requests.Leases) -> list[requests.LeaseRow]:
        """The next piece by position, in which order leases are kept."""
        later = (lease for position, lease in self._broker.leases.items() if position > request.after)
        return [
            requests.LeaseRow(
                lease.position,
                lease.entry.reader,
                lease.queue.full_name,
                len(lease.connection.out),
                lease.entry.since,
                lease.entry.until,
            )
            for lease in islice(later, min(request.limit, requests.PIECE))
        ]


def _row(runtime: Runtime, session: Session[Any]) -> requests.ConnectionRow:
    peer = session.peer
    return requests.ConnectionRow(
        id=session.connection.id,
        protocol=session.protocol,
        peer=session.connection.source.decode("utf-8", "replace").partition(" ")[2],
        tls=session.transport.get_extra_info("ssl_object") is not None,
        subject=peer.subject,
        user="" if peer.user is None else str(peer.user),
        since=session.since,
        out=len(session.connection.out),
        consumers=len(session.connection.subscriptions)
        + len(runtime.pollers.of_connection(session.connection, runtime.loop.time())),
        input_bytes=session.account.input,
        output_bytes=session.held_output,
        throttled=_throttle(runtime, session),
        ending=session.ending or session.closing,
    )


def _throttle(runtime: Runtime, session: Session[Any]) -> str:
    """Why the session is not read from, or not sent to."""
    if session.stalled_since:
        return "publish refused"
    if runtime.memory.congested:
        return "disk"
    if session.starved:
        return "memory"
    if session.peer_is_slow:
        return "slow peer"
    return "answers" if session.inbox.frames and not session.may_work() else ""
