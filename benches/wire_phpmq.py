"""PHPMQ: decode and encode against the bare minimum in Python. Run: .venv/bin/python -m benches.wire

Traffic is as the public PHP library writes it, compact with 32 wide headers, unless a row says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benches.measure import Row, compare
from benches.traffic import CHUNK, chunks
from penstock.wire import phpmq
from penstock.wire.phpmq import Acknowledge, ClientDecoder, Dispatch, PhpmqFrame, Publish, ServerDecoder, Style

COUNT = 20_000
QUEUE = "orders"
COMPACT = Style()
IDS = tuple(b"%032x" % i for i in range(COUNT))
TTLS = tuple(3600 - i % 60 for i in range(COUNT))


def bare_decode(pieces: list[bytes], packets: int, line_end: int = 0) -> int:
    """Read each size and slice each content: no checks, no splits over chunks, nothing kept."""
    count = 0
    header = 32 + line_end
    for data in pieces:
        pos = 0
        end = len(data)
        while pos < end:
            pos += 8 + line_end
            for _ in range(packets):
                start = pos + header
                stop = start + int(data[pos + 3 : start])
                _content = data[start:stop]
                pos = stop + line_end
            count += 1
    return count


def bare_decode_two(pieces: list[bytes]) -> int:
    """The same for compact messages of two packets, without the inner loop."""
    count = 0
    for data in pieces:
        pos = 0
        end = len(data)
        while pos < end:
            name_at = pos + 40
            name_end = name_at + int(data[pos + 11 : name_at])
            _name = data[name_at:name_end]
            start = name_end + 32
            pos = start + int(data[name_end + 3 : start])
            _content = data[start:pos]
            count += 1
    return count


def messages(frame: PhpmqFrame) -> Sequence[bytes]:
    if isinstance(frame, Publish):
        return frame.payloads
    assert isinstance(frame, Acknowledge | Dispatch)
    return frame.ids


def our_decode(pieces: list[bytes], decoder_type: type[ServerDecoder | ClientDecoder]) -> int:
    decoder = decoder_type()
    return sum(len(messages(frame)) for data in pieces for frame in decoder.feed(data))


def decode_row(name: str, frame: PhpmqFrame, style: Style, bare: Callable[[list[bytes]], int]) -> Row:
    count = len(messages(frame))
    stream = phpmq.encode([frame], style)
    size = len(stream) // count  # all messages of a row have one size
    decoder = ClientDecoder if isinstance(frame, Dispatch) else ServerDecoder
    whole, split = chunks(stream, CHUNK // size * size), chunks(stream, CHUNK)
    assert bare(whole) == our_decode(split, decoder) == count
    return compare(f"PHPMQ decode {name}", count, partial(bare, whole), partial(our_decode, split, decoder), aim=3.0)


def encode_rows(name: str, frame: PhpmqFrame, parts: Callable[[], list[bytes]]) -> list[Row]:
    """Against the simplest encoder there is (constant headers, no checks), and against the join alone."""
    ready = parts()
    assert b"".join(ready) == phpmq.encode([frame], COMPACT)
    count = len(messages(frame))

    def ours() -> bytes:
        return phpmq.encode([frame], COMPACT)

    return [
        compare(f"PHPMQ encode {name}", count, lambda: b"".join(parts()), ours, aim=1.5, rounds=300),
        compare("  … with parts ready-made", count, lambda: b"".join(ready), ours, aim=None, rounds=300),
    ]


def publish_rows(name: str, batch: tuple[bytes, ...]) -> list[Row]:
    head = phpmq.encode([Publish(QUEUE, (b"",), None)], COMPACT)[:-29]
    headers = {len(payload): b"%b%029d" % (head, len(payload)) for payload in batch}
    if len(headers) == 1:
        header = headers[len(batch[0])]
        return encode_rows(name, Publish(QUEUE, batch, None), lambda: [x for each in batch for x in (header, each)])
    return encode_rows(
        name, Publish(QUEUE, batch, None), lambda: [x for each in batch for x in (headers[len(each)], each)]
    )


def dispatch_rows(name: str, batch: tuple[bytes, ...]) -> list[Row]:
    frame = Dispatch(QUEUE, IDS[: len(batch)], batch, TTLS[: len(batch)])
    head = phpmq.encode([Publish(QUEUE, (batch[0],), None)], COMPACT)[: -len(batch[0])].replace(b"00102", b"00304", 1)
    id_head, ttl_head = b"P03%029d" % 32, b"P05%029d" % 4

    def parts() -> list[bytes]:
        found: list[bytes] = []
        for message_id, payload, ttl in zip(frame.ids, frame.payloads, TTLS, strict=False):
            found += (head, payload, id_head, message_id, ttl_head, b"%d" % ttl)
        return found

    return encode_rows(name, frame, parts)


def acknowledge_rows() -> list[Row]:
    frame = Acknowledge(QUEUE, IDS[:600])
    head = phpmq.encode([Acknowledge(QUEUE, IDS[:1])], COMPACT)[:-32]
    return encode_rows("acknowledgements", frame, lambda: [x for each in frame.ids for x in (head, each)])


def rows() -> list[Row]:
    found = []
    three, four = partial(bare_decode, packets=3), partial(bare_decode, packets=4)
    lined = partial(bare_decode, packets=2, line_end=1)
    for size in (100, 1000):
        payloads = tuple(bytes([i % 251]) * size for i in range(COUNT))
        plain = Publish(QUEUE, payloads, None)
        found.append(decode_row(f"{size} B", plain, COMPACT, bare_decode_two))
        found.append(decode_row(f"{size} B, lined", plain, Style(line_end=b"\n"), lined))
        found.append(decode_row(f"{size} B, with TTL", Publish(QUEUE, payloads, 3600), COMPACT, three))
        found.append(decode_row(f"{size} B, dispatches", Dispatch(QUEUE, IDS, payloads, TTLS), COMPACT, four))
        batch = payloads[: CHUNK // size]
        found += publish_rows(f"{size} B, one size", batch)
        found += publish_rows(f"{size} B, mixed sizes", tuple(each[i % 9 :] for i, each in enumerate(batch)))
        found += dispatch_rows(f"{size} B, dispatches", batch)
    found.append(decode_row("acknowledgements", Acknowledge(QUEUE, IDS), COMPACT, bare_decode_two))
    return found + acknowledge_rows()
