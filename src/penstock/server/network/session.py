"""One connection: what the sessions of all protocols have in common.

A read is decoded whole and its frames are worked on in order. Work stops, and reading with it, while

* a publish is refused and the protocol can't say so (``stall``): it is tried again until it succeeds or time is up;
* too many requests wait for their answer, or too much waits to be written to disk.

Output goes into ``write`` and leaves in one piece at the end of the loop's turn. Deliveries wait in the outbox as
positions; their payloads are looked up when the peer is ready to take them, and there is memory for them
(:mod:`penstock.server.network.memory`), so a slow peer costs little. Those that are not in memory are read meanwhile
(:mod:`penstock.server.engine.backlog`), and the session is woken when they are there.

The end of a session, whoever wants it::

    end()              nothing more is read, or given out; answers that wait for a commit are still given ("ending")
      transport.close  what is in the buffer is sent ("closing"); after LINGER seconds it is thrown away
        connection_lost    what was read and not worked on is done as far as it needs no peer; what was out goes back

A peer that has finished sending (a half-closed connection) is served as far as ``end`` goes: everything that it sent
counts, its answers are given, and then the connection is closed. It can't settle anything any more, so it gets no
deliveries. TLS has no half-closed connections: there the answers are lost, and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from mypy_extensions import mypyc_attr

from penstock.core.commands.publish import PublishRefusal, PublishResult
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Miscounted, Out, Queue
from penstock.core.state import DeliveryEffect
from penstock.endpoint.rights import Right
from penstock.server.engine.backlog import NotInMemory
from penstock.server.network.access import Peer, Rights
from penstock.server.network.account import Account
from penstock.server.network.memory import LARGE
from penstock.server.network.outbox import Outbox
from penstock.server.network.peers import origin_of_peer
from penstock.wire.stream import StreamDecoder, WireError

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime

FrameT = TypeVar("FrameT")

#: Seconds without taking a byte after which a peer whose connection was ended is cut off.
LINGER: Final = 5.0
#: Frames handled before others have their turn. A run of like messages is one frame, so this does not slow good peers.
SLICE: Final = 200
#: Bytes of what was put off that are decoded at a time, for each frame that may be handled.
PIECE_BYTES: Final = 512
#: Things that a frame may look at, beyond a few, for which it counts as another frame.
EFFORT: Final = 50
#: About what a decoded frame costs while it waits.
FRAME_BYTES: Final = 256
#: Denials of one connection that are logged, each once.
DENIALS: Final = 100
#: See ``Session.acknowledge``; 0: not this system.
QUICKACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)


@mypyc_attr(allow_interpreted_subclasses=True)  # sessions of protocols of other distributions
class Session(asyncio.Protocol, Generic[FrameT]):
    """A connection of one protocol. Subclasses say how frames become commands and deliveries become frames."""

    protocol: ClassVar[str]
    #: Messages that are lost with the connection spend a retry.
    spends_retries: ClassVar[bool] = False

    def __init__(self, runtime: Runtime, decoder: StreamDecoder[FrameT]) -> None:
        self.runtime = runtime
        self.decoder = decoder
        self.limits = runtime.options.limits
        self.transport: asyncio.Transport
        #: The socket of a TCP connection; None for other connections, and on systems without TCP_QUICKACK.
        self.socket: socket.socket | None = None
        #: The system delays acknowledgements, because something was written since ``acknowledge``.
        self.acknowledges_late = False
        #: Bytes were read while it does, and nothing was written since.
        self.unanswered = False
        self.connection: Connection
        #: Set before the connection is made.
        self.peer = Peer("")
        #: ``connection_made`` was called: ``connection_lost`` will be.
        self.arrived = False
        self.rights: Rights
        #: No more input; answers that are due are still given.
        self.ending = False
        #: No more input, no more output.
        self.closing = False
        #: When the end began; 0 = it has not.
        self.ending_since = 0.0
        #: Frames that wait for their turn.
        self.inbox: deque[FrameT] = deque()
        #: What the peer is to be sent, and its transport does not have yet.
        self.outbox = Outbox()
        #: When the publish at the head of the inbox was first refused; 0 = it was not.
        self.stalled_since = 0.0
        #: When the message that is coming in began; 0 = none is.
        self.unfinished_since = 0.0
        self.active_at = 0.0
        #: When it came, as the broker counts time.
        self.since = 0
        #: Frames that the one handled now counts for, beside itself.
        self.effort = 0
        #: Where it comes from: peers of one address share what is given in turns.
        self.origin = ""
        #: What we hold for the peer.
        self.account = Account()
        #: Bytes that were read, and are frames in the inbox now.
        self._inbox_bytes = 0
        #: Reads that are not decoded yet, and their bytes.
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._denied: set[tuple[Right, str]] = set()
        self._peer_is_slow = False
        self._reading = True
        self._finished = False
        #: The connection is lost, and what was read from it may not be done yet.
        self._lost = False

    # What subclasses say

    def handle(self, frame: FrameT) -> bool:
        """Do what a frame asks for. False: it can't be done yet; it is given again later, changed if need be."""
        raise NotImplementedError

    def encode_deliveries(self, queue: Queue, outs: list[Out], payloads: list[bytes]) -> bytes:
        """The bytes that hand these messages over."""
        raise NotImplementedError

    def no_message(self, queue: Queue) -> None:
        """The message that the peer waits for will not come."""

    def release(self, committed: int) -> None:
        """The log is durable up to here: what waited for it may be said."""

    def keep(self, before: int) -> None:
        """The log is about to give up what lies before this: read what answers that wait still need of it."""

    @property
    def answers_due(self) -> bool:
        """Whether the peer is still to be given an answer."""
        return False

    def after_loss(self, frame: FrameT) -> FrameT | None:
        """What is to be done of a frame whose sender is gone; None: nothing."""
        return frame

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has come."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are of classes of their own
        self.arrived = True
        self.active_at = self.runtime.loop.time()
        try:
            self.register()
            self.transport.set_write_buffer_limits(high=self.runtime.output_share)
            if transport.get_extra_info("ssl_object") is not None:
                self.acknowledge()  # the end of the handshake, which has no answer: the first request may wait for it
        except Exception as error:
            self.broken(error)

    def register(self) -> None:
        """Find out who the peer is, and join the sessions of the broker."""
        runtime = self.runtime
        certificate = self.transport.get_extra_info("peercert") or {}
        self.peer = runtime.peers.identify(self.protocol, self.peer, certificate)
        self.rights = Rights(runtime.options.access, self.peer)
        self.origin = origin_of_peer(self.peer)
        self.since = runtime.now()
        self.connection = runtime.admit(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come: decode them all, and work; later, if others have work before us or the turn has enough."""
        if self.closing or self.ending:
            return
        runtime = self.runtime
        runtime.busy_poll.busy()
        if self.acknowledges_late and not self.unanswered:
            self.unanswered = True
            runtime.unanswered.append(self)
        self.active_at = runtime.bytes_arrived()
        if runtime.work_left <= 0 or runtime.unworked:
            self._unread.append(data)
            self._unread_bytes += len(data)
            self._read_on_or_not()
            runtime.work_later(self)
        else:
            try:
                self._decode(data)
                self._work(SLICE)
            except Exception as error:  # see ``work``
                self.broken(error)
        self._note_input()

    def eof_received(self) -> bool:
        """The peer has finished sending. See the module's description. Returns whether to leave our side open."""
        self._finished = True
        self.work()
        return not self.closing and self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has gone: what it sent counts, then what it had goes back."""
        self._lost = True
        self.runtime.memory.forget(self)
        self.work()

    def pause_writing(self) -> None:
        """The peer takes less than we send."""
        self._peer_is_slow = True

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._peer_is_slow = False
        if not self.closing:
            self.transport.set_write_buffer_limits(high=self.runtime.output_share)
            self.runtime.dirty(self)
            self.work()

    # Input

    def acknowledge(self) -> None:
        """Acknowledge what was read now, and what is read from now on at once, until something is written.

        Linux sends acknowledgements with the next write, or after 40 ms. A client that leaves Nagle's algorithm on
        holds back its next small write until then, so what is read and has no answer yet must not wait for one.
        """
        self.acknowledges_late = self.unanswered = False
        if self.socket is not None:
            try:
                self.socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
            except OSError:  # it is closed
                self.socket = None

    def work(self) -> None:
        """Handle frames as long as that is possible, and read on or not; once others have, if some wait for that."""
        if self.runtime.unworked:
            self.runtime.work_later(self)
        else:
            self.work_on(SLICE)

    def work_on(self, most: int) -> None:
        """Decode and handle so many frames, SLICE of them at most, and read on or not."""
        most = min(most, SLICE)
        try:
            if self._lost:
                self._finish_input(most)
            else:
                if self._unread and not self.inbox:
                    self._decode_some(most)
                self._work(most)
        except Exception as error:  # whatever it is, it is this session's: the others go on
            self.broken(error)
        if self._lost:
            self._leave()
        else:
            self._note_input()
        self.runtime.touched()

    def _decode(self, data: bytes) -> None:
        inbox, size = self.inbox, len(data)
        frames = self.decoder.feed(data)
        self._inbox_bytes = self._inbox_bytes + size if inbox else size
        inbox.extend(frames)
        if self.unfinished_since or not self.decoder.between_messages:
            self._note_unfinished(begun=bool(frames))
        self.runtime.received(size, len(frames))

    def _decode_some(self, most: int) -> None:
        """Go on with what is not decoded yet, in pieces: small ones where many wait."""
        data, size = self._unread.popleft(), most * PIECE_BYTES
        if len(data) > size:
            self._unread.appendleft(data[size:])
            data = data[:size]
        self._unread_bytes -= len(data)
        self._decode(data)

    def _work(self, most: int) -> None:
        runtime, left = self.runtime, min(most, self.runtime.work_left)
        while self.inbox and not self.closing and self.may_work():
            if left <= 0:
                runtime.work_later(self)
                break
            try:
                done = self.handle(self.inbox[0])
            except NotInMemory:  # we are woken when it is
                done = False
            left -= 1 + self.effort
            runtime.work_left -= 1 + self.effort
            self.effort = 0
            if not done:
                break
            if self.stalled_since:
                self.stalled_since = 0.0
                self.runtime.unstall(self)
            if self.inbox:  # closing the session has cleared it
                self.inbox.popleft()
        if not self.inbox:
            self._all_handled()
        if self._reading == (bool(self.inbox) or bool(self._unread) or runtime.congested):
            self._read_on_or_not()

    def _all_handled(self) -> None:
        if self.decoder.error is not None:
            self.protocol_error(self.decoder.error)
        elif self._unread:
            self.runtime.work_later(self)
        elif self._finished and not self.ending:
            if self.decoder.close() is not None:
                self.runtime.count("truncated")
            self.end()

    def _stall(self) -> bool:
        """What is at the head of the inbox can't be done now: try it again in a while. Returns what ``handle`` does."""
        if not self.stalled_since:
            self.stalled_since = self.runtime.loop.time()
            self.runtime.stall(self)
        return False

    def _finish_input(self, most: int) -> None:
        """Do what was read before the peer went: it has been received, and so it counts. Some at a time."""
        runtime, left = self.runtime, min(most, self.runtime.work_left)
        while left > 0 and (self.inbox or self._unread):
            if not self.inbox:
                self._decode_some(most)
                left -= 1
                continue
            frame = self.after_loss(self.inbox[0])
            left -= 1
            if frame is not None:
                self.inbox[0] = frame
                if not self.handle(frame):
                    self.close("publish refused", reason="the connection was lost while it waited")
                    return
                left -= self.effort
                runtime.work_left -= 1 + self.effort
                self.effort = 0
            if self.inbox:
                self.inbox.popleft()

    def _leave(self) -> None:
        """The connection is lost: once all that was read is done, what was out goes back."""
        if (self.inbox or self._unread) and not self.closing:
            self.runtime.work_later(self)
            return
        self.closing = True
        self._drop_input()
        self.outbox.drop_deliveries()
        if (reading := self.outbox.take_reading()) is not None:
            self.runtime.cold_reads.drop(reading)
        self.runtime.cold_reads.forget(self)
        self.runtime.memory.forget(self)
        self.runtime.lost(self)

    def _drop_input(self) -> None:
        self.inbox.clear()
        self._unread.clear()
        self._unread_bytes = 0

    def may_work(self) -> bool:
        """Whether another frame may be handled now."""
        return not self.runtime.congested

    def _read_on_or_not(self) -> None:
        reading = not (self.inbox or self._unread or self.runtime.congested)
        if self.closing or self.ending or self._finished or reading == self._reading:
            return
        self._reading = reading
        if reading:
            if self.unfinished_since:
                self.unfinished_since = self.runtime.loop.time()  # it was we who kept it from going on
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _note_unfinished(self, *, begun: bool) -> None:
        """``begun``: messages were completed just now, so the unfinished one, if any, has begun since."""
        if self.decoder.between_messages:
            self.unfinished_since = 0.0
        elif begun or not self.unfinished_since:
            self.unfinished_since = self.active_at

    def _note_input(self) -> None:
        """Tell the account of memory what we hold of the peer's input."""
        held = self.decoder.held + self._unread_bytes
        if self.inbox:
            held += self._inbox_bytes + FRAME_BYTES * len(self.inbox)
        if held != self.account.input:
            self.runtime.memory.note(self, held, self.account.output)

    # Patience

    def watch(self, now: float) -> None:
        """Close a peer that takes too long. Called a few times a second."""
        limits = self.limits
        if self.ending_since:
            if self._lingers(now):
                self.transport.abort()
        elif self.unfinished_since and self._reading and now - self.unfinished_since > limits.unfinished_seconds:
            self.runtime.count("unfinished")
            self.close("a message was not finished in time", seconds=limits.unfinished_seconds)
        elif limits.idle_seconds and self._is_idle() and now - self.active_at > limits.idle_seconds:
            self.runtime.count("idle")
            self.close("idle for too long", seconds=limits.idle_seconds)

    def _lingers(self, now: float) -> bool:
        """Whether a peer whose connection was ended keeps it from closing: it is not one that waits for its answers."""
        if now - self.ending_since <= LINGER:
            return False
        return self.account.takes_too_little(now, LINGER) if self.account.output_since else self.closing

    def _is_idle(self) -> bool:
        return not (self.connection.subscriptions or self.connection.out or self.inbox or self.answers_due)

    @property
    def input_since(self) -> float:
        """Since when we hold input of the peer: it does not finish its message, or does not take its answers."""
        return min(self.unfinished_since or self.active_at, self.stalled_since or self.active_at)

    def note_output(self, written: int = 0) -> None:
        """Tell the account of memory what we hold of the peer's output, and note whether it takes any.

        ``written`` is what was written since the last time.
        """
        account, buffered = self.account, self.transport.get_write_buffer_size()
        if buffered or account.buffered:
            account.note_written(written, buffered, self.runtime.loop.time())
        held = self.outbox.waiting_bytes + account.kept_bytes + account.unsent_bytes
        if held != account.output:
            self.runtime.memory.note(self, account.input, held)

    # Steps that protocols share

    def allowed(self, right: Right, namespace: str, name: str) -> bool:
        """Whether the peer may do this with a queue; a refusal is logged."""
        if self.rights.open or self.rights.allow(right, namespace, name):
            return True
        full_name = f"{namespace}/{name}"
        self.runtime.count("denied")
        if (right, full_name) not in self._denied and len(self._denied) < DENIALS:
            self._denied.add((right, full_name))
            self.runtime.log.warning("access denied", **self.facts(), right=right, queue=full_name)
        return False

    def publish(
        self, queue: Queue, payloads: Sequence[bytes], properties: Properties, rest: Callable[[int], FrameT]
    ) -> bool:
        """Publish over a protocol that can't say no. Returns what ``handle`` should.

        If not all of it is taken, ``rest`` makes a frame of what follows so many messages; that is tried again.
        """
        done = self.runtime.broker.publish(self.connection, queue, payloads, self.runtime.now(), properties)
        if done.refusal is None:
            return True
        self.inbox[0] = rest(done.accepted)
        return self.refused(done, queue, len(payloads[done.accepted]))

    def refused(self, published: PublishResult, queue: Queue, size: int) -> bool:
        """A publish was refused over a protocol that can't say so: wait, or close when waiting does not help.

        ``size`` is that of the first message that was refused. Returns what ``handle`` should: False, try again.
        """
        now = self.runtime.loop.time()
        assert published.refusal is not None
        hopeless = published.refusal is PublishRefusal.TOO_LARGE or bool(self.connection.out)
        self._stall()
        if hopeless or now - self.stalled_since >= self.limits.refused_seconds:
            self.runtime.count("publish_refused")
            limit = self._limit(published.refusal, queue)
            self.close("publish refused", queue=queue.full_name, size=size, limit=limit, reason=published.refusal.value)
        return False

    def _limit(self, refusal: PublishRefusal, queue: Queue) -> str:
        """What it was that a message did not keep to, in words for the log."""
        if refusal is PublishRefusal.DISK:
            return f"{self.runtime.options.journal.min_free_bytes} bytes free"
        policy = queue.policy
        limits = [] if refusal is PublishRefusal.TOO_LARGE or not policy.max_depth else [f"{policy.max_depth} messages"]
        return ", ".join([*limits, *([f"{policy.max_bytes} bytes"] if policy.max_bytes else [])])

    def protocol_error(self, error: WireError) -> None:
        """The peer's bytes make no sense: say so in the log, and end."""
        self.runtime.count("protocol_errors")
        self.runtime.protocol_errors[f"{self.protocol} {error.code}"] += 1
        facts = {"size": error.size, "limit": error.limit} if error.limit else {}
        named = {"queue": queue} if error.limit and (queue := self.queue_in_hand) else {}
        self.close("protocol error", offset=error.offset, code=error.code, **named, **facts, reason=error.reason)

    @property
    def queue_in_hand(self) -> str:
        """The queue that the message which is coming in is for, as far as that is known."""
        return ""

    def close(self, event: str, **facts: Any) -> None:
        """End the connection, with a line in the log that says why. What waits to be sent is sent first."""
        if self.closing or self.ending:
            return
        self.runtime.log.warning(event, **self.facts(), **facts)
        self.end()

    def end(self) -> None:
        """End the connection without a word. See the module's description."""
        if self.closing:
            return
        self._drop_input()
        self.outbox.drop_deliveries()
        self.runtime.unstall(self)
        if not self.ending:
            self.ending = True
            self.ending_since = self.runtime.loop.time()
            if self._reading and not self._finished:
                self._reading = False
                self.transport.pause_reading()
        if not self.answers_due:
            self.flush()
            self.closing = True
            self.ending_since = self.runtime.loop.time()
            self.runtime.memory.withdraw(self)
            self.transport.close()

    def broken(self, error: Exception) -> None:
        """A fault of ours: say so in the log and end the connection at once.

        Nothing else is touched by it, unless the broker's counters are wrong: then it is the end of everything.
        """
        self.runtime.count("session_errors")
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{at.filename}:{at.lineno}"
        self.runtime.log.error("error in a session", **self.facts(), error=repr(error), place=place)
        self.abort()
        if isinstance(error, Miscounted):
            self.runtime.fail(error)

    def abort(self) -> None:
        """End the connection at once. What was read and not worked on is not done."""
        self.closing = True
        self._drop_input()
        self.outbox.clear()
        self.account.keep(-self.account.kept_bytes)
        self.decoder.close()
        self.transport.abort()
        self.runtime.memory.forget(self)

    def facts(self) -> dict[str, Any]:
        """Who this is, for the log."""
        facts: dict[str, Any] = {"protocol": self.protocol, "peer": self.peer.address}
        if self.peer.subject:
            facts["subject"] = self.peer.subject
        if self.peer.user is not None:
            facts["user"] = self.peer.user
        return facts

    # Output

    def deliver(self, delivery: DeliveryEffect) -> None:
        """Messages for the peer. They leave as it is ready to take them."""
        if not self.ending:
            self.outbox.add_deliveries(delivery)
            self.runtime.dirty(self)

    @property
    def room(self) -> int:
        """How many more bytes may wait for the peer to take them."""
        left = self.runtime.output_share - self.outbox.waiting_bytes
        return 0 if self._peer_is_slow or left < 0 else left

    def write(self, data: bytes) -> None:
        """Bytes for the peer, at the end of this turn."""
        if not self.closing:
            self.outbox.append(data)
            runtime = self.runtime
            runtime.prepared(self, len(data))
            runtime.dirty(self)

    def write_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """The same in parts. What is large takes nothing of the small ones' share of the turn: see ``Memory.grant``."""
        if not self.closing:
            size, runtime = sum(map(len, parts)), self.runtime
            self.outbox.extend(parts, size)
            runtime.prepared(self, size, large=size > LARGE)
            runtime.dirty(self)

    @property
    def peer_is_slow(self) -> bool:
        """Whether the peer takes less than could be sent."""
        return self._peer_is_slow

    @property
    def gone(self) -> bool:
        """Whether nothing can be sent any more: the peer has hung up, or the connection is closed."""
        return self.closing or self.transport.is_closing()

    @property
    def starved(self) -> bool:
        """Whether something could be sent, if there were memory to prepare it."""
        return self.outbox.starved

    def flush(self) -> None:
        """Send what has gathered, deliveries included, as far as the peer takes it."""
        if self.gone:
            return
        try:
            self._flush()
        except Exception as error:
            self.broken(error)

    def _flush(self) -> None:
        outbox, runtime = self.outbox, self.runtime
        outbox.fill(self)
        if runtime.lease is not None and not runtime.lease_holds(runtime.lease):  # reading payloads may take long
            return
        written = outbox.write_to(self.transport)
        if written:
            self.acknowledges_late = self.socket is not None
            self.unanswered = False
        self.note_output(written)
        if runtime.memory.awaited and not self.starved:
            runtime.memory.withdraw(self)
        if self._peer_is_slow:
            return
        if outbox.deliveries and not outbox.starved:
            runtime.dirty(self)
        if self.inbox and not self.stalled_since:
            self.work()
