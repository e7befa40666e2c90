"""The contract of StreamDecoder alone, on a toy protocol.

A toy message is a letter, a two-byte size and that many bytes. ``T`` carries text, ``S`` is skipped, ``Q`` is quiet (no
frame), and text must not start with ``!``. Any other letter is an error.
"""

from __future__ import annotations

import random
import tracemalloc
import weakref
from collections.abc import Generator, Iterable

import pytest

from penstock.wire.stream import SMALL_PART, StreamDecoder, WireError

KIB = 1024
MIB = 1024 * KIB


class Exact(StreamDecoder[bytes]):
    """The toy's exact parser; its fast pass takes nothing."""

    protocol = "TOY"
    size_bytes = 2

    def _message(self) -> Generator[int, bytes, bytes | None]:
        letter = yield 1
        if letter not in (b"T", b"S", b"Q"):
            raise self._bad("bad-letter", f"no message starts with {letter!r}")
        size = int.from_bytes((yield self.size_bytes), "big")
        if letter == b"S":
            yield from self._skip(size)
            return b"skipped"
        text = (yield size) if size else b""
        if text.startswith(b"!"):
            raise self._bad("bad-text", "text starts with '!'")
        return text if letter == b"T" else None

    def _run(self, data: bytes, pos: int, frames: list[bytes]) -> int:
        return pos


class Fast(Exact):
    """The same protocol with a fast pass for complete, plain texts. It counts the texts it decoded."""

    taken = 0

    def _run(self, data: bytes, pos: int, frames: list[bytes]) -> int:
        while pos + 3 <= len(data) and data.startswith(b"T", pos):
            stop = pos + 3 + int.from_bytes(data[pos + 1 : pos + 3], "big")
            if stop > len(data) or data.startswith(b"!", pos + 3):
                break
            frames.append(data[pos + 3 : stop])
            self.taken += 1
            pos = stop
        return pos


class Wide(Exact):
    """The toy with four-byte sizes, for large messages."""

    size_bytes = 4


def message(letter: str, text: bytes, size_bytes: int = 2) -> bytes:
    return letter.encode() + len(text).to_bytes(size_bytes, "big") + text


def comparable(error: WireError | None) -> tuple[int, str, bool] | None:
    return None if error is None else (error.offset, error.code, error.peer_at_fault)


def decode(decoder: StreamDecoder[bytes], pieces: Iterable[bytes]) -> tuple[list[bytes], tuple[int, str, bool] | None]:
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    return frames, comparable(decoder.close())


def in_pieces(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.choices(range(len(data) + 1), k=rng.randrange(6)))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class TestFeeding:
    def test_a_message_in_one_piece(self) -> None:
        assert Fast().feed(message("T", b"hello")) == [b"hello"]

    def test_a_message_without_a_frame(self) -> None:
        decoder = Exact()
        assert decoder.feed(message("Q", b"sh") + message("T", b"x")) == [b"x"]
        assert decoder.offset == 5 + 4

    def test_nothing_is_returned_before_the_last_byte(self) -> None:
        decoder = Fast()
        data = message("T", b"hello")
        assert [decoder.feed(data[i : i + 1]) for i in range(len(data))] == [[]] * 7 + [[b"hello"]]

    def test_the_fast_pass_is_used_again_after_a_split_message(self) -> None:
        decoder = Fast()
        data = message("T", b"hello") * 10
        assert decoder.feed(data[:20]) + decoder.feed(data[20:]) == [b"hello"] * 10
        assert decoder.taken == 9

    def test_an_empty_piece_changes_nothing(self) -> None:
        decoder = Fast()
        assert decoder.feed(b"") == []
        assert decoder.between_messages
        assert decoder.close() is None

    def test_a_field_that_is_the_whole_piece_is_not_copied(self) -> None:
        decoder = Wide()
        payload = bytes(4 * KIB)
        decoder.feed(message("T", payload, 4)[:5])
        (frame,) = decoder.feed(payload)
        assert frame is payload


