"""Every vector: whole, byte by byte, at every split, with bytes behind it, and in both directions."""

from __future__ import annotations

import pytest

from support.protocols import Outcome, decode_in_pieces
from support.vectors import Vector, load

VALID = load("valid")
REJECTED = load("rejected")


def outcome(vector: Vector, *pieces: bytes, close: bool = True) -> Outcome:
    return decode_in_pieces(vector.codec, vector.sender, pieces, vector.options, close=close)


def expected(vector: Vector) -> Outcome:
    frames = tuple(vector.codec.singles(vector.frames))
    error = vector.error
    if error is None:
        return Outcome(frames, None)
    protocol = vector.codec.decoder(vector.sender, vector.options).protocol
    return Outcome(frames, (protocol, error["offset"], error["code"], error["reason"], error["peer_at_fault"]))


@pytest.mark.parametrize("vector", VALID + REJECTED, ids=str)
class TestDecode:
    def test_whole(self, vector: Vector) -> None:
        assert outcome(vector, vector.data) == expected(vector)

    def test_byte_by_byte(self, vector: Vector) -> None:
        assert outcome(vector, *(bytes([byte]) for byte in vector.data)) == expected(vector)

    def test_at_every_split(self, vector: Vector) -> None:
        for at in range(len(vector.data) + 1):
            assert outcome(vector, vector.data[:at], vector.data[at:]) == expected(vector), f"split at {at}"

    def test_empty_pieces_change_nothing(self, vector: Vector) -> None:
        assert outcome(vector, b"", vector.data, b"") == expected(vector)


@pytest.mark.parametrize("vector", [each for each in VALID if len(each.data) <= 400], ids=str)
def test_cut_short_anywhere(vector: Vector) -> None:
    """Complete messages are delivered; the rest is reported as truncated at the cut, and is not the peer's fault."""
    frames = expected(vector).frames
    for at in range(len(vector.data)):
        found = outcome(vector, vector.data[:at])
        assert found.frames == frames[: len(found.frames)]
        if found.error is not None:
            _, offset, code, _, peer_at_fault = found.error
            assert (offset, code, peer_at_fault) == (at, "truncated", False)


@pytest.mark.parametrize("vector", VALID, ids=str)
def test_valid_bytes_twice(vector: Vector) -> None:
    """The next message follows directly: the same bytes twice decode to the same frames twice."""
    found = outcome(vector, vector.data + vector.data)
    assert found == Outcome(expected(vector).frames * 2, None)


@pytest.mark.parametrize("vector", VALID, ids=str)
@pytest.mark.parametrize("behind", [b"\x00", b"?", b"\xff" * 40, b"H", b"\x04", b"\x55\x99\x5e"], ids=repr)
def test_trailing_bytes_leave_the_frames_alone(vector: Vector, behind: bytes) -> None:
    found = outcome(vector, vector.data + behind, close=False)
    assert found.frames == expected(vector).frames


@pytest.mark.parametrize(
    "vector", [each for each in REJECTED if each.error and each.error["code"] != "truncated"], ids=str
)
def test_nothing_is_decoded_after_an_error(vector: Vector) -> None:
    good = next(each.data for each in VALID if each.codec is vector.codec and each.sender == vector.sender)
    assert outcome(vector, vector.data, good) == expected(vector)
    assert outcome(vector, vector.data + good) == expected(vector)


@pytest.mark.parametrize("vector", [each for each in VALID if each.encoded is not None], ids=str)
def test_encode(vector: Vector) -> None:
    assert vector.codec.encode(vector.sender, list(vector.frames), vector.options) == vector.encoded
    apart = list(vector.codec.singles(vector.frames))
    assert vector.codec.encode(vector.sender, apart, vector.options) == vector.encoded
