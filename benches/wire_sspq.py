"""SSPQ: decode and encode against the bare minimum in Python. Run: .venv/bin/python -m benches.wire"""

from __future__ import annotations

from functools import partial
from struct import Struct

from benches.measure import Row, compare
from benches.traffic import CHUNK, chunks
from penstock.wire import sspq

HEADER = Struct(">HBBI")


def bare_decode(pieces: list[bytes]) -> int:
    """Unpack each fixed header and slice the payload: no checks, no splits over chunks, nothing kept."""
    unpack = HEADER.unpack_from
    count = 0
    for data in pieces:
        pos = 0
        end = len(data)
        while pos < end:
            _magic, _kind, _retries, size = unpack(data, pos)
            start = pos + 8
            pos = start + size
            _payload = data[start:pos]
            count += 1
    return count


def our_decode(pieces: list[bytes]) -> int:
    decoder = sspq.Decoder()
    count = 0
    for data in pieces:
        for frame in decoder.feed(data):
            assert isinstance(frame, sspq.Send)
            count += len(frame.payloads)
    return count


def encode_rows(size: int, name: str, batch: tuple[bytes, ...]) -> list[Row]:
    """Against the simplest encoder there is (one constant header for all) and against a lower bound, the join alone."""
    frame = sspq.Send(3, batch)
    header = sspq.encode([sspq.Send(3, batch[:1])])[:8]
    ready = [part for payload in batch for part in (header, payload)]

    def bare() -> bytes:
        return b"".join([part for payload in batch for part in (header, payload)])

    def ours() -> bytes:
        return sspq.encode([frame])

    return [
        compare(f"SSPQ encode {size} B, {name}", len(batch), bare, ours, aim=1.5, rounds=300),
        compare("  … with parts ready-made", len(batch), lambda: b"".join(ready), ours, aim=None, rounds=300),
    ]


def rows() -> list[Row]:
    found = []
    for size in (100, 1000):
        payloads = tuple(bytes([i % 251]) * size for i in range(20_000))
        stream = sspq.encode([sspq.Send(3, payloads)])
        whole_frames = chunks(stream, CHUNK // (size + 8) * (size + 8))
        split = chunks(stream, CHUNK)
        assert our_decode(split) == len(payloads)
        decode = partial(bare_decode, whole_frames), partial(our_decode, split)
        found.append(compare(f"SSPQ decode {size} B", len(payloads), *decode, aim=2.0))
        batch = payloads[: CHUNK // size]
        found += encode_rows(size, "one size", batch)
        found += encode_rows(size, "mixed sizes", tuple(payload[i % 9 :] for i, payload in enumerate(batch)))
    return found
