"""Kokaq: decode and encode against the bare minimum in Python. Run: .venv/bin/python -m benches.wire"""

from __future__ import annotations

from functools import partial
from struct import Struct

from benches.measure import Row, compare
from benches.traffic import CHUNK, chunks
from penstock.wire import kokaq
from penstock.wire.kokaq import (
    Deliveries,
    MessageType,
    Metadata,
    Opcode,
    Pushed,
    Pushes,
    Reason,
    Response,
    Status,
)

NAMESPACE, QUEUE = "default", "orders"
NAMES = len(NAMESPACE) + len(QUEUE)
HEADERS = Struct(">HBB4sBBBB")
COMPONENT = Struct(">BHBBBH")
PUSH = Struct(">HBB4sBBBBBHBBBH")
ANSWER = Struct(">HBB4sBBBBBHBIBB16s")
#: The metadata of a delivered message: version, creation time, UUID.
DELIVERY_METADATA = Struct(">BHBI BBI BBI BB16s")


def bare_pushes(pieces: list[bytes]) -> int:
    """Unpack each message's fixed headers and slice the payload: no checks, no splits over chunks, nothing kept."""
    unpack = PUSH.unpack_from
    count = 0
    for data in pieces:
        pos = 0
        end = len(data)
        while pos < end:
            _, _, _, _opaque, _, _, _, _, _, _, _, namespace, queue, size = unpack(data, pos)
            start = pos + 20 + namespace + queue
            pos = start + size
            _payload = data[start:pos]
            count += 1
    return count


def bare_deliveries(pieces: list[bytes]) -> int:
    """The same for answers to Pop, whose metadata always has the same fields."""
    count = 0
    for data in pieces:
        pos = 0
        end = len(data)
        while pos < end:
            _headers = HEADERS.unpack_from(data, pos)
            _metadata = DELIVERY_METADATA.unpack_from(data, pos + 12)
            pos += 12 + DELIVERY_METADATA.size
            _, _, _, namespace, queue, size = COMPONENT.unpack_from(data, pos)
            start = pos + 8 + namespace + queue
            pos = start + size
            _payload = data[start:pos]
            count += 1
    return count


def bare_answers(pieces: list[bytes]) -> int:
    """The same for answers to Push, each of which is nothing but fixed header."""
    unpack = ANSWER.unpack_from
    count = 0
    for data in pieces:
        for pos in range(0, len(data), ANSWER.size):
            _fields = unpack(data, pos)
            count += 1
    return count


def decode_requests(pieces: list[bytes]) -> int:
    decoder = kokaq.ServerDecoder()
    count = 0
    for data in pieces:
        for frame in decoder.feed(data):
            count += len(frame.payloads) if isinstance(frame, Pushes) else 1
    return count


def decode_responses(pieces: list[bytes]) -> int:
    decoder = kokaq.ClientDecoder()
    count = 0
    for data in pieces:
        for frame in decoder.feed(data):
            assert isinstance(frame, Pushed | Deliveries)
            count += len(frame.opaques)
    return count


def decode_and_read(pieces: list[bytes]) -> int:
    """What a client pays that looks at every field of every message."""
    decoder = kokaq.ClientDecoder()
    count = 0
    for data in pieces:
        for frame in decoder.feed(data):
            assert isinstance(frame, Deliveries)
            count += len(list(frame.metadata))
    return count


def opaques(count: int) -> tuple[bytes, ...]:
    return tuple(i.to_bytes(4, "big") for i in range(count))


def pushes(payloads: tuple[bytes, ...]) -> Pushes:
    count = len(payloads)
    return Pushes(MessageType.OPERATIONAL, True, 2, NAMESPACE, QUEUE, opaques(count), bytes(count), payloads)


def responses(payloads: tuple[bytes, ...]) -> list[Response]:
    """Answers to Pop as a server makes them: one value each, with its metadata."""
    kind = Opcode.POP, Status.SUCCESS, Reason.OK, 0
    return [
        Response(MessageType.OPERATIONAL, opaque, *kind, metadata(opaque), NAMESPACE, QUEUE, payload)
        for opaque, payload in zip(opaques(len(payloads)), payloads, strict=True)
    ]


def metadata(opaque: bytes) -> Metadata:
    return Metadata(version=1, created_at=1_700_000_000, uuid=opaque * 4)


