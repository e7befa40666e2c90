r"""Bytes to PHPMQ frames, for servers and for clients.

One message, here a publish in its compact form::

     0   1       3           6       8                       8+width
    +---+-------+-----------+-------+---+-------+-----------+--------------+---+-------+---- - -
    | H |version| type      |packets| P |packet | size      | content      | P |packet | …
    |   | 2     | 3 digits  | 2     |   | 2     | 29 or 33  |              |   |       |
    +---+-------+-----------+-------+---+-------+-----------+--------------+---+-------+---- - -

In the lined form a line end (LF or CRLF) follows the message header, each packet header and each content. Either way
what stands between two contents is a *joint*: the line end of the content (or message header) before, the packet
header, and its line end. A joint is of one length on a connection, and says nothing but a packet type and a size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import ClassVar, Final

from mypy_extensions import mypyc_attr

from penstock.wire.phpmq.forms import BOUNDS, Form, form_of
from penstock.wire.phpmq.frames import (
    DEFAULT_MAX_PAYLOAD,
    ID_SIZE,
    LINE_ENDS,
    MAX_ID,
    MAX_TTL,
    Acknowledge,
    Consume,
    Dialect,
    Dispatch,
    MessageType,
    Packet,
    PhpmqFrame,
    Publish,
    Reject,
    Requeue,
    Style,
)
from penstock.wire.phpmq.runs import contents_of_run
from penstock.wire.stream import StreamDecoder, WireError, too_large

#: The packets of each type and packet count, in the order in which we send them.
_LAYOUTS: dict[tuple[MessageType, int], tuple[Packet, ...]] = {
    (MessageType.PUBLISH, 2): (Packet.QUEUE, Packet.CONTENT),
    (MessageType.PUBLISH, 3): (Packet.QUEUE, Packet.CONTENT, Packet.TTL),
    (MessageType.CONSUME, 2): (Packet.QUEUE, Packet.COUNT),
    (MessageType.DISPATCH, 3): (Packet.QUEUE, Packet.CONTENT, Packet.ID),
    (MessageType.DISPATCH, 4): (Packet.QUEUE, Packet.CONTENT, Packet.ID, Packet.TTL),
    (MessageType.ACKNOWLEDGE, 2): (Packet.QUEUE, Packet.ID),
    (MessageType.REQUEUE, 3): (Packet.QUEUE, Packet.ID, Packet.TTL),
    (MessageType.REJECT, 2): (Packet.QUEUE, Packet.ID),
}
_COUNTS: Final = {kind: [count for each, count in _LAYOUTS if each is kind] for kind in MessageType}


@mypyc_attr(allow_interpreted_subclasses=True)
class _Decoder(StreamDecoder[PhpmqFrame]):
    """What the decoders of both sides have in common: all but the types they take."""

    protocol = "PHPMQ"
    _sender: ClassVar[str]
    _takes: ClassVar[frozenset[MessageType]]

    def __init__(self, max_payload: int = DEFAULT_MAX_PAYLOAD, dialect: Dialect | None = None) -> None:
        super().__init__()
        self.max_payload = max_payload
        self.dialect = dialect
        #: How the peer writes, learned from its first message; None until then.
        self.style: Style | None = None
        #: The queue of the message that was read field by field last, or is being read.
        self.queue_in_hand = ""
        self._form: Form | None = None
        #: Whether the last message may still be followed by its line end.
        self._line_end_due = False

    def feed(self, data: bytes) -> list[PhpmqFrame]:
        """Decode bytes. ``style`` is that of all frames returned so far."""
        frames = super().feed(data)
        if self._form is not None:
            ttl = self._dispatch_ttl(frames)
            ttl = self.dialect is Dialect.TTL if self.dialect else ttl
            if self.style is None or self.style.dispatch_ttl is not ttl:
                self.style = Style(self._form.width, self._form.line_end, ttl)
        return frames

    @abstractmethod
    def _dispatch_ttl(self, frames: list[PhpmqFrame]) -> bool | None:
        """Whether dispatches carry a TTL, from these frames and all before them; None is as each was published."""

    # The exact parser, from the message down to its parts.

    def _message(self) -> Generator[int, bytes, PhpmqFrame | None]:
        flag = yield 1
        if self._line_end_due and self._form is not None and flag == self._form.line_end[:1]:
            yield from self._line_end(self._form.line_end[1:])
            self._line_end_due = False
            return None
        if flag != b"H":
            raise self._bad("bad-start", f"a message starts with 'H', not {_shown(flag)}")
        kind, layout = self._layout((yield 7))
        contents: dict[Packet, bytes] = {}
        while len(contents) < len(layout):
            packet, size = yield from self._packet_header(kind, layout, contents)
            content = (yield size) if size else b""
            self._check_content(packet, content)
            contents[packet] = content
        self._line_end_due = self._form is not None and self._form.line_end != b""
        return _frame(kind, contents)

    def _layout(self, header: bytes) -> tuple[MessageType, tuple[Packet, ...]]:
        """Type and packets from a message header without its 'H'."""
        self._check_digits(header, self._field_at)
        number, count = int(header[2:5]), int(header[5:])
        if header[:2] != b"01":
            raise self._bad("unknown-version", f"the version is 01, not {header[:2].decode()}")
        if not MessageType.PUBLISH <= number <= MessageType.REJECT:
            raise self._bad("unknown-type", f"message types are 001 to 006, not {number:03}", at=2)
        kind = MessageType(number)
        if kind not in self._takes:
            raise self._bad("wrong-direction", f"a {kind:03} does not come from a {self._sender}", at=2)
        layout = _LAYOUTS.get((kind, count))
        if layout is None:
            counts = " or ".join(map(str, _COUNTS[kind]))
            raise self._bad("bad-count", f"a {kind:03} has {counts} packets, not {count}", at=5)
        return kind, layout

    def _packet_header(
        self, kind: MessageType, layout: tuple[Packet, ...], contents: dict[Packet, bytes]
    ) -> Generator[int, bytes, tuple[Packet, int]]:
        """Read a joint. ``contents`` are the packets that the message had before."""
        form = self._form
        if form is None:
            return (yield from self._first_packet_header())
        yield from self._line_end(form.line_end)
        at = self.offset
        header = yield form.width
        if header[:1] != b"P":
            raise self._bad("bad-packet", f"a packet starts with 'P', not {_shown(header[:1])}")
        self._check_digits(header[1:], at + 1)
        packet = self._packet(int(header[1:3]), kind, layout, contents)
        size = int(header[3:])
        self._check_size(packet, size, at + 3)
        yield from self._line_end(form.line_end)
        return packet, size

    def _first_packet_header(self) -> Generator[int, bytes, tuple[Packet, int]]:
        """Read the first joint of the connection, and learn from it what all others look like."""
        line_end = b""
        flag = yield 1
        if flag in (b"\r", b"\n"):
            line_end = b"\n" if flag == b"\n" else b"\r\n"
            yield from self._line_end(line_end[1:])
            flag = yield 1
        at = self._field_at
        if flag != b"P":
            raise self._bad("bad-packet", f"a packet starts with 'P', not {_shown(flag)}")
        header = yield 31
        self._check_digits(header, at + 1)
        if header[:2] != b"01":
            raise self._bad("queue-not-first", f"the first packet is 01, the queue name, not {header[:2].decode()}")
        # A compact header does not show where it ends. But a queue name has at most 3 digits' worth of bytes, and is
        # never empty: 29 zeros are the beginning of a wider number. A header on its own line shows its length.
        probe = b"" if not line_end else (yield 1)
        wide = probe.isdigit() if line_end else int(header[2:]) == 0
        self._fix_form(36 if wide else 32, line_end, at)
        if wide:
            more = probe + (yield 4 - len(probe))
            self._check_digits(more, at + 32)
            header += more
        elif probe != line_end[:1]:
            raise self._wrong_line_end(line_end, probe)
        self._check_size(Packet.QUEUE, int(header[2:]), at + 3)
        yield from self._line_end(line_end if wide else line_end[1:])
        return Packet.QUEUE, int(header[2:])

    def _fix_form(self, width: int, line_end: bytes, at: int) -> None:
        if self.dialect in (Dialect.WIDE, Dialect.NARROW) and width != int(self.dialect):
            reason = f"packet headers are {self.dialect} wide on this connection, not {width}"
            raise self._error(at, "wrong-width", reason)
        self._form = form_of(width, line_end)

    def _line_end(self, expected: bytes) -> Generator[int, bytes, None]:
        """Read this line end, or the rest of one; nothing if it is empty."""
        if expected:
            found = yield len(expected)
            if found != expected:
                raise self._wrong_line_end(expected, found)

    def _wrong_line_end(self, expected: bytes, found: bytes) -> WireError:
        at = 0 if found[:1] != expected[:1] else 1
        reason = f"a line ends with {LINE_ENDS[expected[at:]]} here, not with {_shown(found[at : at + 1])}"
        return self._bad("bad-line-end", reason, at=at)

    def _packet(
        self, number: int, kind: MessageType, layout: tuple[Packet, ...], contents: dict[Packet, bytes]
    ) -> Packet:
        """The packet of this number, if it may come now. Errors point at the number in the header read last."""
        if not contents and number != Packet.QUEUE:
            raise self._bad("queue-not-first", f"the first packet is 01, the queue name, not {number:02}", at=1)
        if number in contents:
            raise self._bad("duplicate-packet", f"packet {number:02} comes twice", at=1)
        if number not in layout:
            reason = f"packet {number:02} does not belong in a {kind:03} of {len(layout)} packets"
            raise self._bad("unexpected-packet", reason, at=1)
        return Packet(number)

    def _check_size(self, packet: Packet, size: int, at: int) -> None:
        """The limits, before anything of the content is there."""
        if packet is Packet.CONTENT and size > self.max_payload:
            reason = f"a payload of {size} bytes is over the limit of {self.max_payload}"
            error = self._error(at, "payload-too-large", reason, peer_at_fault=False)
            raise too_large(error, size, self.max_payload)
        what, least, most = BOUNDS[packet]
        if not least <= size <= most:
            raise self._error(at, "bad-size", f"{what} has {least} to {most} bytes, not {size}")

    def _check_content(self, packet: Packet, content: bytes) -> None:
        if packet is Packet.QUEUE:
            try:
                self.queue_in_hand = content.decode()
            except UnicodeDecodeError as error:
                raise self._bad("bad-name", "a queue name is UTF-8", at=error.start) from None
        elif packet in (Packet.COUNT, Packet.TTL):
            self._check_digits(content, self._field_at)
            if packet is Packet.TTL and int(content) > MAX_TTL:
                raise self._bad("bad-ttl", f"a time to live is at most {MAX_TTL} seconds, not {int(content)}")

    def _check_digits(self, field: bytes, at: int) -> None:
        if not field.isdigit():
            place = next(i for i in range(len(field)) if not field[i : i + 1].isdigit())
            raise self._error(at + place, "bad-number", f"{_shown(field[place : place + 1])} is not a digit")

    def _error(self, at: int, code: str, reason: str, *, peer_at_fault: bool = True) -> WireError:
        """Like ``_bad``, with the offset in the stream."""
        return WireError(self.protocol, at, code, reason, peer_at_fault=peer_at_fault)

    # The fast pass.

    def _run(self, data: bytes, pos: int, frames: list[PhpmqFrame]) -> int:
        form, end = self._form, len(data)
        if form is None:
            return pos
        while pos < end:
            if self._line_end_due and data.startswith(form.line_end, pos):
                pos += len(form.line_end)
                self._line_end_due = False
            behind = self._like(data, pos, frames, form)
            if behind == pos:
                return pos
            self._line_end_due = form.line_end != b""
            pos = behind
        return pos

    @abstractmethod
    def _like(self, data: bytes, pos: int, frames: list[PhpmqFrame], form: Form) -> int:
        """Append the run of similar messages at ``pos`` as one frame. Returns the end of its last content."""

    def _queue(self, data: bytes, pos: int, form: Form) -> tuple[str, int]:
        """The queue of the message at ``pos``, and where its name ends; an empty one if it is not all there."""
        start = pos + 8 + form.joint_size
        stop = start + form.queue_sizes.of(data[pos + 8 : start])
        try:
            return (data[start:stop].decode(), stop) if stop <= len(data) else ("", pos)
        except UnicodeDecodeError:
            return "", pos

    def _ttl(self, data: bytes, pos: int, form: Form) -> tuple[int, int]:
        """The value of the TTL packet whose joint is at ``pos`` and where it ends; -1 if it is not plain."""
        start = pos + form.joint_size
        stop = start + form.sizes[Packet.TTL].of(data[pos:start])
        if stop <= len(data) and (digits := data[start:stop]).isdigit() and (ttl := int(digits)) <= MAX_TTL:
            return ttl, stop
        return -1, pos


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerDecoder(_Decoder):
    """Decodes what a server receives.

    ``style`` is that of the answers. Unless ``dialect`` determines whether dispatches carry a TTL, they do once the
    client has sent a TTL, a 005 or a 006, and they don't once it has sent a 001 of two packets and none of these. A
    client that has only consumed gets each message as it was published: ``dispatch_ttl`` is None. Apart from the width,
    a dialect does not restrict the messages that are accepted.
    """

    _sender = "client"
    _takes = frozenset(MessageType) - {MessageType.DISPATCH}
    _saw_ttl = False
    _saw_plain = False

    def _dispatch_ttl(self, frames: list[PhpmqFrame]) -> bool | None:
        if not self._saw_ttl:
            for frame in frames:
                ttl = frame.ttl if isinstance(frame, Publish) else None
                self._saw_plain |= isinstance(frame, Publish) and ttl is None
                self._saw_ttl |= isinstance(frame, (Requeue, Reject)) or ttl is not None
        return True if self._saw_ttl else False if self._saw_plain else None

    def _like(self, data: bytes, pos: int, frames: list[PhpmqFrame], form: Form) -> int:
        """Take messages that differ in one content only: up to its joint they are one head, behind it one tail."""
        shape = _SHAPES.get(data[pos : pos + 8])
        if shape is None:
            return pos
        queue, head_end = self._queue(data, pos, form)
        if not queue:
            return pos
        packet, with_ttl, make = shape
        ttl, tail = self._tail(data, head_end, form) if with_ttl else (None, b"")
        if with_ttl and not tail:
            return pos
        limit = self.max_payload if make is Publish else MAX_ID
        like = data[pos:head_end], form.sizes[packet], form.joint_size, tail, form.line_end
        contents, pos = contents_of_run(data, pos, *like, limit)
        if contents:
            frames.append(make(queue, tuple(contents), ttl))
        return pos

    def _tail(self, data: bytes, joint: int, form: Form) -> tuple[int | None, bytes]:
        """The TTL behind a payload and its bytes. A run ends where they change."""
        start = joint + form.joint_size
        stop = start + form.sizes[Packet.CONTENT].of(data[joint:start])
        ttl, end = self._ttl(data, stop, form)
        return ttl, data[stop:end]


#: By message header: the content that a run's messages differ in, whether they end in a TTL, and what makes the frame.
_SHAPES: dict[bytes, tuple[Packet, bool, Callable[[str, tuple[bytes, ...], int | None], PhpmqFrame]]] = {
    b"H0100102": (Packet.CONTENT, False, Publish),
    b"H0100103": (Packet.CONTENT, True, Publish),
    b"H0100402": (Packet.ID, False, lambda queue, ids, _: Acknowledge(queue, ids)),
    b"H0100602": (Packet.ID, False, lambda queue, ids, _: Reject(queue, ids)),
}


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientDecoder(_Decoder):
    """Decodes what a client receives: dispatches, with or without a TTL whatever the ``dialect``."""

    _sender = "server"
    _takes = frozenset({MessageType.DISPATCH})

    def __init__(self, max_payload: int = DEFAULT_MAX_PAYLOAD, dialect: Dialect | None = None) -> None:
        super().__init__(max_payload, dialect)
        #: Whether dispatches with a TTL came, and such without.
        self._seen: frozenset[bool] = frozenset()

    def _dispatch_ttl(self, frames: list[PhpmqFrame]) -> bool | None:
        if len(self._seen) < 2:
            self._seen |= {frame.ttls is not None for frame in frames if isinstance(frame, Dispatch)}
        return next(iter(self._seen)) if len(self._seen) == 1 else None

    def _like(self, data: bytes, pos: int, frames: list[PhpmqFrame], form: Form) -> int:
        queue, head_end = self._queue(data, pos, form)
        head = data[pos:head_end]
        if not head.startswith((b"H0100303", b"H0100304")):
            return pos
        sizes, joint_size, line_end = form.sizes[Packet.CONTENT], form.joint_size, form.line_end
        id_joint = form.joints[Packet.ID].of(ID_SIZE)
        with_ttl = head[7:8] == b"4"
        ids: list[bytes] = []
        payloads: list[bytes] = []
        ttls: list[int] = []
        at = pos
        while data.startswith(head, at):
            joint = at + len(head)
            start = joint + joint_size
            size = sizes.of(data[joint:start])
            stop = start + size
            id_start = stop + joint_size
            message_end = id_end = id_start + ID_SIZE
            if size > self.max_payload or id_end > len(data) or not data.startswith(id_joint, stop):
                break
            if with_ttl:
                ttl, message_end = self._ttl(data, id_end, form)
                if ttl < 0:
                    break
                ttls.append(ttl)
            payloads.append(data[start:stop])
            ids.append(data[id_start:id_end])
            at = pos = message_end
            if line_end and data.startswith(line_end, at):
                at += len(line_end)
        if ids:
            frames.append(Dispatch(queue, tuple(ids), tuple(payloads), tuple(ttls) if with_ttl else None))
        return pos


def _frame(kind: MessageType, contents: dict[Packet, bytes]) -> PhpmqFrame:
    """The frame of a message whose contents were checked."""
    queue = contents[Packet.QUEUE].decode()
    ttl = int(contents[Packet.TTL]) if Packet.TTL in contents else None
    match kind:
        case MessageType.PUBLISH:
            return Publish(queue, (contents[Packet.CONTENT],), ttl)
        case MessageType.CONSUME:
            return Consume(queue, int(contents[Packet.COUNT]))
        case MessageType.DISPATCH:
            ttls = None if ttl is None else (ttl,)
            return Dispatch(queue, (contents[Packet.ID],), (contents[Packet.CONTENT],), ttls)
        case MessageType.ACKNOWLEDGE:
            return Acknowledge(queue, (contents[Packet.ID],))
        case MessageType.REQUEUE:
            return Requeue(queue, contents[Packet.ID], int(contents[Packet.TTL]))
        case MessageType.REJECT:
            return Reject(queue, (contents[Packet.ID],))


def _shown(byte: bytes) -> str:
    return ascii(byte.decode("latin-1"))
