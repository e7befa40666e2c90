"""PHPMQ for any frames, any splits and any bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.phpmq import (
    MAX_DIGITS,
    MAX_TTL,
    Acknowledge,
    Consume,
    Dispatch,
    PhpmqFrame,
    Publish,
    Reject,
    Requeue,
    Style,
    encode,
    singles,
)
from support.protocols import PHPMQ, Outcome, decode_in_pieces

quick = settings(derandomize=True, deadline=None, max_examples=200)

LIMIT = 300

# Few names and payloads, so that runs come up; and arbitrary ones.
names = st.sampled_from(["q", "qq", "0000", "P0200", "H0100102"]) | st.text(min_size=1, max_size=60)
payloads = st.sampled_from([b"", b"x", b"\n", b"\r\n", b"H0100102"]) | st.binary(max_size=LIMIT)
ids = st.sampled_from([b"%032x" % i for i in range(3)]) | st.binary(max_size=255)
ttls = st.sampled_from([0, 5, 60]) | st.integers(0, MAX_TTL)
styles = st.builds(
    Style,
    st.sampled_from([32, 36]),
    st.sampled_from([b"", b"\n", b"\r\n"]),
    st.sampled_from([True, False, None]),
)


def batches(each: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[bytes, ...]]:
    return st.lists(each, max_size=5).map(tuple)


@st.composite
def dispatches(draw: st.DrawFn, with_ttl: bool | None) -> Dispatch:
    rows = draw(st.lists(st.tuples(ids, payloads, ttls), max_size=5))
    found = tuple(row[2] for row in rows) if (draw(st.booleans()) if with_ttl is None else with_ttl) else None
    return Dispatch(draw(names), tuple(row[0] for row in rows), tuple(row[1] for row in rows), found)


from_client: st.SearchStrategy[list[PhpmqFrame]] = st.lists(
    st.builds(Publish, names, batches(payloads), st.none() | ttls)
    | st.builds(Consume, names, st.integers(0, 10**MAX_DIGITS - 1))
    | st.builds(Acknowledge, names, batches(ids))
    | st.builds(Requeue, names, ids, ttls)
    | st.builds(Reject, names, batches(ids)),
    max_size=6,
)


@st.composite
def traffic(draw: st.DrawFn) -> tuple[str, Style, list[PhpmqFrame]]:
    """Draw a sender, a style, and frames."""
    style = draw(styles)
    if draw(st.booleans()):
        return "client", style, draw(from_client)
    return "server", style, list(draw(st.lists(dispatches(style.dispatch_ttl), max_size=6)))


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw traffic as bytes, with some of the optional line ends left out."""
    sender, style, frames = draw(traffic())
    messages = [encode([frame], style) for frame in singles(frames)]
    return sender, b"".join(m.removesuffix(style.line_end) if draw(st.booleans()) else m for m in messages)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw traffic with a few bytes changed, removed or added."""
    sender, data = draw(streams())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        lost = draw(st.integers(0, 2))
        added = draw(st.sampled_from([b"", b"0", b"9", b"P", b"H", b"\n", b"\r", b"+", b"_", b"\xff"]))
        data = data[:at] + added + data[at + lost :]
    return sender, data


def in_pieces(sender: str, *pieces: bytes) -> Outcome:
    return decode_in_pieces(PHPMQ, sender, pieces, {"max_payload": LIMIT})


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


@quick
@given(traffic())
def test_decoding_undoes_encoding(given_traffic: tuple[str, Style, list[PhpmqFrame]]) -> None:
    sender, style, frames = given_traffic
    data = encode(frames, style)
    assert in_pieces(sender, data) == Outcome(tuple(singles(frames)), None)
    assert encode(list(singles(frames)), style) == data


@quick
@given(traffic())
def test_the_learned_style_encodes_to_the_same_bytes(given_traffic: tuple[str, Style, list[PhpmqFrame]]) -> None:
    sender, style, frames = given_traffic
    data = encode(frames, style)
    decoder = PHPMQ.decoder(sender, {})
    decoded = decoder.feed(data)
    learned = getattr(decoder, "style")  # noqa: B009 - the face of all codecs does not have it
    assert (learned is None) == (not data)
    if learned is not None:
        assert encode(decoded, learned) == data


@quick
@given(damaged(), st.lists(st.integers(0, 10**6), max_size=8))
def test_any_split_gives_the_same(stream: tuple[str, bytes], places: list[int]) -> None:
    sender, data = stream
    whole = in_pieces(sender, data)
    assert in_pieces(sender, *cut(data, places)) == whole
    assert in_pieces(sender, *(data[i : i + 1] for i in range(len(data)))) == whole


@quick
@given(streams())
def test_streams_without_optional_line_ends_are_sound(stream: tuple[str, bytes]) -> None:
    sender, data = stream
    assert in_pieces(sender, data).error is None


@quick
@given(st.sampled_from(["client", "server"]), st.lists(st.binary(max_size=80), max_size=6), st.booleans())
def test_any_bytes_give_frames_or_the_error(sender: str, pieces: list[bytes], started: bool) -> None:
    first = b"H0100102P01%029dqP02%029dx" if sender == "client" else b"H0100303P01%029dqP02%029dxP03%029dy"
    pieces = [first % ((1,) * first.count(b"%")), *pieces] if started else pieces
    assert in_pieces(sender, *pieces) == in_pieces(sender, b"".join(pieces))


@quick
@given(damaged(), st.integers(1, 40), st.integers(0, LIMIT))
def test_held_memory_is_bounded(stream: tuple[str, bytes], step: int, limit: int) -> None:
    sender, data = stream
    decoder = PHPMQ.decoder(sender, {"max_payload": limit})
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
        assert decoder.held <= max(limit, 255)