def push_rows(size: int, name: str, batch: tuple[bytes, ...]) -> list[Row]:
    """Against the simplest encoder there is (constant bytes around opaque and payload), and against the join alone."""
    frame = pushes(batch)
    written = kokaq.encode_requests([pushes(batch[:1])])
    head, middle = written[:4], written[8 : 20 + NAMES]

    def parts() -> list[bytes]:
        pairs = zip(frame.opaques, batch, strict=True)
        return [part for opaque, payload in pairs for part in (head, opaque, middle, payload)]

    def ours() -> bytes:
        return kokaq.encode_requests([frame])

    ready = parts()
    title = f"Kokaq encode Push {size} B, {name}"
    return [
        compare(title, len(batch), lambda: b"".join(parts()), ours, aim=1.5, rounds=300),
        compare("  … with parts ready-made", len(batch), lambda: b"".join(ready), ours, aim=None, rounds=300),
    ]


def delivery_row(size: int, batch: tuple[bytes, ...]) -> Row:
    """Against a join in which the metadata of each is packed in one go, and all else is constant."""
    ids, made = opaques(len(batch)), responses(batch)
    written = kokaq.encode_responses(made[:1])
    metadata_end = 12 + DELIVERY_METADATA.size
    head, operation, names = written[:4], written[8:12], written[metadata_end : metadata_end + 8 + NAMES]
    pack = DELIVERY_METADATA.pack

    def bare() -> bytes:
        return b"".join(
            [
                part
                for opaque, payload in zip(ids, batch, strict=True)
                for part in (
                    head,
                    opaque,
                    operation,
                    pack(2, 0x420, 0, 3, 2, 4, 1, 3, 4, 1_700_000_000, 5, 16, opaque * 4),
                    names,
                    payload,
                )
            ]
        )

    def ours() -> bytes:
        return kokaq.encode_responses(made)

    assert bare() == ours()
    return compare(f"Kokaq encode Pop answer {size} B", len(batch), bare, ours, aim=None, rounds=100)


def answer_rows(count: int) -> list[Row]:
    frame = Pushed(MessageType.OPERATIONAL, opaques(count), bytes(count), tuple(each * 4 for each in opaques(count)))
    stream = kokaq.encode_responses([frame])
    head, middle = stream[:4], stream[8:22]
    whole = chunks(stream, CHUNK // ANSWER.size * ANSWER.size)

    def bare() -> bytes:
        pairs = zip(frame.opaques, frame.uuids, strict=True)
        return b"".join([part for opaque, uuid in pairs for part in (head, opaque, middle, uuid)])

    decode = partial(bare_answers, whole), partial(decode_responses, chunks(stream, CHUNK))
    return [
        compare("Kokaq decode Push answer", count, *decode, aim=2.0),
        compare("Kokaq encode Push answer", count, bare, lambda: kokaq.encode_responses([frame]), aim=1.5),
    ]


def rows() -> list[Row]:
    found = []
    for size in (100, 1000):
        payloads = tuple(bytes([i % 251]) * size for i in range(20_000))
        stream = kokaq.encode_requests([pushes(payloads)])
        length = len(stream) // len(payloads)
        split = chunks(stream, CHUNK)
        assert decode_requests(split) == len(payloads)
        decode = partial(bare_pushes, chunks(stream, CHUNK // length * length)), partial(decode_requests, split)
        found.append(compare(f"Kokaq decode Push {size} B", len(payloads), *decode, aim=2.0))
        stream = kokaq.encode_responses(responses(payloads))
        length = len(stream) // len(payloads)
        split = chunks(stream, CHUNK)
        assert decode_responses(split) == len(payloads)
        decode = partial(bare_deliveries, chunks(stream, CHUNK // length * length)), partial(decode_responses, split)
        found.append(compare(f"Kokaq decode Pop answer {size} B", len(payloads), *decode, aim=2.0))
        read = decode[0], partial(decode_and_read, split)
        found.append(compare("  … and read all metadata", len(payloads), *read, aim=None, rounds=10))
        batch = payloads[: CHUNK // size]
        found += push_rows(size, "one size", batch)
        found += push_rows(size, "mixed sizes", tuple(payload[i % 9 :] for i, payload in enumerate(batch)))
        found.append(delivery_row(size, batch))
    return found + answer_rows(2_000)
