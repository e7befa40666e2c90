"""Captures to frames, without Spark: every protocol, split anywhere, cut, garbled, out of order, with gaps."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.pipelines.decode.captures import TO_CLIENT, TO_SERVER, read_stream
from penstock.spark.pipelines.decode.frames import FRAMES, FrameSource
from penstock.spark.pipelines.decode.reassembly import read_capture
from penstock.wire import kokaq, phpmq, sspq
from support.packets import ACK, FIN, SYN, Block, Talk, ethernet, interface, packet, pcap, pcapng

ID = b"0123456789abcdef0123456789abcdef"
UUID = bytes(range(16))


def _sspq() -> bytes:
    frames: list[sspq.SspqFrame] = [
        sspq.Send(3, (b"", b"one", b"x" * 300)),
        sspq.Receive(),
        sspq.Confirm(),
        sspq.Send(255, (b"four",)),
    ]
    return sspq.encode([*frames, sspq.Other(0x77), sspq.DeadReceive(), sspq.NoReceive()])


def _asked(style: phpmq.Style) -> bytes:
    frames: list[phpmq.PhpmqFrame] = [
        phpmq.Publish("jobs", (b"one", b"", b"H" * 70), 60),
        phpmq.Publish("jobs", (b"plain",), None),
        phpmq.Consume("jobs", 10),
        phpmq.Acknowledge("jobs", (ID, ID)),
        phpmq.Requeue("jobs", ID, 5),
        phpmq.Reject("jobs", (ID,)),
    ]
    return phpmq.encode(frames, style)


def _dispatched(style: phpmq.Style) -> bytes:
    return phpmq.encode([phpmq.Dispatch("jobs", (ID,) * 4, (b"a", b"bb", b"", b"H01"), (0, 10, 9, 100))], style)


def _requests(variant: kokaq.Variant) -> bytes:
    pushes = kokaq.Pushes(
        kokaq.MessageType.OPERATIONAL, True, 1, "shop", "orders", (b"aaaa", b"bbbb"), b"\0\1", (b"one", b"three")
    )
    rich = kokaq.Request(
        kokaq.MessageType.OPERATIONAL, False, b"cccc", kokaq.Opcode.PUSH, 0, 0,
        kokaq.Metadata(time_to_live=60, priority=7), "shop", "orders", b"rich",
    )  # fmt: skip
    bare = kokaq.Request(kokaq.MessageType.CONTROL, True, b"dddd", kokaq.Opcode.NOP)
    return kokaq.encode_requests([pushes, rich, bare], variant)


def _responses(variant: kokaq.Variant) -> bytes:
    kind = kokaq.MessageType.OPERATIONAL
    run = kokaq.MetadataRun.of(
        kokaq.Metadata(uuid=UUID, time_to_live=ttl, depth=depth) for ttl, depth in ((1, 9), (2, 8), (3, 7))
    )
    frames: list[kokaq.KokaqResponse] = [
        kokaq.Pushed(kind, (b"aaaa", b"bbbb"), b"\0\1", (UUID, UUID)),
        kokaq.Deliveries(kind, kokaq.Opcode.POP, "shop", "orders", (b"e" * 4,) * 3, b"\0" * 3, run, (b"", b"x", b"yy")),
        kokaq.Response(kind, b"ffff", kokaq.Opcode.GET, kokaq.Status.FAIL, kokaq.Reason.BAD),
    ]
    return kokaq.encode_responses(frames, variant)


STREAMS: dict[str, tuple[str, str | None, Callable[[], bytes], Callable[[], Any], Callable[..., Any]]] = {}
STREAMS["sspq"] = "sspq", None, _sspq, sspq.Decoder, sspq.singles
for width, line_end, ttl in product((32, 36), (b"", b"\n", b"\r\n"), (True, False)):
    style = phpmq.Style(width, line_end, ttl)
    name = f"phpmq {width} {line_end!r} {ttl}"
    STREAMS[f"{name} asked"] = "phpmq", TO_SERVER, partial(_asked, style), phpmq.ServerDecoder, phpmq.singles
    STREAMS[f"{name} dispatched"] = "phpmq", TO_CLIENT, partial(_dispatched, style), phpmq.ClientDecoder, phpmq.singles
for variant in kokaq.VARIANTS:
    client = partial(kokaq.ClientDecoder, variant=variant)
    STREAMS[f"{variant} requests"] = "kokaq", TO_SERVER, partial(_requests, variant), kokaq.ServerDecoder, kokaq.singles
    STREAMS[f"{variant} responses"] = "kokaq", TO_CLIENT, partial(_responses, variant), client, kokaq.singles


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        assert batch.schema == FRAMES
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def pieces(stream: bytes, size: int) -> Iterable[bytes]:
    return (stream[at : at + size] for at in range(0, len(stream), size))


@pytest.mark.parametrize("name", STREAMS)
def test_frames_equal_the_codecs_and_are_at_the_offsets_of_the_rows(name: str) -> None:
    protocol, direction, make, decoder, singles = STREAMS[name]
    stream = make()
    frames = list(singles(decoder().feed(stream)))
    known = FrameSource(
        "f", None, protocol, direction
    )  # the numbers of Kokaq's requests and responses overlap: a stream may look like either
    found = rows(read_stream([stream], known, payloads=True))
    for size in (1, 3, 50, 1000):
        assert rows(read_stream(pieces(stream, size), known, payloads=True)) == found
    assert [row["error"] for row in found] == [None] * len(frames)
    assert {(row["file"], row["protocol"], row["direction"]) for row in found} == {("f", protocol, direction)}
    end = 0
    for row, frame in zip(found, frames, strict=True):
        assert end <= row["offset"] <= end + 2  # a line end
        end = row["offset"] + row["length"]
        # The bytes of a row, appended to those that set up the decoder, decode to the same frame.
        assert list(singles(decoder().feed(stream[:end])))[-1] == frame
    assert len(stream) - 2 <= end <= len(stream)
    payloads = [getattr(frame, "payloads", None) or (getattr(frame, "payload", None),) for frame in frames]
    assert [row["payload"] for row in found] == [payload[0] for payload in payloads]


SHAPES = [(), ("uuid",), ("uuid", "created_at"), ("request_id", "depth", "time_to_live"), ("uuid", "source")]


def _any_metadata(rng: random.Random, names: tuple[str, ...]) -> kokaq.Metadata:
    fields: dict[str, Any] = {"uuid": rng.randbytes(16), "time_to_live": rng.getrandbits(32), "depth": 2**64 - 1}
    fields |= {"request_id": rng.randbytes(16), "created_at": rng.randrange(99), "source": rng.choice("xy")}
    others = (kokaq.Field(0x77, b"?"),) if rng.random() < 0.01 else ()
    return kokaq.Metadata(**{name: fields[name] for name in names}, others=others)


def test_metadata_read_in_bulk_equals_metadata_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    kind = kokaq.MessageType.OPERATIONAL
    sent: list[kokaq.KokaqResponse] = []
    for count in (1, 40, 2, 40, 3, 300, 1, 1, 40, 50, 60, 70):
        shapes = SHAPES if rng.random() < 0.3 else [rng.choice(SHAPES)]
        run = kokaq.MetadataRun.of(_any_metadata(rng, rng.choice(shapes)) for _ in range(count))
        opaques, payloads = tuple(rng.randbytes(4) for _ in range(count)), (b"x",) * count
        queue = rng.choice(["a", "b"])
        sent.append(kokaq.Deliveries(kind, kokaq.Opcode.POP, "n", queue, opaques, bytes(count), run, payloads))
        if rng.random() < 0.3:
            sent.append(kokaq.Pushed(kind, (b"aaaa",), b"\0", (UUID,)))
    stream = kokaq.encode_responses(sent) + b"garbage."
    read = partial(read_stream, source=FrameSource("f", None, "kokaq", TO_CLIENT))
    found = [rows(read(pieces(stream, size))) for size in (100, 5000, len(stream))]
    monkeypatch.setattr("penstock.spark.pipelines.decode.kokaq.MANY", 10**9)
    assert found == [rows(read([stream]))] * 3
    assert len({row["fields"] for row in found[0]}) > 50


@pytest.mark.parametrize("name", ["sspq", "phpmq 32 b'' True asked", "phpmq 36 b'\\n' False dispatched"])
def test_the_first_bytes_identify_protocol_and_direction(name: str) -> None:
    protocol, direction, make, _, _ = STREAMS[name]
    found = rows(read_stream(pieces(make(), 1), FrameSource("f")))
    assert {(row["protocol"], row["direction"], row["error"]) for row in found} == {(protocol, direction, None)}


def test_columns_of_each_protocol() -> None:
    found = rows(read_stream([_asked(phpmq.Style())], FrameSource("f")))
    assert [row["type"] for row in found[:4]] == ["PUBLISH"] * 4
    assert [row["ttl"] for row in found[:4]] == [60, 60, 60, None]
    assert [(row["type"], row["fields"]) for row in found[4:5]] == [("CONSUME", '{"count": 10}')]
    assert [(row["type"], row["id"], row["payload"]) for row in found[5:7]] == [("ACKNOWLEDGE", ID, None)] * 2
    found = rows(read_stream([_responses(kokaq.CANONICAL)], FrameSource("f")))
    assert [(row["type"], row["id"], row["ttl"]) for row in found[2:5]] == [("POP", UUID, 1 + n) for n in range(3)]
    assert found[2]["fields"] == '{"message_type": "OPERATIONAL", "status": "SUCCESS", "reason": "OK", "depth": 9}'
    assert found[5]["fields"] == '{"message_type": "OPERATIONAL", "status": "FAIL", "reason": "BAD"}'
    found = rows(read_stream([_sspq()], FrameSource("f")))
    assert [row["retries"] for row in found[:3]] == [3, 3, 3]
    assert [row["payload_size"] for row in found[:4]] == [0, 3, 300, None]


def test_numbers_with_leading_zeros_do_not_move_the_offsets() -> None:
    style = phpmq.Style(32, b"\n", True)
    one = phpmq.encode([phpmq.Publish("q", (b"H",), 7)], style)
    odd = one.replace(b"1\n7\n", b"3\n007\n")
    assert len(odd) == len(one) + 2
    stream = one + odd * 3 + one[:-1] + odd + one
    found = rows(read_stream([stream], FrameSource("f")))
    assert [row["ttl"] for row in found] == [7] * 7
    for row in found:
        text = stream[row["offset"] : row["offset"] + row["length"]]
        assert text.startswith(b"H01")
        assert text.endswith(b"7")


@pytest.mark.parametrize("name", ["sspq", "phpmq 32 b'\\r\\n' True asked"])
def test_a_stream_cut_anywhere_has_the_complete_frames_and_the_offset_of_its_end(name: str) -> None:
    _, _, make, _, _ = STREAMS[name]
    stream = make()
    whole = rows(read_stream([stream], FrameSource("f")))
    for end in range(1, len(stream)):
        *found, last = rows(read_stream([stream[:end]], FrameSource("f"))) or [{}]
        if last.get("error") is None:
            found.append(last)
            assert end - found[-1]["offset"] - found[-1]["length"] in (0, 1, 2)
        elif last["code"] != "unknown-protocol":
            assert last["code"] == "truncated"
            assert last["offset"] == end
        assert [row["offset"] for row in found] == [row["offset"] for row in whole[: len(found)]]


def test_a_garbled_stream_ends_with_the_offset_and_the_remaining_bytes() -> None:
    good = sspq.encode([sspq.Send(3, (b"one", b"two"))])
    found = rows(read_stream(pieces(good + b"\xff" * 100, 7), FrameSource("f")))
    assert [row["type"] for row in found] == ["SEND", "SEND", None]
    assert (found[2]["code"], found[2]["offset"], found[2]["length"]) == ("bad-magic", len(good), 100)
    assert f"(at byte {len(good)})" in found[2]["error"]


def test_an_unknown_protocol_is_reported() -> None:
    (row,) = rows(read_stream([b"GET / HTTP/1.1\r\n"], FrameSource("f")))
    assert (row["code"], row["offset"], row["length"]) == ("unknown-protocol", 0, 16)
    assert rows(read_stream([], FrameSource("f"))) == []


def conversation(asked: bytes, answered: bytes, size: int = 40) -> list[Talk]:
    """A connection that opens, exchanges messages in turns, and closes."""
    turns = [Talk(True, 0, b"", SYN), Talk(False, 0, b"", SYN | ACK)]
    for at in range(0, max(len(asked), len(answered)), size):
        turns += [Talk(True, at, asked[at : at + size]), Talk(False, at, answered[at : at + size])]
    return [*turns, Talk(True, len(asked), b"", FIN | ACK)]


def from_pcap(file: bytes, **options: Any) -> list[dict[str, Any]]:
    return rows(read_capture(io.BytesIO(file), "f", **options))


LINKS: dict[int, Callable[[bytes], bytes]] = {
    0: lambda found: b"\x02\0\0\0" + found,
    1: ethernet,
    101: lambda found: found,
    108: lambda found: b"\0\0\0\x02" + found,
    113: lambda found: bytes(14) + (b"\x08\x00" if found[0] >> 4 == 4 else b"\x86\xdd") + found,
    276: lambda found: (b"\x08\x00" if found[0] >> 4 == 4 else b"\x86\xdd") + bytes(18) + found,
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(("order", "nanoseconds"), [("<", False), (">", True)])
@pytest.mark.parametrize("hosts", [("10.0.0.1", "10.0.0.2"), ("fe80::1", "::1")])
def test_packet_captures_of_all_sorts(link: int, order: str, nanoseconds: bool, hosts: tuple[str, str]) -> None:
    style = phpmq.Style()
    asked, answered = _asked(style), _dispatched(style)
    wrapped = [LINKS[link](packet(talk, hosts=hosts)) for talk in conversation(asked, answered)]
    found = from_pcap(pcap(wrapped, order=order, nanoseconds=nanoseconds, link=link))
    expected = [*rows(read_stream([asked], FrameSource("f"))), *rows(read_stream([answered], FrameSource("f")))]
    assert _without(found, "stream", "at") == _without(expected, "stream", "at")
    (stream,) = {row["stream"] for row in found}
    assert stream.endswith(":9100")
    assert all(str(row["at"]).startswith("2025-06-15 15:06:40.0") for row in found)


def _without(found: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    kept = [{name: value for name, value in row.items() if name not in names} for row in found]
    return sorted(kept, key=lambda row: (row["direction"] or "", row["offset"]))


@pytest.mark.parametrize("start", [1000, 2**32 - 100])
def test_segments_out_of_order_repeated_and_overlapping(start: int) -> None:
    stream = _sspq() * 5
    expected = rows(read_stream([stream], FrameSource("f", None, "sspq", TO_SERVER)))
    for seed in range(30):
        rng = random.Random(seed)
        cuts = sorted({0, len(stream), *(rng.randrange(len(stream)) for _ in range(20))})
        spans = [(low, min(len(stream), high + rng.randrange(30))) for low, high in pairwise(cuts)]
        spans += rng.sample(spans, 5)
        rng.shuffle(spans)
        talks = [Talk(True, 0, b"", SYN), *(Talk(True, low, stream[low:high]) for low, high in spans)]
        found = from_pcap(pcap([ethernet(packet(talk, start=start), vlan=True) for talk in talks]))
        assert _without(found, "stream", "at") == _without(expected, "stream", "at")


def test_a_gap_is_reported_and_reading_resumes_at_the_next_message() -> None:
    one = sspq.encode([sspq.Send(3, (b"x" * 92,))])
    talks = [Talk(True, 0, b"", SYN)] + [Talk(True, 50 * n, (one * 8)[50 * n :][:50]) for n in range(16) if n != 3]
    found = from_pcap(pcap([ethernet(packet(talk)) for talk in talks]))
    assert [(row["type"], row["offset"], row["length"], row["code"]) for row in found] == [
        ("SEND", 0, 100, None),
        (None, 150, 0, "truncated"),
        (None, 150, 50, "gap"),
        *(("SEND", 100 * n, 100, None) for n in range(2, 8)),
    ]
    talks = [Talk(True, 0, b"", SYN)] + [Talk(True, 50 * n, (one * 8)[50 * n :][:50]) for n in range(16) if n != 4]
    found = from_pcap(pcap([ethernet(packet(talk)) for talk in talks]))
    assert [(row["type"], row["offset"], row["length"], row["code"]) for row in found] == [
        ("SEND", 0, 100, None),
        ("SEND", 100, 100, None),
        (None, 200, 50, "gap"),
        (None, 250, 50, "out-of-step"),
        *(("SEND", 100 * n, 100, None) for n in range(3, 8)),
    ]


def test_interleaved_connections_are_separate_and_a_reopened_one_is_new() -> None:
    first, second = _sspq(), _asked(phpmq.Style())
    ends: dict[str, Any] = {"ports": (40001, 9100)}
    packets = []
    for one, two in zip(conversation(first, b"", 50), conversation(second, b"", 120), strict=False):
        packets += [ethernet(packet(one)), ethernet(packet(two, **ends))]
    packets += [ethernet(packet(talk, start=9999)) for talk in conversation(first, b"")]
    streams: dict[str, list[str]] = {}
    for row in from_pcap(pcap(packets)):
        streams.setdefault(row["stream"], []).append(row["protocol"])
    assert {name: set(kinds) for name, kinds in streams.items()} == {
        "10.0.0.1:40000 > 10.0.0.2:9100": {"sspq"},
        "10.0.0.1:40001 > 10.0.0.2:9100": {"phpmq"},
        "10.0.0.1:40000 > 10.0.0.2:9100 #2": {"sspq"},
    }
    only = from_pcap(pcap(packets), ports=frozenset({40001}))
    assert {row["stream"] for row in only} == {"10.0.0.1:40001 > 10.0.0.2:9100"}


@pytest.mark.parametrize("variant", kokaq.VARIANTS)
def test_kokaq_answers_are_read_in_the_variant_of_the_requests(variant: kokaq.Variant) -> None:
    asked, answered = _requests(variant), _responses(variant)
    talks = conversation(asked, answered, 4000)
    found = from_pcap(pcap([ethernet(packet(talk)) for talk in talks]))
    assert [row["error"] for row in found] == [None] * len(found)
    assert {row["direction"] for row in found} == {TO_SERVER, TO_CLIENT}
    late = from_pcap(
        pcap([ethernet(packet(talk)) for talk in talks[2:]])
    )  # the capture began after the connection was opened
    assert len(late) == len(found)


def test_damage_of_the_file_itself() -> None:
    good = pcap([ethernet(packet(talk)) for talk in conversation(_sspq(), b"")])
    whole = from_pcap(good)
    for end in range(24, len(good), 17):
        *_, last = from_pcap(good[:end]) or [{"code": None}]
        assert last["code"] in (None, "damaged-capture", "truncated")
    assert from_pcap(good[:20])[0]["error"] == "the file ends inside its header (at byte 20)"
    assert from_pcap(good + bytes(8) + b"\xff" * 8)[-1]["code"] == "damaged-capture"
    (unknown,) = from_pcap(pcap([b"x"] * 3, link=147))
    assert (unknown["code"], unknown["offset"]) == ("unknown-link", 24)
    assert "link type 147" in unknown["error"]
    cut = from_pcap(pcap([ethernet(packet(talk)) for talk in conversation(_sspq(), b"")], cut=5))
    assert "gap" in {row["code"] for row in cut}
    assert len(whole) > len([row for row in cut if row["type"]])


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("block", Block)
def test_pcapng_gives_the_same_rows_as_pcap(order: str, block: Block) -> None:
    style = phpmq.Style()
    talks = conversation(_asked(style), _dispatched(style))
    packets = [ethernet(packet(talk)) for talk in talks]
    found = from_pcap(pcapng([interface(1)], [(0, each) for each in packets], order=order, block=block))
    names = ["at"] if block is Block.SIMPLE else []  # a simple packet has no time
    assert _without(found, *names) == _without(from_pcap(pcap(packets)), *names)
    assert {row["error"] for row in found} == {None}


def test_interfaces_of_a_pcapng_have_links_and_clocks_of_their_own() -> None:
    talks = conversation(_sspq(), b"", 50)
    finer, coarser = interface(1, fineness=9), interface(101, fineness=0x80 | 20, seconds=1000)
    sent = [(number % 2, (ethernet if number % 2 == 0 else bytes)(packet(talk))) for number, talk in enumerate(talks)]
    found = from_pcap(pcapng([finer, coarser, interface(147)], [*sent, (2, b"?"), (2, b"?")]))
    expected = from_pcap(pcap([ethernet(packet(talk)) for talk in talks]))
    assert _without(found[:-1], "at") == _without(expected, "at")
    assert found[-1]["code"] == "unknown-link"
    times = [str(row["at"]) for row in found[:-1]]
    assert all(time.startswith("2025-06-15 15:06:40.0") for time in times)
    # A second section begins, in its own byte order.
    both = pcapng([finer], [(0, ethernet(packet(talks[0])))]) + pcapng([interface(101)], [(0, bytes(20))], order=">")
    assert from_pcap(both) == []


def test_damage_to_a_pcapng_is_located() -> None:
    good = pcapng([interface(1)], [(0, ethernet(packet(talk))) for talk in conversation(_sspq(), b"")])
    for end in range(4, len(good)):
        *_, last = from_pcap(good[:end]) or [{"code": None}]
        assert last["code"] in (None, "damaged-capture", "truncated")
    assert from_pcap(good[:10])[0]["error"] == "the file ends inside a block's header (at byte 0)"
    assert from_pcap(good[:-1])[-1]["error"].startswith("the file ends 1 byte(s) before the end of a block")
    assert from_pcap(good[:8] + b"\0\0\0\0" + good[12:])[0]["error"] == (
        "a section begins with 00 00 00 00, which is not a byte-order mark (at byte 8)"
    )
    assert from_pcap(pcapng([], [(0, b"?")]))[0]["error"] == (
        "a packet of interface 0, but 0 are described (at byte 52)"
    )
    big = good[:-80] + good[-80:].replace(b"\x36\0\0\0", b"\xff\0\0\0")  # the last packet has 54 bytes
    assert from_pcap(big)[-1]["error"].startswith("a packet of 255 bytes is larger than its block")
    late = pcapng([interface(1, seconds=1000)], [(0, b"?")]).replace(struct.pack("<q", 1000), struct.pack("<q", 10**12))
    assert from_pcap(late)[0]["error"].startswith("a packet's time is before 1970, or after 9999")


@given(st.binary(max_size=80), st.integers(4, 200), st.integers(0, 80))
def test_any_damage_to_a_pcapng_is_reported_in_rows(noise: bytes, at: int, size: int) -> None:
    good = pcapng([interface(1)], [(0, ethernet(packet(Talk(True, 0, b"x"))))])
    for row in from_pcap(good[:at] + noise + good[at + size :]):
        assert (row["code"] is None) == (row["error"] is None)
