"""The running broker: the event loop's side of the engine, and everything sessions share.

A *turn* of the loop: sessions decode what was read and give the broker its commands; then, once for all of them,
effects that are free to go are handed to their sessions, what is staged goes to the journal's thread, and every session
writes what it has in one piece. When the thread reports a commit, what waited for it is released, in another turn.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.core.policy import Policy
from penstock.core.queue import Connection, Queue
from penstock.core.state import Delivery
from penstock.server.access import Peer, Rights
from penstock.server.commits import Commits
from penstock.server.engine import Engine
from penstock.server.ids import Ids
from penstock.server.logs import Log
from penstock.server.options import Options

if TYPE_CHECKING:
    from penstock.server.session import Session

    AnySession = Session[Any]

#: How often refused publishes are tried again, and late peers looked for.
ROUND = 0.25


class Runtime:
    """What the sessions of a running broker share."""

    def __init__(self, options: Options, engine: Engine, commits: Commits, log: Log) -> None:
        self.options = options
        self.engine = engine
        self.broker = engine.broker
        self.commits = commits
        self.log = log
        self.ids = Ids(engine.log.identity, engine.broker)
        self.loop = asyncio.get_running_loop()
        self.sessions: dict[int, AnySession] = {}
        #: Sessions with a publish that was refused.
        self.stalled: set[AnySession] = set()
        #: Sessions with answers that wait for a commit.
        self.awaiting: set[AnySession] = set()
        #: Too much waits to be written to disk: nobody is read from.
        self.congested = False
        self.counters: Counter[str] = Counter()
        self.started_at = self.now()
        self._addresses: Counter[str] = Counter()
        self._next_id = 1
        self._dirty: dict[AnySession, None] = {}
        self._turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._round = self.loop.call_later(ROUND, self._do_round)

    def now(self) -> int:
        """The time, as the broker counts it."""
        return time.time_ns() // 1000

    def count(self, what: str, by: int = 1) -> None:
        """Count something for the operator."""
        self.counters[what] += by

    def trouble(self) -> str:
        """Why the broker is not well, in a few words; empty if it is."""
        if self.broker.draining:
            return "shutting down"
        if self.broker.disk_full:
            return "the disk is nearly full: publishing is refused"
        return "the disk is slower than the publishers" if self.congested else ""

    # Turns

    def touched(self) -> None:
        """The broker was given commands: see to it at the end of this turn."""
        if not self._turn_due:
            self._turn_due = True
            self.loop.call_soon(self.turn)

    def dirty(self, session: AnySession) -> None:
        """The session has something to send at the end of this turn."""
        self._dirty[session] = None
        self.touched()

    def turn(self) -> None:
        """The end of a turn: see the module's description."""
        self._turn_due = False
        now = self.now()
        self._schedule(self.broker.tick(now))
        self._tell()
        self._answer()
        self.commits.flush(now)
        dirty, self._dirty = self._dirty, {}
        for session in dirty:
            session.flush()
        self._watch_congestion()

    def committed(self) -> None:
        """A commit is done. Called in the loop's thread."""
        self.commits.settle(self.now())
        self.turn()

    def _tell(self) -> None:
        for effect in self.engine.released():
            session = self.sessions.get(effect.connection.id)
            if session is None:
                continue
            if isinstance(effect, Delivery):
                session.deliver(effect)
            else:
                session.no_message(effect.queue)

    def _answer(self) -> None:
        """Let sessions give the answers that waited for the log, and go on with what waited for those."""
        for session in list(self.awaiting):
            session.release(self.broker.committed)
            if session.inbox:
                session.work()

    def _schedule(self, deadline: int | None) -> None:
        """Have a turn when the broker's next deadline is due."""
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline or 0
        if deadline is not None:
            delay = max(0.0, (deadline - self.now()) / 1e6)
            self._timer = self.loop.call_later(delay, self._deadline)

    def _deadline(self) -> None:
        self._timer_at = 0
        self._timer = None
        self.turn()

    def _watch_congestion(self) -> None:
        unwritten = self.engine.unwritten
        limit = self.options.limits.memory_bytes
        if self.congested and unwritten < limit // 2:
            self.congested = False
            for session in list(self.sessions.values()):
                session.work()
        elif not self.congested and unwritten > limit:
            self.congested = True
            self.count("congestions")
            self.log.warning("the disk is slower than the publishers: reading is paused", unwritten=unwritten)

    # Rounds

    def _do_round(self) -> None:
        """Four times a second: try what was refused again, and look for peers that take too long."""
        self._round = self.loop.call_later(ROUND, self._do_round)
        for session in list(self.stalled):
            session.work()
        now, limits = self.loop.time(), self.options.limits
        for session in list(self.sessions.values()):
            if session.unfinished_since and now - session.unfinished_since > limits.unfinished_seconds:
                self.count("unfinished")
                session.close("a message was not finished in time", seconds=limits.unfinished_seconds)
            elif limits.idle_seconds and self._is_idle(session) and now - session.active_at > limits.idle_seconds:
                self.count("idle")
                session.close("idle for too long", seconds=limits.idle_seconds)

    def _is_idle(self, session: AnySession) -> bool:
        return not (session.connection.consumers or session.connection.out or session.inbox)

    # Peers

    def admit(self, session: AnySession) -> bool:
        """Let a new peer in, if there is room for it."""
        session.peer = _peer_of(session.transport)
        limits, address = self.options.limits, session.peer.address
        if len(self.sessions) >= limits.connections:
            return self._turn_away(session, "too many connections", limits.connections)
        if address != "unix" and self._addresses[address] >= limits.connections_per_address:
            return self._turn_away(session, "too many connections from one address", limits.connections_per_address)
        source = f"{session.protocol} {_source_of(session)}".encode()
        session.connection = self.broker.connect(self._next_id, source, spends_retries=session.spends_retries)
        session.rights = Rights(self.options.access, session.peer)
        self.sessions[self._next_id] = session
        self._addresses[address] += 1
        self._next_id += 1
        self.count("connections")
        return True

    def _turn_away(self, session: AnySession, event: str, limit: int) -> bool:
        self.count("turned_away")
        self.log.warning(event, **session.facts(), limit=limit)
        return False

    def lost(self, session: AnySession) -> None:
        """A peer is gone."""
        self.stalled.discard(session)
        self.awaiting.discard(session)
        self._dirty.pop(session, None)
        connection = getattr(session, "connection", None)
        if connection is None or self.sessions.pop(connection.id, None) is None:
            return
        self._addresses[session.peer.address] -= 1
        if not self._addresses[session.peer.address]:
            del self._addresses[session.peer.address]
        self.broker.disconnect(connection, self.now())
        self.touched()

    # Queues

    @overload
    def make_queue(
        self, namespace: str, name: str, connection: Connection, *, policy: Policy | None = None, always: Literal[True]
    ) -> Queue: ...

    @overload
    def make_queue(
        self, namespace: str, name: str, connection: Connection, *, policy: Policy | None = None
    ) -> Queue | None: ...

    def make_queue(
        self, namespace: str, name: str, connection: Connection, *, policy: Policy | None = None, always: bool = False
    ) -> Queue | None:
        """A new queue, with its namespace if that is new too. None: there are too many (``always`` ignores that)."""
        broker, limits = self.broker, self.options.limits
        if not always and (
            len(broker.queues) >= limits.queues
            or (namespace not in broker.namespaces and len(broker.namespaces) >= limits.namespaces)
        ):
            return None
        now = self.now()
        broker.create_namespace(namespace, now, connection.source)
        return broker.create_queue(namespace, name, now, policy, connection.source)

    def stop(self) -> None:
        """Stop the clockwork."""
        self._round.cancel()
        if self._timer is not None:
            self._timer.cancel()


def _peer_of(transport: asyncio.Transport) -> Peer:
    """What can be told of the other end."""
    certificate = transport.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    subject = names[0] if names else ""
    address = transport.get_extra_info("peername")
    if isinstance(address, tuple):
        return Peer(str(address[0]), subject)
    return Peer("unix", subject, _user_of(transport.get_extra_info("socket")))


def _user_of(peer: Any) -> int | None:
    """The user at the other end of a Unix-domain socket, where the system tells."""
    if peer is None or not hasattr(socket, "SO_PEERCRED"):
        return None
    with socket.socket(fileno=os.dup(peer.fileno())) as copy:  # some loops give out only the descriptor
        raw = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def _source_of(session: AnySession) -> str:
    address = session.transport.get_extra_info("peername")
    if isinstance(address, tuple):
        return f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"
    return "unix" if session.peer.user is None else f"unix:{session.peer.user}"
