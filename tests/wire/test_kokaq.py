"""Kokaq beyond the vectors: learning the variant, batches, encoder errors, pieces, and memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.wire import kokaq
from penstock.wire.kokaq import (
    CANONICAL,
    VARIANTS,
    BitOrder,
    ClientDecoder,
    Deliveries,
    Field,
    MessageType,
    Metadata,
    MetadataRun,
    Numbering,
    Opcode,
    PieceError,
    Pushed,
    Pushes,
    Reason,
    Reassembler,
    Request,
    Response,
    ServerDecoder,
    Status,
    Variant,
    encode_requests,
    encode_responses,
    in_pieces,
    response_parts,
    singles,
)
from penstock.wire.kokaq.push_runs import MANY

OPERATIONAL, ADMIN, CONTROL = MessageType
IN_A_QUEUE = {"namespace": "ns", "queue": "q", "payload": b""}
UUID = bytes(range(16))


def nop(type_byte: int) -> bytes:
    return bytes.fromhex("042001") + bytes([type_byte]) + b"\0\0\0\1" + bytes(4)


def request(**fields: Any) -> Request:
    given: dict[str, Any] = {"message_type": OPERATIONAL, "two_way": True, "opaque": b"abcd", "opcode": Opcode.GET}
    return Request(**(given | fields))


def response(**fields: Any) -> Response:
    given: dict[str, Any] = {
        "message_type": OPERATIONAL,
        "opaque": b"abcd",
        "opcode": Opcode.POP,
        "status": 0,
        "reason": 1,
    }
    return Response(**(given | fields))


def pushes(count: int, **fields: Any) -> Pushes:
    given: dict[str, Any] = {
        "message_type": OPERATIONAL,
        "two_way": True,
        "client": 0,
        "namespace": "ns",
        "queue": "q",
        "opaques": tuple(i.to_bytes(4, "big") for i in range(count)),
        "op_opaques": bytes(i % 256 for i in range(count)),
        "payloads": tuple(b"%d" % i for i in range(count)),
    }
    return Pushes(**(given | fields))


class TestPushesOfOneSize:
    """Many pushes are read together. Whatever lies between them, the frames are those of single requests."""

    OTHERS = (
        {"message_type": ADMIN},
        {"two_way": False},
        {"client": 7},
        {"namespace": "mm"},
        {"queue": "r"},
        {"payloads": (b"longer",)},
    )

    def run(self, count: int) -> Pushes:
        return pushes(count, payloads=tuple(b"%04d" % i for i in range(count)))

    @pytest.mark.parametrize("count", [MANY - 1, MANY, 3 * MANY])
    def test_they_are_one_frame(self, count: int) -> None:
        frames: list[kokaq.KokaqRequest] = [request(), self.run(count)]
        assert ServerDecoder().feed(encode_requests(frames, CANONICAL)) == frames

    def test_without_payloads(self) -> None:
        frames: list[kokaq.KokaqRequest] = [request(), pushes(MANY, payloads=(b"",) * MANY)]
        assert ServerDecoder().feed(encode_requests(frames, CANONICAL)) == frames

    @pytest.mark.parametrize("other", OTHERS, ids=str)
    @pytest.mark.parametrize("before", [1, MANY // 2, 2 * MANY])
    def test_another_request_among_them(self, other: dict[str, Any], before: int) -> None:
        frames = [self.run(before), pushes(1, **{"payloads": (b"same",), **other}), self.run(MANY)]
        read = ServerDecoder().feed(encode_requests([request(), *frames], CANONICAL))
        assert list(singles(read)) == list(singles([request(), *frames]))

    def test_different_requests_are_tried_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each attempt scans the whole input, so one for each message would be too many."""
        tried: list[int] = []

        def counted(data: bytes, pos: int, prefix: int, size: int) -> None:
            tried.append(pos)

        monkeypatch.setattr("penstock.wire.kokaq.decode.pushes_of_one_size", counted)
        frames = [pushes(1, queue=name, payloads=(b"same",)) for name in "ab" * MANY]
        read = ServerDecoder().feed(encode_requests([request(), *frames], CANONICAL))
        assert list(singles(read)) == list(singles([request(), *frames]))
        assert len(tried) == 1