class TestOffsets:
    def test_offset_counts_finished_fields_and_held_counts_the_rest(self) -> None:
        decoder = Fast()
        decoder.feed(message("T", b"one") + b"T\x00")
        assert (decoder.offset, decoder.held, decoder.between_messages) == (7, 1, False)
        decoder.feed(b"\x03tw")
        assert (decoder.offset, decoder.held) == (9, 2)
        decoder.feed(b"o")
        assert (decoder.offset, decoder.held, decoder.between_messages) == (12, 0, True)

    def test_offset_and_held_add_up_to_what_was_fed(self) -> None:
        rng = random.Random(1)
        for _ in range(200):
            data = b"".join(message(rng.choice("TSQ"), bytes(rng.randrange(900))) for _ in range(5))
            decoder, fed = Fast(), 0
            for piece in in_pieces(data, rng):
                decoder.feed(piece)
                fed += len(piece)
                assert decoder.offset + decoder.held == fed

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            (message("T", b"ok") + b"x", (5, "bad-letter", True)),
            (message("T", b"ok") + message("T", b"!"), (8, "bad-text", True)),
            (message("S", b"gone") + b"x", (7, "bad-letter", True)),
            (message("T", b"ok") + b"T\x00", (7, "truncated", False)),
            (message("T", b"ok") + b"S\x00\x05abc", (11, "truncated", False)),
        ],
    )
    def test_errors_point_at_the_field_at_fault(self, data: bytes, error: tuple[int, str, bool]) -> None:
        whole = decode(Fast(), [data])
        assert whole[1] == error
        assert decode(Fast(), [data[i : i + 1] for i in range(len(data))]) == whole


def test_fast_and_exact_agree_however_the_bytes_are_split() -> None:
    """Random valid and invalid messages in random pieces must match the exact parser fed byte by byte."""
    rng = random.Random(2)
    for _ in range(500):
        parts = [message(rng.choice("TTTTTSQ"), rng.choice([b"", b"a", b"long " * 200, b"!"])) for _ in range(6)]
        data = b"".join(parts)[: rng.randrange(3000)] + rng.choice([b"", b"?"])
        judged = decode(Exact(), [data[i : i + 1] for i in range(len(data))])
        assert decode(Fast(), in_pieces(data, rng)) == judged


class TestErrors:
    def test_frames_before_the_bad_byte_are_returned_with_it(self) -> None:
        decoder = Fast()
        assert decoder.feed(message("T", b"ok") + b"?") == [b"ok"]
        assert comparable(decoder.error) == (5, "bad-letter", True)

    def test_after_an_error_nothing_is_decoded(self) -> None:
        decoder = Fast()
        decoder.feed(b"?")
        first = decoder.error
        assert decoder.feed(message("T", b"late")) == []
        assert decoder.feed(b"?") == []
        assert decoder.error is first
        assert decoder.close() is first
        assert (decoder.held, decoder.between_messages) == (0, True)

    def test_the_error_text(self) -> None:
        decoder = Fast()
        decoder.feed(message("T", b"ok") + b"?")
        assert str(decoder.error) == "TOY: no message starts with b'?' (at byte 5)"

    def test_an_error_keeps_nothing_alive(self) -> None:
        """Memory is freed without garbage collection: no traceback ties the decoder and its last chunk into a cycle."""
        decoder = Fast()
        decoder.feed(b"?")
        gone = weakref.ref(decoder)
        del decoder
        assert gone() is None


class TestClose:
    def test_closing_between_messages_is_no_error(self) -> None:
        decoder = Fast()
        decoder.feed(message("T", b"ok"))
        assert decoder.close() is None

    def test_closing_inside_a_message_is_a_truncation(self) -> None:
        decoder = Fast()
        decoder.feed(b"T\x00\x05ab")
        error = decoder.close()
        assert error is decoder.error
        assert str(error) == "TOY: the stream ended 3 byte(s) before the end of a field (at byte 5)"

    def test_closing_inside_a_skipped_field_counts_all_missing_bytes(self) -> None:
        decoder = Wide()
        decoder.feed(b"S" + MIB.to_bytes(4, "big") + b"abc")
        assert f"ended {MIB - 3} byte(s) before" in str(decoder.close())

    def test_closing_releases_held_bytes_and_is_final(self) -> None:
        decoder = Fast()
        decoder.feed(b"T\xff\xff" + bytes(1000))
        assert decoder.held == 1000
        first = decoder.close()
        assert (decoder.held, decoder.between_messages) == (0, True)
        assert decoder.feed(message("T", b"late")) == []
        assert decoder.close() is first


