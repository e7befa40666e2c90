"""SSPQ: properties of every frame, every split and every sequence of bytes."""

from __future__ import annotations

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import sspq
from penstock.wire.sspq import SspqFrame, encode, singles
from support.protocols import SSPQ, Outcome, decode_in_pieces

LIMIT = 2000
BYTE = st.integers(0, 255)
PAYLOADS = st.binary(max_size=40) | st.integers(0, LIMIT).map(bytes)

SENDS = st.builds(sspq.Send, BYTE, st.lists(PAYLOADS, min_size=1, max_size=6).map(tuple))
EMPTY: st.SearchStrategy[SspqFrame] = st.sampled_from(
    [sspq.Receive(), sspq.Confirm(), sspq.DeadReceive(), sspq.NoReceive()]
)
OTHERS = BYTE.filter(lambda kind: kind not in set(sspq.PackageType)).map(sspq.Other)
FRAMES: st.SearchStrategy[list[SspqFrame]] = st.lists(SENDS | EMPTY | OTHERS, max_size=8)

# Bytes that reach deep: packages with any type, counter and payload, sizes that may be wrong, and noise.
PACKAGES = st.builds(
    lambda kind, retries, lie, payload: pack(">HBBI", 0x5599, kind, retries, max(0, len(payload) + lie)) + payload,
    st.sampled_from(list(sspq.PackageType)) | BYTE,
    BYTE,
    st.sampled_from([0] * 8 + [1, -1, 2**31, LIMIT + 1]),
    PAYLOADS,
)
STREAMS = st.lists(PACKAGES | st.binary(max_size=12), max_size=8).map(b"".join)
CUTS = st.lists(st.integers(0, 20_000), max_size=8)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut the data at these places, taken modulo its length."""
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:stop] for start, stop in zip([0, *ends], [*ends, len(data)], strict=True)]


def decode(*pieces: bytes) -> Outcome:
    return decode_in_pieces(SSPQ, "client", pieces, {"max_payload": LIMIT})


@given(FRAMES)
def test_decoding_undoes_encoding(frames: list[SspqFrame]) -> None:
    assert decode(encode(frames)) == Outcome(tuple(singles(frames)), None)


@given(FRAMES)
def test_batching_does_not_change_the_wire_bytes(frames: list[SspqFrame]) -> None:
    assert encode(singles(frames)) == encode(frames)


@given(STREAMS, CUTS)
def test_any_split_gives_the_same_frames_and_the_same_error(data: bytes, places: list[int]) -> None:
    assert decode(*cut(data, places)) == decode(data)


@given(STREAMS)
def test_byte_by_byte_is_the_same_as_whole(data: bytes) -> None:
    assert decode(*(bytes([byte]) for byte in data)) == decode(data)


@given(st.binary(max_size=200) | STREAMS)
def test_any_bytes_give_frames_or_the_error(data: bytes) -> None:
    """Decoded frames can be forwarded, and every byte before the error is accounted for."""
    decoder = sspq.Decoder(max_payload=LIMIT)
    frames = decoder.feed(data)
    assert decode(encode(frames)) == Outcome(tuple(singles(frames)), None)
    if decoder.error is None:
        assert decoder.offset + decoder.held == len(data)
    else:
        assert decoder.error.code in {"bad-magic", "payload-too-large"}
        assert 0 <= decoder.error.offset < len(data)


@given(STREAMS, CUTS)
def test_held_bytes_are_bounded_by_the_limit(data: bytes, places: list[int]) -> None:
    decoder = sspq.Decoder(max_payload=LIMIT)
    for piece in cut(data, places):
        decoder.feed(piece)
        assert decoder.held < max(8, LIMIT)
