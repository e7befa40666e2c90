"""SSPQ beyond the vectors: batches, encoder errors, limits, memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack

import pytest

from penstock.wire import sspq
from penstock.wire.sspq import (
    Confirm,
    DeadReceive,
    Decoder,
    NoReceive,
    Other,
    Receive,
    Send,
    SspqFrame,
    encode,
    send_package,
    singles,
)
from penstock.wire.sspq.encode import READY_SIZES, size_field

KIB = 1024
MIB = 1024 * KIB


def package(kind: int, retries: int, payload: bytes) -> bytes:
    """Encode a package without the encoder, so that the two check each other."""
    return pack(">HBBI", 0x5599, kind, retries, len(payload)) + payload


@contextmanager
def peak_below(size: int) -> Iterator[None]:
    """Assert that the block allocates less than ``size`` bytes at any moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size


class TestSingle:
    @pytest.mark.parametrize("size", [0, 1, READY_SIZES - 1, READY_SIZES, 70_000])
    @pytest.mark.parametrize("retries", [0, 9, 255])
    def test_a_single_send_keeps_its_encoding(self, retries: int, size: int) -> None:
        assert send_package(retries, bytes(size)) == package(0x5E, retries, bytes(size))

    @pytest.mark.parametrize("retries", [-1, 256])
    def test_frames_the_wire_cannot_express_are_refused(self, retries: int) -> None:
        with pytest.raises(ValueError, match="the retry counter is a byte"):
            send_package(retries, b"")

    def test_packages_without_payload_may_have_any_counter(self) -> None:
        kinds = {0xEC: Receive(), 0xC0: Confirm(), 0xDE: DeadReceive(), 0x0E: NoReceive()}
        for kind, frame in kinds.items():
            for retries in (0, 1, 255):
                data = package(0x5E, 3, b"x") + package(kind, retries, b"") * 2 + package(0x5E, 3, b"y")
                assert Decoder().feed(data) == [Send(3, (b"x",)), frame, frame, Send(3, (b"y",))]


class TestBatches:
    def test_a_run_of_one_counter_is_one_value(self) -> None:
        payloads = tuple(bytes([i]) * i for i in range(50))
        data = b"".join(package(0x5E, 9, payload) for payload in payloads)
        assert Decoder().feed(data) == [Send(9, payloads)]

    def test_a_new_counter_starts_a_new_batch(self) -> None:
        data = package(0x5E, 1, b"a") + package(0x5E, 1, b"b") + package(0x5E, 2, b"c")
        assert Decoder().feed(data) == [Send(1, (b"a", b"b")), Send(2, (b"c",))]

    def test_another_package_ends_a_batch(self) -> None:
        data = package(0x5E, 1, b"a") + package(0xC0, 0, b"") + package(0x5E, 1, b"b")
        assert Decoder().feed(data) == [Send(1, (b"a",)), Confirm(), Send(1, (b"b",))]

    def test_every_unknown_type_is_reported(self) -> None:
        unknown = [kind for kind in range(256) if kind not in set(sspq.PackageType)]
        data = b"".join(package(kind, 0, b"") for kind in unknown)
        assert Decoder().feed(data) == [Other(kind) for kind in unknown]
        assert [Decoder().feed(package(kind, 0, b"")) for kind in unknown] == [[Other(kind)] for kind in unknown]

    def test_a_batch_in_front_of_an_error_is_delivered(self) -> None:
        decoder = Decoder()
        assert decoder.feed(package(0x5E, 1, b"a") * 3 + bytes(8)) == [Send(1, (b"a",) * 3)]
        assert decoder.error is not None
        assert decoder.error.offset == 27

    def test_a_split_message_is_a_batch_of_its_own_and_the_rest_are_one(self) -> None:
        data = package(0x5E, 1, b"abc") * 4
        decoder = Decoder()
        assert decoder.feed(data[:15]) == [Send(1, (b"abc",))]
        assert decoder.feed(data[15:]) == [Send(1, (b"abc",)), Send(1, (b"abc", b"abc"))]

    def test_singles_takes_batches_apart_in_order(self) -> None:
        frames: list[SspqFrame] = [Send(1, (b"a", b"b")), Receive(), Send(2, ())]
        assert list(singles(frames)) == [Send(1, (b"a",)), Send(1, (b"b",)), Receive()]

    def test_frames_are_values(self) -> None:
        assert Send(1, (b"a",)) == Send(1, (b"a",))
        assert hash(Send(1, (b"a",))) == hash(Send(1, (b"a",)))
        with pytest.raises(AttributeError):
            Send(1, (b"a",)).retries = 2  # type: ignore[misc]


