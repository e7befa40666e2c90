"""The three protocols byte by byte, a second implementation that deliberately does not use ``penstock.wire``.

Small builders for requests and exact readers for answers. ``number`` arguments are the numbers on the wire, so that a
test shows them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from support.brokers import Peer, wait_for

# PHPMQ


def phpmq(kind: int, *packets: tuple[int, bytes], width: int = 32, eol: bytes = b"") -> bytes:
    """A PHPMQ message: its type, and the numbers and contents of its packets."""
    parts = [b"H01%03d%02d" % (kind, len(packets))]
    for number, content in packets:
        parts += [b"P%02d" % number + str(len(content)).zfill(width - 3).encode(), content]
    return b"".join(part + eol for part in parts)


def publish(queue: str, payload: bytes, ttl: int | None = None, **form: object) -> bytes:
    """001, in two or three packets."""
    packets = [(1, queue.encode()), (2, payload)] + ([] if ttl is None else [(5, b"%d" % ttl)])
    return phpmq(1, *packets, **form)  # type: ignore[arg-type]


def consume(queue: str, count: int, **form: object) -> bytes:
    """002."""
    return phpmq(2, (1, queue.encode()), (4, b"%d" % count), **form)  # type: ignore[arg-type]


def acknowledge(queue: str, number: bytes, **form: object) -> bytes:
    """004."""
    return phpmq(4, (1, queue.encode()), (3, number), **form)  # type: ignore[arg-type]


def requeue(queue: str, number: bytes, ttl: int = 0, **form: object) -> bytes:
    """005."""
    return phpmq(5, (1, queue.encode()), (3, number), (5, b"%d" % ttl), **form)  # type: ignore[arg-type]


def reject(queue: str, number: bytes, **form: object) -> bytes:
    """006."""
    return phpmq(6, (1, queue.encode()), (3, number), **form)  # type: ignore[arg-type]


class Dispatched(NamedTuple):
    """A 003. ``ttl`` None: it had three packets."""

    queue: str
    payload: bytes
    id: bytes
    ttl: int | None


def read_dispatch(peer: Peer, *, width: int = 32, eol: bytes = b"") -> Dispatched:
    """Read one 003, in exactly this form."""
    peer.expect(b"H01003")
    count = int(peer.read(2))
    peer.expect(eol)
    contents = []
    for number in (1, 2, 3, 5)[:count]:
        peer.expect(b"P%02d" % number)
        size = int(peer.read(width - 3))
        peer.expect(eol)
        contents.append(peer.read(size))
        peer.expect(eol)
    return Dispatched(contents[0].decode(), contents[1], contents[2], int(contents[3]) if count == 4 else None)


# SSPQ

SEND, RECEIVE, CONFIRM, DEAD_RECEIVE, NO_RECEIVE = 0x5E, 0xEC, 0xC0, 0xDE, 0x0E


def sspq(kind: int, payload: bytes = b"", retries: int = 0) -> bytes:
    """An SSPQ package."""
    return struct.pack(">HBBI", 0x5599, kind, retries, len(payload)) + payload


def send(payload: bytes, retries: int = 0) -> bytes:
    """SEND."""
    return sspq(SEND, payload, retries)


# Kokaq

NOP, CREATE, DELETE, GET, PEEK, POP, PUSH, ACQUIRE, RELEASE = 0, 1, 2, 3, 4, 5, 7, 8, 9
TTL, VERSION, CREATED, EXPIRES, UUID, SOURCE, MODIFIED, REQUEST_ID, CORRELATION, HANDLING = range(1, 11)
PRIORITY, LOCK, DEPTH, DEAD_REASON, MAX_DELIVERIES, DELAY = range(0x40, 0x46)

SUCCESS_OK, PARTIAL_OK = 0x01, 0x21
FAIL_OK, FAIL_BAD, FAIL_EXISTS, FAIL_NOT_ALLOWED, FAIL_INFRA = 0x11, 0x12, 0x13, 0x14, 0x15

Fields = dict[int, bytes | int]


def kokaq(
    opcode: int,
    queue: str | None = None,
    payload: bytes = b"",
    fields: Fields | None = None,
    *,
    type_byte: int = 0x40,
    opaque: bytes = b"\0\0\0\1",
    client: int = 2,
    op_opaque: int = 0,
) -> bytes:
    """A Kokaq request. ``queue`` is namespace/name; the name may be empty."""
    tag, body = 0, b""
    if fields is not None:
        tag |= 2
        body += b"\x02\x04\x20\x00" + len(fields).to_bytes(4, "big")
        for number, value in fields.items():
            raw = value if isinstance(value, bytes) else value.to_bytes(8 if number == PRIORITY else 4, "big")
            body += bytes((number, len(raw))) + raw
    if queue is not None:
        tag |= 1
        body += component(queue, payload)
    return b"\x04\x20\x01" + bytes((type_byte,)) + opaque + bytes((opcode, client, op_opaque, tag)) + body


def component(queue: str, payload: bytes = b"", *, tag: int = 1) -> bytes:
    """A payload component."""
    namespace, _, name = (part.encode() for part in queue.partition("/"))
    return struct.pack(">BHBBBH", tag, 0x0420, 0, len(namespace), len(name), len(payload)) + namespace + name + payload


class Answer(NamedTuple):
    """A Kokaq response as it stood on the wire."""

    type_byte: int
    opaque: bytes
    opcode: int
    outcome: int
    op_opaque: int
    fields: dict[int, bytes]
    queue: str | None
    payload: bytes | None

    def number(self, tag: int) -> int:
        """An integer field."""
        return int.from_bytes(self.fields[tag], "big")


def read_answer(peer: Peer, *, payload_tag: int = 1) -> Answer:
    """Read one response and no further; metadata has the other tag. A Nop's last byte is read as a tag."""
    peer.expect(b"\x04\x20\x01")
    type_byte, opaque, opcode, outcome, op_opaque, tag = struct.unpack(">B4sBBBB", peer.read(9))
    fields: dict[int, bytes] = {}
    queue = payload = None
    metadata_tag = 3 - payload_tag
    if tag & metadata_tag:
        peer.expect(bytes((metadata_tag,)), b"\x04\x20\x00")
        for _ in range(int.from_bytes(peer.read(4), "big")):
            number, size = peer.read(2)
            fields[number] = peer.read(size)
    if tag & payload_tag:
        peer.expect(bytes((payload_tag,)), b"\x04\x20\x00")
        namespace, name, size = struct.unpack(">BBH", peer.read(4))
        queue = f"{peer.read(namespace).decode()}/{peer.read(name).decode()}"
        payload = peer.read(size)
    return Answer(type_byte, opaque, opcode, outcome, op_opaque, fields, queue, payload)


