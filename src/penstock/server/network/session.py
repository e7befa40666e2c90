"""One connection: what the sessions of all protocols have in common.

A read is decoded whole into the :mod:`~penstock.server.network.inbox`, and its frames are handled in order. Handling
stops, and reading with it, while

* a publish is refused and the protocol can't report that: it is retried until it succeeds or time is up (``refused``);
* too many requests wait for their answer (``may_work``), or too much waits to be written to disk.

Output goes into the :mod:`~penstock.server.network.outbox` and leaves in one piece at the end of the loop's turn.
Deliveries wait there as positions. Their payloads are looked up when the peer is ready to take them and there is memory
for them (:mod:`penstock.server.network.memory`), so a slow peer costs little. Payloads that are not in memory are read
by a thread (:mod:`penstock.server.engine.backlog`), which wakes the session.

The end of a session::

    end()              reading and delivering stop; answers that wait for a commit are still given ("ending")
      transport.close  the rest of the buffer is sent ("closing"); if the peer stops reading, LINGER limits the wait
        connection_lost    remaining input is handled unless it needs the peer; messages in flight are returned

When a peer has finished sending (a half-closed connection), everything that it sent is handled and answered before the
connection is closed. It can't settle messages any more, so it gets no deliveries. TLS has no half-closed connections:
there the answers are lost, and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from mypy_extensions import mypyc_attr

from penstock.companions.rights import Right
from penstock.core.commands.publish import PublishRefusal, PublishResult
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Miscounted, Out, Queue
from penstock.core.state import DeliveryEffect
from penstock.server.engine.backlog import NotInMemory
from penstock.server.network.access import Peer, Rights
from penstock.server.network.inbox import Inbox
from penstock.server.network.memory import LARGE, Account
from penstock.server.network.outbox import Outbox
from penstock.server.network.peers import origin_of_peer
from penstock.server.network.quick_ack import QuickAck
from penstock.wire.stream import StreamDecoder, WireError

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime

FrameT = TypeVar("FrameT")

#: Frames handled before other sessions have their turn. A run of like messages is one frame, so this does not slow good
#: peers.
SLICE: Final = 200
#: Things that a frame may look at, beyond a few, for which it counts as another frame.
EFFORT: Final = 50


@mypyc_attr(allow_interpreted_subclasses=True)  # sessions of protocols of other distributions
class Session(asyncio.Protocol, Generic[FrameT]):
    """A connection of one protocol.

    The contract with protocols is the first part of the class. They override the methods up to ``queue_in_hand``, of
    which ``handle`` and ``encode_deliveries`` have no default, and call those from ``allowed`` to ``facts``. A frame
    that costs more than one step adds to ``effort``. A protocol with answers that wait for a commit calls
    ``runtime.output.await_answers`` when it has the first, gives them in ``release``, and calls
    ``runtime.output.answered`` after the last.
    """

    protocol: ClassVar[str]
    #: Messages that are lost with the connection spend a retry.
    spends_retries: ClassVar[bool] = False

    def __init__(self, runtime: Runtime, decoder: StreamDecoder[FrameT]) -> None:
        self.runtime = runtime
        self.limits = runtime.options.limits
        self._turns = runtime.turns
        self._output = runtime.output
        self._memory = runtime.memory
        self.transport: asyncio.Transport
        self.quick_ack = QuickAck()
        self.connection: Connection
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
        self.inbox = Inbox(decoder)
        self.outbox = Outbox(runtime.memory)
        #: The memory that we hold for the peer.
        self.account = Account()
        #: When the publish at the head of the inbox was first refused; 0 = it was not.
        self.stalled_since = 0.0
        #: When bytes last came, on the loop's clock.
        self.active_at = 0.0
        #: When the peer came, as the broker counts time.
        self.since = 0
        #: The number of additional frames for which the current one counts.
        self.effort = 0
        #: Groups peers by address: those of one origin share one place in the line for memory.
        self.origin = ""
        #: The peer takes less than we send.
        self.peer_is_slow = False
        #: The transport reads.
        self.reading = True
        #: The peer has finished sending.
        self._finished = False
        #: The connection is lost; some of its input may still have to be handled.
        self._lost = False

    # The contract with protocols: methods that they override

    def handle(self, frame: FrameT) -> bool:
        """Carry out a frame. False: that is not possible yet; the frame, or its replacement, is handled again later."""
        raise NotImplementedError

    def encode_deliveries(self, queue: Queue, outs: list[Out], payloads: list[bytes]) -> bytes:
        """The bytes that hand these messages over."""
        raise NotImplementedError

    def no_message(self, queue: Queue) -> None:
        """The message that the peer waits for will not come: the queue was deleted."""

    def release(self, committed: int) -> None:
        """The log is durable up to here: give the answers that waited for it."""

    def keep(self, before: int) -> None:
        """The log is about to drop everything before this position: read the messages that waiting answers need."""

    @property
    def answers_due(self) -> bool:
        """Whether an answer waits."""
        return False

    def after_loss(self, frame: FrameT) -> FrameT | None:
        """The part of a frame that is done although its sender is gone, or None."""
        return frame

    def may_work(self) -> bool:
        """Whether another frame may be handled now."""
        return not self._memory.congested

    @property
    def starved(self) -> bool:
        """Whether something could be sent, if there were memory to prepare it."""
        return self.outbox.starved

    @property
    def queue_in_hand(self) -> str:
        """The queue of the message that is coming in, as far as it is known."""
        return ""

    # The contract with protocols: methods that they call

    def allowed(self, right: Right, namespace: str, name: str) -> bool:
        """Whether the peer may do this with a queue. A denial is logged."""
        if self.rights.open or self.rights.allow(right, namespace, name):
            return True
        full_name = f"{namespace}/{name}"
        self.runtime.count("denied")
        if self.rights.note_denial(right, full_name):
            self.runtime.log.warning("access denied", **self.facts(), right=right, queue=full_name)
        return False

    def publish(
        self, queue: Queue, payloads: Sequence[bytes], properties: Properties, rest: Callable[[int], FrameT]
    ) -> bool:
        """Publish over a protocol that can't report a refusal. Returns what ``handle`` should.

        If only the first messages are accepted, ``rest`` gets their number and makes a frame of the others, which is
        retried.
        """
        done = self.runtime.broker.publish(self.connection, queue, payloads, self.runtime.now(), properties)
        if done.refusal is None:
            return True
        self.inbox.replace_first(rest(done.accepted))
        return self.refused(done, queue, len(payloads[done.accepted]))

    def refused(self, published: PublishResult, queue: Queue, size: int) -> bool:
        """A publish was refused over a protocol that can't report it: wait, or close when waiting does not help.

        ``size`` is that of the first message that was refused. Returns what ``handle`` should: False, retry.
        """
        now = self.runtime.loop.time()
        assert published.refusal is not None
        hopeless = published.refusal is PublishRefusal.TOO_LARGE or bool(self.connection.out)
        if not self.stalled_since:
            self.stalled_since = now
            self.runtime.rounds.stall(self)
        if hopeless or now - self.stalled_since >= self.limits.refused_seconds:
            self.runtime.count("publish_refused")
            limit = self._limit_exceeded(published.refusal, queue)
            self.close("publish refused", queue=queue.full_name, size=size, limit=limit, reason=published.refusal.value)
        return False

    @property
    def room(self) -> int:
        """How many more bytes may wait for the peer to take them."""
        left = self.runtime.output_share - self.outbox.waiting_bytes
        return 0 if self.peer_is_slow or left < 0 else left

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn."""
        if not self.closing:
            self.outbox.append(data)
            self._output.prepared(self, len(data))

    def write_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """The same in parts. What is large takes nothing of the small ones' share of the turn: see ``Memory.grant``."""
        if not self.closing:
            size = sum(map(len, parts))
            self.outbox.extend(parts, size)
            self._output.prepared(self, 0 if size > LARGE else size)

    def close(self, event: str, **facts: Any) -> None:
        """End the connection, with ``event`` in the log as the reason. Waiting output is sent first."""
        if self.closing or self.ending:
            return
        self.runtime.log.warning(event, **self.facts(), **facts)
        self.end()

    def end(self) -> None:
        """End the connection without a line in the log. See the module's description."""
        if self.closing:
            return
        self.inbox.clear()
        self.outbox.drop_deliveries()
        self.runtime.rounds.unstall(self)
        if not self.ending:
            self.ending = True
            self.ending_since = self.runtime.loop.time()
            if self.reading and not self._finished:
                self.reading = False
                self.transport.pause_reading()
        if not self.answers_due:
            self.flush()
            self.closing = True
            self.ending_since = self.runtime.loop.time()
            self._memory.withdraw(self)
            self.transport.close()

    def facts(self) -> dict[str, Any]:
        """The peer, for the log."""
        facts: dict[str, Any] = {"protocol": self.protocol, "peer": self.peer.address}
        if self.peer.subject:
            facts["subject"] = self.peer.subject
        if self.peer.user is not None:
            facts["user"] = self.peer.user
        return facts

    # asyncio's side

    def expect(self, peer: Peer, connection: socket.socket) -> None:
        """The connection of this peer will be made on this socket."""
        self.peer = peer
        self.quick_ack.watch(connection)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has come: join the sessions of the broker."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are of classes of their own
        self.arrived = True
        runtime = self.runtime
        self.active_at = runtime.loop.time()
        try:
            certificate = transport.get_extra_info("peercert") or {}
            self.peer = runtime.peers.identify(self.protocol, self.peer, certificate)
            self.rights = Rights(runtime.options.access, self.peer)
            self.origin = origin_of_peer(self.peer)
            self.since = runtime.now()
            self.connection = runtime.admit(self)
            self.transport.set_write_buffer_limits(high=runtime.output_share)
            if transport.get_extra_info("ssl_object") is not None:
                # The end of the handshake has no answer, and the first request may wait for its acknowledgement.
                self.quick_ack.acknowledge()
        except Exception as error:
            self.broken(error)

    def data_received(self, data: bytes) -> None:
        """Decode everything that came, and work; later, if other sessions wait for that or the turn has done enough."""
        if self.closing or self.ending:
            return
        turns, inbox, ack = self._turns, self.inbox, self.quick_ack
        self.active_at = now = turns.begin_read()
        if ack.delayed and not ack.due:
            ack.note_read()
            self._output.await_acknowledgement(self)
        if turns.is_full:
            inbox.postpone(data)
            self._read_on_or_not()
            turns.work_later(self)
        else:
            try:
                turns.decoded(len(data), inbox.decode(data, now))
                self._work(SLICE)
            except Exception as error:  # see ``work_on``
                self.broken(error)
        if inbox.frames or inbox.unread or inbox.decoder.held or self.account.input:
            self._note_input()

    def eof_received(self) -> bool:
        """The peer has finished sending. See the module's description. Returns whether to leave our side open."""
        self._finished = True
        self.work()
        return not self.closing and self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone: handle the input that it sent, then return its messages to their queues."""
        self._lost = True
        self._memory.forget(self)
        self.work()

    def pause_writing(self) -> None:
        """The peer takes less than we send."""
        self.peer_is_slow = True

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.peer_is_slow = False
        if not self.closing:
            self.transport.set_write_buffer_limits(high=self.runtime.output_share)
            self._output.send_later(self)
            self.work()

    # Input

    def work(self) -> None:
        """Handle frames as long as that is possible, and resume or pause reading; behind sessions that wait for it."""
        if self._turns.has_input:
            self._turns.work_later(self)
        else:
            self.work_on(SLICE)

    def work_on(self, most: int) -> None:
        """Decode and handle up to ``most`` frames, but no more than SLICE, and resume or pause reading."""
        inbox, most = self.inbox, min(most, SLICE)
        try:
            if self._lost:
                self._finish_input(most)
            else:
                if inbox.unread and not inbox.frames:
                    self._decode_piece(most)
                self._work(most)
        except Exception as error:  # of any kind: only this session ends, the broker continues
            self.broken(error)
        if self._lost:
            self._leave()
        else:
            self._note_input()
        self._turns.touched()

    def _decode_piece(self, most: int) -> None:
        data = self.inbox.next_piece(most)
        self._turns.decoded(len(data), self.inbox.decode(data, self.active_at))

    def _work(self, most: int) -> None:
        turns, inbox = self._turns, self.inbox
        frames, before = inbox.frames, min(most, turns.work_left)
        left = before
        while frames and not self.closing and self.may_work():
            if left <= 0:
                turns.work_later(self)
                break
            try:
                done = self.handle(frames[0])
            except NotInMemory:  # we are woken when it is
                done = False
            left -= 1
            if self.effort:
                left -= self.effort
                self.effort = 0
            if not done:
                break
            if self.stalled_since:
                self.stalled_since = 0.0
                self.runtime.rounds.unstall(self)
            if frames:  # closing the session has cleared them
                frames.popleft()
        turns.spend(before - left)
        if not frames and (inbox.unread or self._finished or inbox.decoder.error is not None):
            self._all_handled()
        if not self.reading or frames or inbox.unread or self._memory.congested:
            self._read_on_or_not()

    def _all_handled(self) -> None:
        decoder = self.inbox.decoder
        if decoder.error is not None:
            self._protocol_error(decoder.error)
        elif self.inbox.unread:
            self._turns.work_later(self)
        elif self._finished and not self.ending:
            if decoder.close() is not None:
                self.runtime.count("truncated")
            self.end()

    def _finish_input(self, most: int) -> None:
        """Handle input that was read before the peer disconnected: received bytes count. A few frames at a time."""
        turns, inbox = self._turns, self.inbox
        left = min(most, turns.work_left)
        while left > 0 and (inbox.frames or inbox.unread):
            left -= 1
            if not inbox.frames:
                self._decode_piece(most)
                continue
            frame = self.after_loss(inbox.frames[0])
            if frame is not None:
                inbox.replace_first(frame)
                if not self.handle(frame):
                    self.close("publish refused", reason="the connection was lost while it waited")
                    return
                left -= self.effort
                turns.spend(1 + self.effort)
                self.effort = 0
            if inbox.frames:
                inbox.frames.popleft()

    def _note_input(self) -> None:
        held = self.inbox.held_bytes
        if held != self.account.input:
            self._memory.hold_input(self, held)

    def _leave(self) -> None:
        """The connection is lost: once all input is handled, messages in flight return to their queues."""
        if (self.inbox.frames or self.inbox.unread) and not self.closing:
            self._turns.work_later(self)
            return
        self.closing = True
        self.inbox.clear()
        self.outbox.clear()
        if (reading := self.outbox.take_reading()) is not None:
            self.runtime.cold_reads.drop(reading)
        self.runtime.cold_reads.forget(self)
        self._memory.forget(self)
        self.runtime.lost(self)

    def _read_on_or_not(self) -> None:
        reading = not (self.inbox.frames or self.inbox.unread or self._memory.congested)
        if self.closing or self.ending or self._finished or reading == self.reading:
            return
        self.reading = reading
        if reading:
            self.inbox.resumed(self.runtime.loop.time())
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _limit_exceeded(self, refusal: PublishRefusal, queue: Queue) -> str:
        """The limit that a refused message exceeds, for the log."""
        if refusal is PublishRefusal.DISK:
            return f"{self.runtime.options.journal.min_free_bytes} bytes free"
        policy = queue.policy
        limits = [] if refusal is PublishRefusal.TOO_LARGE or not policy.max_depth else [f"{policy.max_depth} messages"]
        return ", ".join([*limits, *([f"{policy.max_bytes} bytes"] if policy.max_bytes else [])])

    def _protocol_error(self, error: WireError) -> None:
        """The peer sent invalid bytes: log that, and end."""
        self.runtime.count_protocol_error(self.protocol, error.code)
        facts = {"size": error.size, "limit": error.limit} if error.limit else {}
        named = {"queue": queue} if error.limit and (queue := self.queue_in_hand) else {}
        self.close("protocol error", offset=error.offset, code=error.code, **named, **facts, reason=error.reason)

    def broken(self, error: Exception) -> None:
        """A fault of ours: log it, and end the connection at once.

        The broker continues, unless its counters are wrong: then it ends.
        """
        self.runtime.count("session_errors")
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{at.filename}:{at.lineno}"
        self.runtime.log.error("error in a session", **self.facts(), error=repr(error), place=place)
        self.abort()
        if isinstance(error, Miscounted):
            self.runtime.fail(error)

    def abort(self) -> None:
        """End the connection at once. Input that was not handled is dropped."""
        self.closing = True
        self.inbox.clear()
        self.outbox.clear()
        self.account.keep(-self.account.kept_bytes)
        self.inbox.decoder.close()
        self.transport.abort()
        self._memory.forget(self)

    # Output

    def deliver(self, delivery: DeliveryEffect) -> None:
        """Queue messages for the peer. They are sent when it is ready to read them."""
        if not self.ending:
            self.outbox.add_deliveries(delivery)
            self._output.send_later(self)

    @property
    def gone(self) -> bool:
        """Whether nothing can be sent any more: the peer has hung up, or the connection is closed."""
        return self.closing or self.transport.is_closing()

    @property
    def held_output(self) -> int:
        """Bytes of output that we hold: in the outbox, in the transport, and for answers."""
        return self.outbox.waiting_bytes + self.account.output

    def flush(self) -> None:
        """Send the waiting output, deliveries included, as far as the peer reads it."""
        if self.closing or self.transport.is_closing():
            return
        try:
            self._flush()
        except Exception as error:
            self.broken(error)

    def _flush(self) -> None:
        outbox, memory, lease = self.outbox, self._memory, self.runtime.lease_hold
        if outbox.deliveries or outbox.starved:
            outbox.fill(self)
        if lease.needed and not lease.is_valid():  # reading payloads may take long
            return
        written = outbox.write_to(self.transport)
        if written:
            self.quick_ack.note_write()
        self.note_output(written)
        if memory.line and not self.starved:
            memory.withdraw(self)
        if self.peer_is_slow:
            return
        if outbox.deliveries and not outbox.starved:
            self._output.send_later(self)
        if self.inbox.frames and not self.stalled_since:
            self.work()

    def note_output(self, written: int = 0) -> None:
        """Report how much output we hold outside of the outbox, and note whether the peer reads any.

        ``written`` is what was written since the last time.
        """
        account, buffered = self.account, self.transport.get_write_buffer_size()
        if buffered or account.buffered:
            account.note_written(written, buffered, self.runtime.loop.time())
        held = account.kept_bytes + account.unsent_bytes
        if held != account.output:
            self._memory.hold_output(self, held)