class TestEncode:
    def test_every_package_in_the_document(self) -> None:
        frames: list[SspqFrame] = [Send(3, (b"Hello",)), Receive(), Confirm(), DeadReceive(), NoReceive(), Other(0xFF)]
        kinds = [(0x5E, 3, b"Hello")] + [(kind, 0, b"") for kind in (0xEC, 0xC0, 0xDE, 0x0E, 0xFF)]
        assert encode(frames) == b"".join(package(*each) for each in kinds)

    def test_no_frames_are_no_bytes(self) -> None:
        assert encode([]) == b""
        assert encode([Send(3, ())]) == b""

    @pytest.mark.parametrize("retries", [0, 1, 254, 255])
    def test_every_counter(self, retries: int) -> None:
        assert encode([Send(retries, (b"x",))]) == package(0x5E, retries, b"x")

    @pytest.mark.parametrize("offset", [-1, 0, 1])
    def test_sizes_around_the_precomputed_ones(self, offset: int) -> None:
        payloads = (bytes(READY_SIZES + offset), b"", bytes(READY_SIZES + offset))
        assert encode([Send(0, payloads)]) == b"".join(package(0x5E, 0, each) for each in payloads)

    @pytest.mark.parametrize("retries", [-1, 256, 1000])
    @pytest.mark.parametrize("payloads", [(), (b"x",)])
    def test_a_counter_that_is_not_a_byte(self, retries: int, payloads: tuple[bytes, ...]) -> None:
        with pytest.raises(ValueError, match=f"the retry counter is a byte, 0 to 255, not {retries}"):
            encode([Send(retries, payloads)])

    @pytest.mark.parametrize("kind", [-1, 256])
    def test_a_type_that_is_not_a_byte(self, kind: int) -> None:
        with pytest.raises(ValueError, match=f"the package type is a byte, 0 to 255, not {kind}"):
            encode([Other(kind)])

    @pytest.mark.parametrize("kind", list(sspq.PackageType))
    def test_other_does_not_pass_for_a_known_type(self, kind: sspq.PackageType) -> None:
        with pytest.raises(ValueError, match=f"0x{kind:02x} is {kind.name}, a known type"):
            encode([Other(kind)])

    def test_a_payload_that_the_size_field_cannot_hold(self) -> None:
        class Huge(bytes):
            def __len__(self) -> int:
                return 2**32

        with pytest.raises(ValueError, match="a payload of 4294967296 bytes cannot be expressed"):
            encode([Send(0, (Huge(),))])

    def test_payloads_are_copied_once(self) -> None:
        payloads = tuple(bytes(64 * KIB) for _ in range(16))
        with peak_below(MIB + 8 * KIB):
            encode([Send(1, payloads[:8]), Receive(), Send(2, payloads[8:])])


def test_the_size_field_holds_four_bytes() -> None:
    assert size_field(2**32 - 1) == b"\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="a payload of 4294967296 bytes cannot be expressed"):
        size_field(2**32)