class TestIdenticalRequests:
    """Requests that take and settle messages: many identical ones are read together."""

    FIRST = request(opcode=Opcode.NOP)
    COUNT = 12

    def run(self, count: int, *, named: bool) -> list[Request]:
        first = request(opcode=Opcode.DELETE) if named else request(opcode=Opcode.POP, **IN_A_QUEUE)
        return [
            replace(
                first,
                opaque=number.to_bytes(4, "big"),
                op_opaque=number % 256,
                metadata=Metadata(source="me", uuid=number.to_bytes(16, "big"), priority=3) if named else None,
            )
            for number in range(count)
        ]

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("count", [2, 3, 500])
    def test_they_are_one_frame(self, count: int, named: bool) -> None:
        requests = self.run(count, named=named)
        first, read = ServerDecoder().feed(encode_requests([self.FIRST, *requests], CANONICAL))
        assert list(singles([first, read])) == [self.FIRST, *requests]

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("odd", [0, 1, 2, 10, 11])
    def test_another_byte_in_one_of_them(self, odd: int, named: bool) -> None:
        """Whatever byte changes, frames and errors are those of requests read in parts, one after the other."""
        requests = encode_requests([self.FIRST, *self.run(self.COUNT, named=named)], CANONICAL)
        size = (len(requests) - 12) // self.COUNT
        for at in range(size):
            changed = bytearray(requests)
            changed[12 + odd * size + at] ^= 1
            together, apart = ServerDecoder(), ServerDecoder()
            read = together.feed(bytes(changed))
            parts = [apart.feed(bytes(changed[start : start + 11])) for start in range(0, len(changed), 11)]
            assert list(singles(read)) == list(singles([frame for part in parts for frame in part]))
            assert str(together.error) == str(apart.error)


class TestVariantIsLearned:
    def read(self, *type_bytes: int) -> tuple[list[tuple[MessageType, bool]], ServerDecoder]:
        decoder = ServerDecoder()
        frames = decoder.feed(b"".join(map(nop, type_bytes)))
        return [(each.message_type, each.two_way) for each in kokaq.singles(frames)], decoder

    @pytest.mark.parametrize("variant", VARIANTS, ids=str)
    @pytest.mark.parametrize("message_type", MessageType)
    def test_from_a_two_way_request(self, variant: Variant, message_type: MessageType) -> None:
        read, decoder = self.read(variant.request_byte(message_type, True))
        assert read == [(message_type, True)]
        assert decoder.variant == variant

    def test_listing_one_way_requests_before_and_after_the_numbering_is_known(self) -> None:
        read, decoder = self.read(0xC1, 0xC3, 0x81, 0xC1, 0xC3)
        assert read == [(ADMIN, False), (CONTROL, False), (OPERATIONAL, True), (OPERATIONAL, False), (CONTROL, False)]
        assert decoder.variant == Variant(Numbering.LISTING, BitOrder.LOW)

    def test_listing_one_way_requests_with_high_type_bits(self) -> None:
        read, decoder = self.read(0x07, 0x0F, 0x0A, 0x07)
        assert read == [(ADMIN, False), (CONTROL, False), (ADMIN, True), (OPERATIONAL, False)]
        assert decoder.variant == Variant(Numbering.LISTING, BitOrder.HIGH)

    def test_canonical_one_way_requests_settle_nothing_but_the_bit_order(self) -> None:
        read, decoder = self.read(0xC0, 0xC0, 0x42, 0xC0)
        assert read == [(OPERATIONAL, False), (OPERATIONAL, False), (CONTROL, True), (OPERATIONAL, False)]
        assert decoder.variant == CANONICAL
        assert self.read(0x03)[1].variant.bit_order is BitOrder.HIGH

    def test_type_three_is_no_longer_taken_once_the_numbering_is_canonical(self) -> None:
        read, decoder = self.read(0xC3, 0x40, 0xC3)
        assert read == [(CONTROL, False), (OPERATIONAL, True)]
        assert decoder.error is not None
        assert (decoder.error.code, decoder.error.offset) == ("bad-type-byte", 27)

    def test_connections_do_not_teach_each_other(self) -> None:
        self.read(0x81)
        assert ServerDecoder().variant == CANONICAL
        assert self.read(0x40)[1].error is None

    def test_pushes_run_before_the_numbering_is_known(self) -> None:
        frames = ServerDecoder().feed(encode_requests([pushes(1, two_way=False), pushes(50, two_way=False)]))
        assert [len(each.payloads) for each in frames if isinstance(each, Pushes)] == [1, 50]

    def test_type_bytes(self) -> None:
        """The whole table, written out."""
        table = [
            [
                bytes(variant.request_byte(each, True) for each in MessageType).hex(),
                bytes(variant.request_byte(each, False) for each in MessageType).hex(),
                bytes(variant.response_byte(each) for each in MessageType).hex(),
            ]
            for variant in VARIANTS
        ]
        assert table == [
            ["404142", "c0c1c2", "000102"],
            ["010509", "03070b", "000408"],
            ["818283", "c1c2c3", "414243"],
            ["060a0e", "070b0f", "05090d"],
        ]


