"""``decode``: frames to the table of frames against the codec alone. Run: .venv/bin/python -m benches.pipelines"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benches.measure import Row, compare, report
from benches.traffic import chunks
from penstock.spark.pipelines.decode.captures import PIECE, TO_CLIENT, TO_SERVER, read_stream
from penstock.spark.pipelines.decode.frames import FrameSource
from penstock.wire import kokaq, phpmq, sspq

COUNT = 40_000
ID = b"0123456789abcdef0123456789abcdef"


def streams(size: int) -> dict[str, tuple[str, str, bytes, Callable[[], Any]]]:
    """By name: protocol, direction, bytes, and the codec's own decoder."""
    payloads = tuple(bytes([i % 251]) * size for i in range(COUNT))
    ids = tuple(b"%032x" % i for i in range(COUNT))
    opaques = tuple(i.to_bytes(4, "big") for i in range(COUNT))
    kind = kokaq.MessageType.OPERATIONAL
    run = kokaq.MetadataRun.of(kokaq.Metadata(uuid=each[:16], created_at=at) for at, each in enumerate(ids))
    style = phpmq.Style()
    published = phpmq.encode([phpmq.Publish("jobs", payloads, 60)], style)
    dispatched = phpmq.encode([phpmq.Dispatch("jobs", ids, payloads, (60,) * COUNT)], style)
    acknowledged = phpmq.encode([phpmq.Acknowledge("jobs", ids)], style)
    pushed = kokaq.encode_requests([kokaq.Pushes(kind, True, 1, "a", "jobs", opaques, bytes(COUNT), payloads)])
    popped = kokaq.encode_responses(
        [kokaq.Deliveries(kind, kokaq.Opcode.POP, "a", "jobs", opaques, bytes(COUNT), run, payloads)]
    )
    return {
        "SSPQ": ("sspq", TO_SERVER, sspq.encode([sspq.Send(3, payloads)]), sspq.Decoder),
        "PHPMQ publish": ("phpmq", TO_SERVER, published, phpmq.ServerDecoder),
        "PHPMQ dispatch": ("phpmq", TO_CLIENT, dispatched, phpmq.ClientDecoder),
        "PHPMQ acknowledge": ("phpmq", TO_SERVER, acknowledged, phpmq.ServerDecoder),
        "Kokaq push": ("kokaq", TO_SERVER, pushed, kokaq.ServerDecoder),
        "Kokaq delivery": ("kokaq", TO_CLIENT, popped, kokaq.ClientDecoder),
    }


def codec(pieces: list[bytes], make: Callable[[], Any]) -> int:
    decoder = make()
    return sum(len(decoder.feed(piece)) for piece in pieces)


def table(pieces: list[bytes], source: FrameSource) -> int:
    return sum(batch.num_rows for batch in read_stream(pieces, source))


def rows() -> list[Row]:
    found = []
    for size in (100, 1000):
        for name, (protocol, direction, stream, make) in streams(size).items():
            pieces = chunks(stream, PIECE)
            source = FrameSource("file", None, protocol, direction)
            assert table(pieces, source) == COUNT
            bare, ours = (lambda p=pieces, m=make: codec(p, m)), (lambda p=pieces, s=source: table(p, s))
            found.append(compare(f"{name} {size} B", COUNT, bare, ours, aim=2.0, rounds=7))
    return found


if __name__ == "__main__":
    report("captures to a table of frames, against the codec alone (ratio 2 is half the rate)", rows())