class TestMemory:
    def test_large_parts_are_held_as_views(self) -> None:
        decoder = Wide()
        decoder.feed(b"T" + MIB.to_bytes(4, "big"))
        chunks = [bytes([i]) * 64 * KIB for i in range(16)]
        tracemalloc.start()
        try:
            for chunk in chunks[:-1]:
                assert decoder.feed(chunk) == []
            assert tracemalloc.get_traced_memory()[1] < 16 * KIB
            assert decoder.held == 15 * 64 * KIB
            (frame,) = decoder.feed(chunks[-1])
            assert tracemalloc.get_traced_memory()[1] < MIB + 16 * KIB, "the payload is copied once"
        finally:
            tracemalloc.stop()
        assert frame == b"".join(chunks)

    @pytest.mark.parametrize("piece", [1, 7, SMALL_PART - 1, SMALL_PART, 4 * KIB])
    def test_small_pieces_cost_a_small_multiple_of_their_bytes(self, piece: int) -> None:
        size = 128 * KIB
        decoder = Wide()
        decoder.feed(b"T" + size.to_bytes(4, "big"))
        tracemalloc.start()
        try:
            for _ in range(0, size - piece, piece):
                decoder.feed(bytes([1]) * piece)
            assert size - 2 * piece < decoder.held < size
            assert tracemalloc.get_traced_memory()[0] < 2 * size
        finally:
            tracemalloc.stop()

    def test_the_start_of_a_message_does_not_keep_the_chunk_alive(self) -> None:
        done = message("T", bytes(250 * KIB), 4)
        decoder = Wide()
        tracemalloc.start()
        try:
            decoder.feed(done + b"T" + MIB.to_bytes(4, "big") + bytes(600))
            assert decoder.held == 600
            assert tracemalloc.get_traced_memory()[0] < 16 * KIB
        finally:
            tracemalloc.stop()

    def test_parts_are_gathered_below_the_threshold_only(self) -> None:
        decoder = Wide()
        decoder.feed(b"T" + MIB.to_bytes(4, "big"))
        for size in [1, 2, SMALL_PART - 1, SMALL_PART, SMALL_PART, 5, 6]:
            decoder.feed(bytes(size))
        kinds = [(type(part), len(part)) for part in decoder._held]
        gathered = (bytearray, 3 + SMALL_PART - 1)
        assert kinds == [gathered, (memoryview, SMALL_PART), (memoryview, SMALL_PART), (bytearray, 11)]

    def test_a_field_is_joined_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The cost is linear: each byte of a payload is copied once, whatever the number of pieces."""
        taken = []
        whole = Wide._take

        def counted(self: Wide, data: bytes, pos: int, missing: int) -> bytes:
            field = whole(self, data, pos, missing)
            taken.append(len(field))
            return field

        monkeypatch.setattr(Wide, "_take", counted)
        data = message("T", bytes(MIB), 4)
        decoder = Wide()
        frames = [frame for at in range(0, len(data), 1000) for frame in decoder.feed(data[at : at + 1000])]
        assert [len(frame) for frame in frames] == [MIB]
        assert taken == [1, 4, MIB]

    def test_skipped_bytes_are_never_held(self) -> None:
        decoder = Wide()
        chunk = bytes(64 * KIB)
        decoder.feed(b"S" + (64 * MIB).to_bytes(4, "big"))
        tracemalloc.start()
        try:
            for at in range(0, 64 * MIB, len(chunk)):
                assert decoder.feed(chunk) == ([b"skipped"] if at == 64 * MIB - len(chunk) else [])
                assert decoder.held == 0
            assert tracemalloc.get_traced_memory()[1] < 2 * len(chunk)
        finally:
            tracemalloc.stop()
        assert decoder.between_messages