class TestOperation:
    def test_pop_with_a_uuid_is_a_release(self) -> None:
        assert request(opcode=5, metadata=Metadata(uuid=UUID)).operation is Opcode.RELEASE_PEEK_LOCK

    def test_pop_without_a_uuid_is_a_pop(self) -> None:
        assert request(opcode=5).operation is Opcode.POP
        assert request(opcode=5, metadata=Metadata(time_to_live=1)).operation is Opcode.POP

    def test_every_other_opcode_decodes_to_its_operation(self) -> None:
        for opcode in set(Opcode) - {Opcode.POP}:
            assert request(opcode=int(opcode), metadata=Metadata(uuid=UUID)).operation is opcode

    def test_unknown(self) -> None:
        assert request(opcode=6).operation is None


class TestBatches:
    def test_a_run_of_pushes_is_one_frame(self) -> None:
        frame = pushes(300)
        decoder = ServerDecoder()
        decoder.feed(nop(0x40))
        assert decoder.feed(encode_requests([frame])) == [frame]

    def test_a_lone_plain_push_is_a_batch_however_it_arrives(self) -> None:
        data = encode_requests([pushes(1)])
        for at in range(1, len(data)):
            decoder = ServerDecoder()
            assert decoder.feed(data[:at]) + decoder.feed(data[at:]) == [pushes(1)]

    def test_a_run_of_answers_is_one_frame(self) -> None:
        count = 300
        opaques = tuple(i.to_bytes(4, "big") for i in range(count))
        frame = Pushed(CONTROL, opaques, bytes(i % 256 for i in range(count)), tuple(each * 4 for each in opaques))
        assert ClientDecoder().feed(encode_responses([frame])) == [frame]

    def test_singles_of_pushes(self) -> None:
        found = list(singles([pushes(2), request()]))
        assert found == [
            request(opaque=b"\0\0\0\0", opcode=7, namespace="ns", queue="q", payload=b"0"),
            request(opaque=b"\0\0\0\1", opcode=7, op_opaque=1, namespace="ns", queue="q", payload=b"1"),
            request(),
        ]

    def test_singles_of_answers(self) -> None:
        found = list(singles([Pushed(ADMIN, (b"abcd",), b"\7", (UUID,)), response()]))
        answer = response(message_type=ADMIN, opcode=7, op_opaque=7, metadata=Metadata(uuid=UUID))
        assert found == [answer, response()]

    def test_empty_batches_are_no_bytes(self) -> None:
        assert encode_responses([deliveries()]) == b""
        assert encode_requests([pushes(0)]) == b""
        assert encode_responses([Pushed(OPERATIONAL, (), b"", ())]) == b""

    def test_frames_are_immutable(self) -> None:
        with pytest.raises(AttributeError):
            request().opcode = 1  # type: ignore[misc]


def deliveries(*metadata: Metadata, **fields: Any) -> Deliveries:
    count = len(metadata)
    given: dict[str, Any] = {
        "message_type": OPERATIONAL,
        "opcode": Opcode.POP,
        "namespace": "ns",
        "queue": "q",
        "opaques": tuple(i.to_bytes(4, "big") for i in range(count)),
        "op_opaques": bytes(i % 256 for i in range(count)),
        "metadata": MetadataRun.of(metadata),
        "payloads": tuple(b"%d" % i for i in range(count)),
    }
    return Deliveries(**(given | fields))