class Kokaq(Peer):
    """A Kokaq client that waits for each answer."""

    def ask(self, opcode: int, queue: str | None = None, payload: bytes = b"", fields: Fields | None = None) -> Answer:
        """Send a two-way request and read its answer."""
        self.send(kokaq(opcode, queue, payload, fields))
        answer = read_answer(self)
        assert answer.opcode == opcode
        return answer

    def make(self, queue: str) -> Self:
        """Make a queue, and its namespace."""
        self.ask(CREATE, queue.partition("/")[0] + "/")
        assert self.ask(CREATE, queue).outcome == SUCCESS_OK
        return self

    def push(self, queue: str, payload: bytes, fields: Fields | None = None) -> bytes:
        """Push a message, and return its UUID."""
        answer = self.ask(PUSH, queue, payload, fields)
        assert answer.outcome == SUCCESS_OK
        return answer.fields[UUID]

    def depth(self, queue: str) -> int:
        """How many messages are ready."""
        answer = self.ask(GET, queue)
        assert answer.outcome == SUCCESS_OK, answer
        return answer.number(DEPTH)

    def wait_for_depth(self, queue: str, depth: int) -> None:
        """Wait until ``depth`` messages are ready. The queue may not exist yet."""

        def has_depth() -> bool:
            answer = self.ask(GET, queue)
            return answer.outcome == SUCCESS_OK and answer.number(DEPTH) == depth

        wait_for(has_depth, f"{queue} has no depth of {depth}")

    def pop_all(self, queue: str) -> list[bytes]:
        """Take every ready message."""
        payloads: list[bytes] = []
        while (answer := self.ask(POP, queue)).outcome != FAIL_OK:
            payloads.append(answer.payload or b"")
        return payloads