class TestLimits:
    @pytest.mark.parametrize("kind", [0x5E, 0xEC, 0xC0, 0xDE, 0x0E, 0xFF, 0x77])
    @pytest.mark.parametrize("size", [11, 2**31 - 1, 2**32 - 1])
    def test_the_header_alone_is_refused(self, kind: int, size: int) -> None:
        decoder = Decoder(max_payload=10)
        assert decoder.feed(pack(">HBBI", 0x5599, kind, 0, size)) == []
        assert decoder.error is not None
        assert (decoder.error.code, decoder.error.offset) == ("payload-too-large", 4)
        assert (decoder.error.size, decoder.error.limit) == (size, 10)
        assert not decoder.error.peer_at_fault

    def test_a_refused_payload_is_not_kept(self) -> None:
        decoder = Decoder(max_payload=10)
        decoder.feed(pack(">HBBI", 0x5599, 0x5E, 0, 2**20))
        chunk = bytes(64 * KIB)
        with peak_below(4 * KIB):
            for _ in range(16):
                assert decoder.feed(chunk) == []
        assert decoder.held == 0


class TestMemory:
    @pytest.mark.parametrize("limit", [sspq.DEFAULT_MAX_PAYLOAD, sspq.WIRE_MAX_PAYLOAD])
    @pytest.mark.parametrize("kind", [0x5E, 0xEC, 0x77])
    def test_a_header_that_announces_4_gib_costs_no_memory(self, limit: int, kind: int) -> None:
        header = pack(">HBBI", 0x5599, kind, 0, 2**32 - 1)
        decoder = Decoder(max_payload=limit)
        with peak_below(4 * KIB):
            decoder.feed(header)
            decoder.feed(b"beginning")

    def test_skipped_payloads_are_never_held(self) -> None:
        decoder = Decoder(max_payload=64 * MIB)
        chunk = bytes(64 * KIB)
        decoder.feed(pack(">HBBI", 0x5599, 0xEC, 0, 64 * MIB))
        with peak_below(2 * len(chunk)):
            for _ in range(1023):
                assert decoder.feed(chunk) == []
                assert decoder.held == 0
        assert decoder.feed(chunk + package(0xC0, 0, b"")) == [Receive(), Confirm()]

    def test_64_mib_in_64_kib_pieces_is_joined_once(self) -> None:
        """The cost is linear: pieces are held as views, and copied when the last one arrives."""
        decoder = Decoder(max_payload=64 * MIB)
        chunk = bytes(range(256)) * 256
        decoder.feed(pack(">HBBI", 0x5599, 0x5E, 5, 64 * MIB))
        with peak_below(MIB):
            for count in range(1, 1024):
                assert decoder.feed(chunk) == []
                assert (decoder.held, len(decoder._held)) == (count * len(chunk), count)
        with peak_below(65 * MIB):
            (frame,) = decoder.feed(chunk)
        assert frame == Send(5, (chunk * 1024,))
        assert (decoder.held, decoder._held) == (0, [])

    def test_thousands_of_small_messages_in_one_chunk_are_one_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The exact parser, which costs an object and a switch per field, sees only the last message."""
        exact = []
        monkeypatch.setattr(Decoder, "_hold", lambda self, data, pos: exact.append(len(data) - pos))
        data = package(0x5E, 1, bytes(100)) * 10_000
        (frame,) = Decoder().feed(data[:-50])
        assert isinstance(frame, Send)
        assert len(frame.payloads) == 9_999
        assert exact == [50]

    def test_payloads_do_not_keep_their_chunk_alive(self) -> None:
        """A payload is a copy of its own bytes, so a small message that waits does not keep 64 KiB alive."""
        decoder = Decoder()
        kept = []
        with peak_below(16 * 64 * KIB):
            for _ in range(64):
                chunk = package(0x5E, 1, b"small") + package(0xEC, 0, bytes(60 * KIB))
                kept.append(decoder.feed(chunk)[0])
                del chunk
        assert kept == [Send(1, (b"small",))] * 64