class TestDeliveries:
    """Similar deliveries are read and written by their shape; all other deliveries must give the same result."""

    def decode(self, frame: Deliveries) -> list[kokaq.KokaqResponse]:
        return ClientDecoder().feed(encode_responses([frame]))

    def test_a_run_is_one_frame(self) -> None:
        frame = deliveries(*(Metadata(version=i, uuid=bytes([i]) * 16, priority=i) for i in range(200)))
        assert self.decode(frame) == [frame]

    def test_texts_are_part_of_the_shape(self) -> None:
        one, other = (Metadata(uuid=UUID, source=source) for source in ("one", "two"))
        found = self.decode(deliveries(one, one, other))
        assert [len(each.payloads) for each in found if isinstance(each, Deliveries)] == [2, 1]
        assert list(singles(found)) == list(singles([deliveries(one, one, other)]))

    def test_a_run_ends_where_the_fields_change(self) -> None:
        frame = deliveries(
            Metadata(uuid=UUID),
            Metadata(uuid=UUID, version=1),
            Metadata(request_id=UUID, version=1),
            Metadata(),
            Metadata(correlation_id=b"abc"),
            Metadata(correlation_id=b"abcd"),
            Metadata(others=(Field(0x7F, b"x"),)),
            Metadata(uuid=UUID, others=(Field(0x7F, b"x"),)),
        )
        assert list(singles(self.decode(frame))) == list(singles([frame]))

    def test_narrow_integers_are_read_by_shape_too(self) -> None:
        one = encode_responses([deliveries(Metadata(version=7))]).replace(
            bytes.fromhex("0204 00000007"), bytes.fromhex("0202 0007")
        )
        assert list(singles(ClientDecoder().feed(one * 3))) == list(singles([deliveries(Metadata(version=7))])) * 3

    @pytest.mark.parametrize(
        ("second", "reason"),
        [
            (Metadata(uuid=UUID[:15]), r"field 0x05 \(uuid\) has 15 bytes, not 16"),
            (Metadata(uuid=UUID + b"x"), r"field 0x05 \(uuid\) has 17 bytes, not 16"),
            (Metadata(uuid=UUID, version=2**32), r"field 0x02 \(version\) is 4294967296"),
            (Metadata(uuid=UUID, priority=-1), r"field 0x40 \(priority\) is -1"),
        ],
    )
    def test_deliveries_that_cannot_be_sent_in_a_run(self, second: Metadata, reason: str) -> None:
        for first in (second, Metadata(uuid=UUID), Metadata(uuid=UUID, version=1)):
            with pytest.raises(ValueError, match=reason):
                encode_responses([deliveries(first, second)])

    def test_an_inconsistent_batch(self) -> None:
        with pytest.raises(ValueError, match="a batch has as many"):
            encode_responses([deliveries(Metadata(uuid=UUID), payloads=())])

    def test_a_larger_payload_in_a_run_is_still_refused(self) -> None:
        frame = deliveries(*[Metadata(uuid=UUID)] * 3, payloads=(b"a", b"b", b"12345"))
        decoder = ClientDecoder(max_payload=4)
        assert len(list(singles(decoder.feed(encode_responses([frame]))))) == 2
        assert decoder.error is not None
        assert (decoder.error.code, decoder.error.size, decoder.error.limit) == ("payload-too-large", 5, 4)


class TestMetadataRun:
    def test_a_run_is_a_sequence_of_metadata(self) -> None:
        rows = [Metadata(uuid=UUID, version=1), Metadata(source="one", others=(Field(0x7F, b"x"),)), Metadata()]
        run = MetadataRun.of(rows)
        assert list(run) == rows == [run[at] for at in range(len(run))]
        assert hash(run) == hash(MetadataRun.of(rows))

    def test_metadata_keeps_its_bytes_however_it_arrives(self) -> None:
        """An integer in fewer bytes than we send keeps its bytes, in a run or alone."""
        one = encode_responses([deliveries(Metadata(version=7))]).replace(
            bytes.fromhex("0204 00000007"), bytes.fromhex("0202 0007")
        )
        for pieces in ([one * 4], [one[:20], one[20:] + one * 2, one]):
            decoder = ClientDecoder()
            frames = [frame for piece in pieces for frame in decoder.feed(piece)]
            raw = [each for frame in frames if isinstance(frame, Deliveries) for each in frame.metadata.raw]
            assert raw == [bytes.fromhex("00000001 0202 0007")] * 4

    def test_unknown_fields_and_odd_widths_run_too(self) -> None:
        one = encode_responses([deliveries(Metadata(version=7, others=(Field(0x7F, b"x"),)))]).replace(
            bytes.fromhex("0204 00000007"), bytes.fromhex("0203 000007")
        )
        (frame,) = ClientDecoder().feed(one * 3)
        assert isinstance(frame, Deliveries)
        assert list(frame.metadata) == [Metadata(version=7, others=(Field(0x7F, b"x"),))] * 3

    def test_a_value_that_is_too_large_is_found_behind_smaller_ones(self) -> None:
        """Integers wider than their field might not fit it, so each is checked."""
        small = encode_responses([deliveries(Metadata(version=7))]).replace(
            bytes.fromhex("0204 00000007"), bytes.fromhex("0208 0000000000000007")
        )
        large = small.replace(bytes.fromhex("0208 00000000"), bytes.fromhex("0208 00000001"))
        found = list(singles(ClientDecoder().feed(small * 2 + large)))
        assert [each.problem is None for each in found] == [True, True, False]


QUEUE = {"namespace": "ns", "queue": "q"}


class TestWhatCannotBeSent:
    @pytest.mark.parametrize(
        ("frame", "reason"),
        [
            (request(opcode=6), "opcode 0x06 is unknown"),
            (request(opcode=256), "opcode 0x100 is unknown"),
            (request(client=256), "the client is a byte, 0 to 255, not 256"),
            (request(op_opaque=-1), "the opaque byte is a byte, 0 to 255, not -1"),
            (request(opaque=b"abc"), "an opaque has 4 bytes"),
            (request(opcode=0, nop_opaque=256), "the opaque byte is a byte, 0 to 255, not 256"),
            (request(opcode=0, metadata=Metadata()), "a Nop has no components: its last byte is an opaque one"),
            (request(opcode=0, payload=b"", **QUEUE), "a Nop has no components: its last byte is an opaque one"),
            (request(nop_opaque=1), "only a Nop without components has one"),
            (request(problem="it is odd"), "a frame with a problem cannot be sent: it is odd"),
            (request(namespace="ns"), "names travel in a payload component"),
            (request(queue="q"), "names travel in a payload component"),
            (request(payload=b""), "a payload component needs a namespace or a queue"),
            (request(payload=b"x", namespace="", queue=""), "a payload component needs a namespace or a queue"),
            (request(payload=b"", namespace="n" * 256), "a name of 256 bytes is over the protocol's limit of 255"),
            (request(payload=b"", queue="é" * 128), "a name of 256 bytes is over the protocol's limit of 255"),
            (
                request(payload=bytes(65536), **QUEUE),
                "a payload of 65536 bytes is over the protocol's limit of 65535",
            ),
            (pushes(1, payloads=(bytes(65536),)), "a payload of 65536 bytes is over the protocol's limit of 65535"),
            (pushes(2, namespace="", queue=""), "a payload component needs a namespace or a queue"),
            (pushes(2, client=999), "the client is a byte, 0 to 255, not 999"),
            (pushes(2, opaques=(b"abcd", b"abc")), "an opaque has 4 bytes"),
            (pushes(2, opaques=(b"abcd",)), "a batch has as many opaques and opaque bytes as messages"),
            (pushes(2, op_opaques=b"abc"), "a batch has as many opaques and opaque bytes as messages"),
        ],
    )
    def test_requests(self, frame: kokaq.KokaqRequest, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            encode_requests([frame])

    @pytest.mark.parametrize(
        ("frame", "reason"),
        [
            (response(opcode=256), "the opcode is a byte, 0 to 255, not 256"),
            (response(opcode=0, metadata=Metadata()), "a successful answer to Nop has no components"),
            (response(opcode=0, status=1, metadata=Metadata(), nop_opaque=7), "only a Nop without components has one"),
            (deliveries(Metadata(), opcode=0), "a successful answer to Nop has no components"),
            (response(status=16), "status and reason are 0 to 15, not 16 and 1"),
            (response(reason=-1), "status and reason are 0 to 15, not 0 and -1"),
            (response(payload=bytes(65536), **QUEUE), "a payload of 65536 bytes is over"),
            (Pushed(OPERATIONAL, (b"abcd",), b"\0", (UUID[:15],)), "a UUID has 16 bytes"),
            (Pushed(OPERATIONAL, (b"abcd",), b"\0", ()), "a batch has as many opaques"),
        ],
    )
    def test_responses(self, frame: kokaq.KokaqResponse, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            encode_responses([frame])

    @pytest.mark.parametrize(
        ("metadata", "reason"),
        [
            (Metadata(time_to_live=2**32), r"field 0x01 \(time_to_live\) is 4294967296, outside of 0 to 4294967295"),
            (Metadata(priority=-1), r"field 0x40 \(priority\) is -1, outside of 0 to"),
            (Metadata(uuid=b"short"), r"field 0x05 \(uuid\) has 5 bytes, not 16"),
            (Metadata(source="é" * 128), r"field 0x06 \(source\) has 256 bytes, the most is 255"),
            (Metadata(correlation_id=bytes(256)), r"field 0x09 \(correlation_id\) has 256 bytes, the most is 255"),
            (Metadata(others=(Field(5, UUID),)), r"field 0x05 \(uuid\) is known"),
            (Metadata(others=(Field(0x7F, b""), Field(0x7F, b""))), "a metadata field occurs twice"),
            (Metadata(others=(Field(256, b""),)), "a field tag is a byte, 0 to 255, not 256"),
            (Metadata(others=(Field(0x7F, bytes(256)),)), "field 0x7f has 256 bytes, the most is 255"),
            (
                Metadata(others=tuple(Field(0x80 + i, b"") for i in range(65))),
                "65 metadata fields are over the limit of 64",
            ),
            (
                Metadata(others=tuple(Field(0x80 + i, bytes(254)) for i in range(33))),
                "metadata of 8448 bytes is over the limit of 8192",
            ),
        ],
    )
    def test_metadata(self, metadata: Metadata, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            encode_requests([request(metadata=metadata)])


def error_code(reassembler: Reassembler) -> str:
    assert isinstance(reassembler.error, PieceError)
    return reassembler.error.code


class TestPieces:
    def test_messages_that_fit_are_left_alone(self) -> None:
        for size in (0, 65535):
            frame = response(payload=bytes(size), **QUEUE)
            assert in_pieces(frame) == [frame]
        assert in_pieces(response()) == [response()]

    @pytest.mark.parametrize("size", [0, 65535, 65536, 131070, 131071, 1_000_000])
    def test_pieces_add_up_to_the_same_bytes(self, size: int) -> None:
        whole = response(payload=bytes(i % 251 for i in range(size)), metadata=Metadata(uuid=UUID, version=1), **QUEUE)
        frames = [response(), whole, response(metadata=Metadata(version=2))]
        parts = response_parts(frames)
        assert b"".join(parts) == encode_responses([piece for frame in frames for piece in in_pieces(frame)])
        assert all(isinstance(part, bytes) for part in parts) == (size <= 65535)

    @pytest.mark.parametrize("size", [65536, 131070, 131071, 1_000_000])
    def test_a_large_message_and_back(self, size: int) -> None:
        whole = response(payload=bytes(i % 251 for i in range(size)), metadata=Metadata(uuid=UUID, version=1), **QUEUE)
        pieces = in_pieces(whole)
        assert [each.status for each in pieces] == [Status.PARTIAL_SUCCESS] * (len(pieces) - 1) + [Status.SUCCESS]
        assert [each.metadata for each in pieces] == [whole.metadata] + [None] * (len(pieces) - 1)
        assert {(each.opaque, each.namespace, each.queue, each.reason) for each in pieces} == {(b"abcd", "ns", "q", 1)}
        assert [len(each.payload or b"") for each in pieces[:-1]] == [65535] * (len(pieces) - 1)
        frames = ClientDecoder().feed(encode_responses(pieces))
        assert Reassembler().feed(frames) == [whole]

    def test_other_answers_pass_through(self) -> None:
        frames: list[kokaq.KokaqResponse] = [
            Pushed(OPERATIONAL, (b"abcd",), b"\0", (UUID,)),
            response(),
            response(status=Status.FAIL),
        ]
        assert Reassembler().feed(frames) == frames

    def test_pieces_may_come_one_at_a_time(self) -> None:
        whole = response(payload=bytes(200_000), **QUEUE)
        reassembler = Reassembler()
        assert [reassembler.feed([piece]) for piece in in_pieces(whole)] == [[], [], [], [whole]]
        assert reassembler.held == 0

    def test_the_limit(self) -> None:
        pieces = in_pieces(response(payload=bytes(200_000), **QUEUE))
        assert len(Reassembler(200_000).feed(pieces)) == 1
        reassembler = Reassembler(199_999)
        assert reassembler.feed(pieces) == []
        assert error_code(reassembler) == "message-too-large"

    @pytest.mark.parametrize(
        "intruder",
        [response(opaque=b"else"), Pushed(OPERATIONAL, (b"abcd",), b"\0", (UUID,)), response(payload=b"", **QUEUE)],
        ids=["another answer", "an answer to Push", "a piece without payload"],
    )
    def test_pieces_that_form_no_message(self, intruder: kokaq.KokaqResponse) -> None:
        first = in_pieces(response(payload=bytes(70_000), **QUEUE))[0]
        reassembler = Reassembler()
        before, behind = response(payload=b"before", **QUEUE), response()
        assert reassembler.feed([before, first, intruder, behind]) == [before]
        assert error_code(reassembler) == "bad-piece"
        assert reassembler.held == 0
        assert reassembler.feed([behind]) == []

    def test_a_last_piece_may_repeat_the_metadata(self) -> None:
        """It then decodes as a delivery, perhaps with more behind it."""
        whole = response(payload=bytes(70_000), metadata=Metadata(uuid=UUID), **QUEUE)
        first, last = (replace(each, metadata=whole.metadata) for each in in_pieces(whole))
        other = response(opaque=b"else", payload=b"", metadata=whole.metadata, **QUEUE)
        frames = ClientDecoder().feed(encode_responses([first, last, other]))
        assert list(singles(Reassembler().feed(frames))) == [whole, other]

    def test_a_failure_replaces_the_pieces(self) -> None:
        first = in_pieces(response(payload=bytes(70_000), **QUEUE))[0]
        failed = response(status=Status.FAIL, reason=Reason.INFRA)
        reassembler = Reassembler()
        assert reassembler.feed([first, failed, response()]) == [failed, response()]
        assert reassembler.held == 0


class TestMemory:
    def test_a_large_announcement_costs_nothing(self) -> None:
        """The largest field count, and names and payload at their largest, with nothing behind them."""
        start = bytes.fromhex("042001 40 00000001 03 00 00 02 02 0420 00")
        tracemalloc.start()
        try:
            decoders = [ServerDecoder(), ServerDecoder()]
            decoders[0].feed(start + bytes.fromhex("ffffffff"))
            decoders[1].feed(start + bytes.fromhex("0000ffff"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 20_000
        assert [decoder.held for decoder in decoders] == [0, 0]
        assert decoders[1].error is not None

    def test_held_memory_grows_with_the_bytes_sent(self) -> None:
        data = encode_requests([pushes(1, payloads=(bytes(65535),))])
        decoder = ServerDecoder()
        for at in range(0, len(data) - 4096, 4096):
            assert decoder.feed(data[at : at + 4096]) == []
            assert decoder.held <= at + 4096

    def test_a_payload_is_copied_once_per_chunk_and_never_again(self) -> None:
        """Held parts are views of the chunks; they are joined once, when the last byte has arrived."""
        data = encode_requests([pushes(1, payloads=(bytes(60_000),))])
        decoder = ServerDecoder()
        decoder.feed(data[:20_000])
        tracemalloc.start()
        try:
            chunk = data[20_000:60_000]
            before = tracemalloc.get_traced_memory()[0]
            decoder.feed(chunk)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 2_000
        assert decoder.held == 60_000 - 23

    def test_a_large_message_in_pieces_of_64_kib(self) -> None:
        """Every byte is consumed once: the offset never passes the input, and every piece is returned unchanged."""
        whole = response(payload=bytes(8 * 2**20), metadata=Metadata(uuid=UUID), **QUEUE)
        stream = encode_responses(in_pieces(whole))
        decoder, reassembler = ClientDecoder(), Reassembler()
        found: list[kokaq.KokaqResponse] = []
        for at in range(0, len(stream), 65536):
            found += reassembler.feed(decoder.feed(stream[at : at + 65536]))
            assert decoder.held <= 65535
        assert found == [whole]
        assert decoder.offset == len(stream)
        assert decoder.close() is None
