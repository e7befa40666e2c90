"""Every rule of docs/protocols/kokaq.md over real sockets, in bytes. Rules are quoted."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import cast

import pytest

from server.conftest import Rig
from support.brokers import BrokerProcess, Peer, wait_for
from support.raw import (
    ACQUIRE,
    CORRELATION,
    CREATE,
    CREATED,
    DEAD_REASON,
    DELAY,
    DELETE,
    DEPTH,
    EXPIRES,
    FAIL_BAD,
    FAIL_EXISTS,
    FAIL_NOT_ALLOWED,
    FAIL_OK,
    GET,
    HANDLING,
    LOCK,
    MAX_DELIVERIES,
    MODIFIED,
    NOP,
    PARTIAL_OK,
    PEEK,
    POP,
    PRIORITY,
    PUSH,
    RELEASE,
    REQUEST_ID,
    SOURCE,
    SUCCESS_OK,
    TTL,
    UUID,
    VERSION,
    Fields,
    Kokaq,
    component,
    kokaq,
    publish,
    read_answer,
)

NOP_BYTES = bytes.fromhex("04200140 deadbeef 00020000")
TAKING = (GET, PEEK, POP, ACQUIRE)


def variants() -> list[tuple[str, list[int], list[int], list[int]]]:
    """Name; two-way, one-way and response bytes of operational, admin and control messages: the page's table."""
    return [
        ("canonical, low", [0x40, 0x41, 0x42], [0xC0, 0xC1, 0xC2], [0x00, 0x01, 0x02]),
        ("listing, low", [0x81, 0x82, 0x83], [0xC1, 0xC2, 0xC3], [0x41, 0x42, 0x43]),
        ("canonical, high", [0x01, 0x05, 0x09], [0x03, 0x07, 0x0B], [0x00, 0x04, 0x08]),
        ("listing, high", [0x06, 0x0A, 0x0E], [0x07, 0x0B, 0x0F], [0x05, 0x09, 0x0D]),
    ]


VARIANTS = pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant[0])


class TestTheFrame:
    def test_literal_bytes(self, rig: Rig) -> None:
        """ "magic `0x04 0x20`"; "status in the high four bits, reason in the low four"; "opaque (4 bytes) and the op
        header's opaque byte: both are copied back"; "Nop: answered Success/Ok: a ping"."""
        rig.kokaq().send(NOP_BYTES).expect(bytes.fromhex("04200100 deadbeef 00010000"))
        rig.kokaq().send(bytes.fromhex("04200140 01020304 0002ee00")).expect(
            bytes.fromhex("04200100 01020304 0001ee00")
        )

    def test_the_worked_example(self, rig: Rig) -> None:
        """Create, Push, Pop by priority, AcquirePeekLock, Delete, Pop of nothing: the page's conversation."""
        namespace = rig.name.encode()
        ns_len = bytes((len(namespace),))
        peer = rig.kokaq()
        empty = b"\x01\x04\x20\x00" + ns_len + b"\x06\x00\x00" + namespace + b"orders"
        peer.send(bytes.fromhex("04200140 00000000 01020001 01042000") + ns_len + bytes(3) + namespace)
        peer.expect(bytes.fromhex("04200100 00000000 01010000"))
        peer.send(bytes.fromhex("04200140 00000001 01020001"), empty).expect(
            bytes.fromhex("04200100 00000001 01010000")
        )
        peer.send(
            bytes.fromhex("04200140 00000002 07020001 01042000"), ns_len, b"\x06\x00\x05", namespace, b"ordershello"
        )
        peer.expect(bytes.fromhex("04200100 00000002 07010002 02042000 00000001 0510"))
        hello = peer.read(16)
        peer.send(bytes.fromhex("04200140 00000003 07020003 02042000 00000002 01040000003c 40080000000000000009"))
        peer.send(b"\x01\x04\x20\x00", ns_len, b"\x06\x00\x01", namespace, b"orders!")
        peer.expect(bytes.fromhex("04200100 00000003 07010002 02042000 00000001 0510"))
        urgent = peer.read(16)
        popped = read_answer(peer.send(bytes.fromhex("04200140 00000004 05020001"), empty))
        assert (popped.outcome, popped.fields[UUID], popped.payload) == (SUCCESS_OK, urgent, b"!")
        peer.send(bytes.fromhex("04200140 00000005 08020003 02042000 00000001 410400007530"), empty)
        locked = read_answer(peer)
        assert (locked.fields[UUID], locked.payload) == (hello, b"hello")
        peer.send(bytes.fromhex("04200140 00000006 02020002 02042000 00000001 0510"), hello)
        peer.expect(bytes.fromhex("04200100 00000006 02010000"))
        peer.send(bytes.fromhex("04200140 00000007 05020001"), empty).expect(
            bytes.fromhex("04200100 00000007 05110000")
        )

    @VARIANTS
    def test_numbering_and_bit_order(self, rig: Rig, variant: tuple[str, list[int], list[int], list[int]]) -> None:
        """ "a connection whose first two-way request has RQ 2 speaks the listing's numbering and is answered in it";
        "recognised from the first request, answered in kind"; in every message type."""
        _, two_way, one_way, responses = variant
        rig.kokaq().make(rig.queue)
        peer = rig.kokaq()
        for number in range(3):
            peer.send(kokaq(NOP, type_byte=two_way[number]))
            assert read_answer(peer).type_byte == responses[number]
            peer.send(kokaq(PUSH, rig.queue, b"one-way", type_byte=one_way[number]))
            peer.send(kokaq(PUSH, rig.queue, b"two-way", type_byte=two_way[number]))
            answer = read_answer(peer)
            assert (answer.type_byte, answer.opcode, answer.outcome) == (responses[number], PUSH, SUCCESS_OK)
        assert rig.kokaq().depth(rig.queue) == 6

    @VARIANTS
    def test_a_one_way_push_before_the_numbering_is_known(
        self, rig: Rig, variant: tuple[str, list[int], list[int], list[int]]
    ) -> None:
        """ "Push … mean the same under every message type, so that a one-way push in the other numbering is never
        lost"."""
        _, two_way, one_way, responses = variant
        kokaq_peer = rig.kokaq().make(rig.queue)
        peer = rig.kokaq()
        peer.send(*[kokaq(PUSH, rig.queue, b"x", type_byte=byte) for byte in one_way], kokaq(NOP, type_byte=two_way[0]))
        assert read_answer(peer).type_byte == responses[0]
        kokaq_peer.wait_for_depth(rig.queue, 3)

    @pytest.mark.parametrize("tags", [(1, 2), (2, 1), (1, 1), (2, 2)])
    @pytest.mark.parametrize("metadata_first", [True, False])
    def test_component_tags_are_taken_either_way(self, rig: Rig, tags: tuple[int, int], metadata_first: bool) -> None:
        """ "We take either: a component whose two name lengths are both 0 is metadata, anything else is payload"."""
        peer = rig.kokaq().make(rig.queue)
        metadata = bytes((tags[1],)) + bytes.fromhex("042000 00000001 400107")
        payload = component(rig.queue, b"m", tag=tags[0])
        parts = [metadata, payload] if metadata_first else [payload, metadata]
        answer = read_answer(peer.send(kokaq(PUSH)[:-1], b"\x03", *parts))
        assert answer.outcome == SUCCESS_OK
        assert peer.ask(POP, rig.queue).number(PRIORITY) == 7

    def test_byte_by_byte(self, rig: Rig) -> None:
        """ "the same bytes always decode the same way however they are split over reads"."""
        rig.kokaq().make(rig.queue)
        peer = rig.kokaq()
        for byte in kokaq(PUSH, rig.queue, b"slow", {PRIORITY: 3}) + kokaq(PUSH, rig.queue, b"plain"):
            peer.send(bytes((byte,)))
        assert [read_answer(peer).outcome for _ in range(2)] == [SUCCESS_OK] * 2

    @pytest.mark.parametrize("width", range(1, 9))
    def test_integers_of_any_width(self, rig: Rig, width: int) -> None:
        """ "Integers big-endian, any width of 1–8 bytes taken"."""
        peer = rig.kokaq().make(rig.queue)
        peer.push(rig.queue, b"m", {TTL: (200).to_bytes(width, "big"), PRIORITY: (5).to_bytes(width, "big")})
        answer = peer.ask(PEEK, rig.queue)
        assert (answer.number(TTL), answer.number(PRIORITY)) == (200, 5)

    def test_pipelined_answers_in_request_order(self, rig: Rig) -> None:
        """ "Answers leave in request order and repeat the opcode as received": slow and quick ones alike."""
        rig.kokaq().make(rig.queue)
        peer = rig.kokaq()
        opcodes = [PUSH, NOP, GET, POP, POP, 0x77, PUSH, PUSH, PEEK, NOP] * 30
        peer.send(*[
            kokaq(opcode, None if opcode == NOP else rig.queue, b"m", opaque=number.to_bytes(4, "big"), op_opaque=9)
            for number, opcode in enumerate(opcodes)
        ])  # fmt: skip
        answers = [read_answer(peer) for _ in opcodes]
        assert [answer.opcode for answer in answers] == opcodes
        assert [int.from_bytes(answer.opaque, "big") for answer in answers] == list(range(len(opcodes)))
        assert {answer.op_opaque for answer in answers} == {9}


class TestPush:
    def test_it_answers_with_the_uuid(self, rig: Rig) -> None:
        """ "Two-way: the answer comes when the message is durable and carries its UUID"."""
        peer = rig.kokaq().make(rig.queue)
        first, second = peer.push(rig.queue, b"a"), peer.push(rig.queue, b"b", {PRIORITY: 0})
        assert len(first) == len(second) == 16
        assert first != second
        assert peer.ask(POP, rig.queue).fields[UUID] == first

    def test_priorities(self, rig: Rig) -> None:
        """ "Higher Priority number first, first-in first-out within one priority; messages without one have 0"."""
        peer = rig.kokaq().make(rig.queue)
        for payload, priority in [(b"a", 0), (b"b", 5), (b"c", None), (b"d", 2**64 - 1), (b"e", 5)]:
            peer.push(rig.queue, payload, None if priority is None else {PRIORITY: priority})
        assert peer.pop_all(rig.queue) == [b"d", b"b", b"e", b"a", b"c"]

    def test_time_to_live(self, tcp_rig: Rig) -> None:
        """ "TTL, Expiration": "Kokaq TTL 0 = never; with an Expiration Time too, the earlier counts"."""
        peer = tcp_rig.kokaq().make(tcp_rig.queue)
        now = int(time.time())
        fields: list[Fields] = [{TTL: 0}, {TTL: 500}, {EXPIRES: now + 100}, {TTL: 500, EXPIRES: now + 100}]
        fields.append({TTL: 100, EXPIRES: now + 500})
        for each in fields:
            peer.push(tcp_rig.queue, b"m", each)
        answers = [peer.ask(POP, tcp_rig.queue) for _ in range(5)]
        assert TTL not in answers[0].fields
        assert answers[1].number(TTL) in (499, 500)
        assert [answer.number(TTL) for answer in answers[2:]] == pytest.approx([100] * 3, abs=2)
        assert answers[2].number(EXPIRES) == now + 100

    def test_the_largest_time_to_live_can_be_shown(self, rig: Rig) -> None:
        """TimeToLive and Expiration Time are u32: 136 years from now do not fit the second, and do no harm."""
        peer = rig.kokaq().make(rig.queue)
        peer.push(rig.queue, b"m", {TTL: 2**32 - 1})
        answer = peer.ask(POP, rig.queue)
        assert (answer.payload, answer.number(EXPIRES)) == (b"m", 2**32 - 1)

    def test_delay(self, rig: Rig) -> None:
        """ "Delay u32 milliseconds": not ready before, at the place of its publication then."""
        peer = rig.kokaq().make(rig.queue)
        began = time.monotonic()
        peer.push(rig.queue, b"later", {DELAY: 150})
        peer.push(rig.queue, b"now")
        assert peer.depth(rig.queue) == 1
        peer.wait_for_depth(rig.queue, 2)
        assert time.monotonic() - began >= 0.15
        assert peer.pop_all(rig.queue) == [b"later", b"now"]

    def test_asked_for_id(self, rig: Rig) -> None:
        """ "UUID (asked-for ID; one that is already live: Fail/Exists)"."""
        peer = rig.kokaq().make(rig.queue)
        mine = os.urandom(16)
        assert peer.push(rig.queue, b"m", {UUID: mine}) == mine
        assert peer.ask(PUSH, rig.queue, b"again", {UUID: mine}).outcome == FAIL_EXISTS
        assert peer.ask(GET, rig.queue, b"", {UUID: mine}).payload == b"m"
        assert peer.ask(POP, rig.queue).fields[UUID] == mine
        assert peer.push(rig.queue, b"again", {UUID: mine}) == mine

    def test_an_id_that_would_name_another_message_is_bad(self, rig: Rig) -> None:
        peer = rig.kokaq().make(rig.queue)
        given = peer.push(rig.queue, b"m")
        wanted = given[:8] + (int.from_bytes(given[8:], "big") + 1000).to_bytes(8, "big")
        assert peer.ask(PUSH, rig.queue, b"x", {UUID: wanted}).outcome == FAIL_BAD

    def test_deduplication(self, rig: Rig) -> None:
        """ "The same Originator RequestID pushed again … answers Success with the *first* message's UUID and adds
        nothing"."""
        peer = rig.kokaq().make(rig.queue)
        request = os.urandom(16)
        first = peer.push(rig.queue, b"m", {REQUEST_ID: request})
        assert peer.push(rig.queue, b"m", {REQUEST_ID: request}) == first
        assert peer.pop_all(rig.queue) == [b"m"]
        assert peer.push(rig.queue, b"m", {REQUEST_ID: request}) == first
        assert peer.depth(rig.queue) == 0
        assert peer.push(rig.queue, b"m", {REQUEST_ID: os.urandom(16)}) != first

    @pytest.mark.parametrize("asks_first", [True, False])
    @pytest.mark.parametrize("asks_again", ["the same", "another", "none"])
    def test_deduplication_of_an_asked_for_id(self, rig: Rig, asks_again: str, *, asks_first: bool) -> None:
        """The first message's UUID, whichever the repetition asks for, and even when that message is gone."""
        peer = rig.kokaq().make(rig.queue)
        request: Fields = {REQUEST_ID: os.urandom(16)}
        wanted: Fields = {UUID: os.urandom(16)}
        others: dict[str, Fields] = {"the same": wanted, "another": {UUID: os.urandom(16)}, "none": {}}
        again = request | others[asks_again]
        first = peer.push(rig.queue, b"m", request | wanted if asks_first else request)
        assert (first == wanted[UUID]) == asks_first
        assert peer.push(rig.queue, b"m", again) == first
        assert peer.pop_all(rig.queue) == [b"m"]
        assert peer.push(rig.queue, b"m", again) == first
        assert peer.depth(rig.queue) == 0

    def test_correlation_and_request_id_come_back(self, rig: Rig) -> None:
        """ "optional metadata: … Correlation ID, Originator RequestID"."""
        peer = rig.kokaq().make(rig.queue)
        request = os.urandom(16)
        peer.push(rig.queue, b"m", {CORRELATION: b"\xff" * 255, REQUEST_ID: request})
        answer = peer.ask(POP, rig.queue)
        assert (answer.fields[CORRELATION], answer.fields[REQUEST_ID]) == (b"\xff" * 255, request)

    def test_the_largest_payload(self, rig: Rig) -> None:
        """ "payload length 2 bytes"."""
        peer = rig.kokaq().make(rig.queue)
        peer.push(rig.queue, b"x" * 65535)
        answer = peer.ask(POP, rig.queue)
        assert (answer.outcome, len(answer.payload or b"")) == (SUCCESS_OK, 65535)

    def test_creation_on_first_push_is_off_by_default(self, rig: Rig) -> None:
        """ "Missing queue or namespace: Fail/Bad for every opcode except Push on a listener that allows creation"."""
        peer = rig.kokaq()
        for opcode in (PUSH, GET, PEEK, POP, ACQUIRE, DELETE):
            assert peer.ask(opcode, rig.queue).outcome == FAIL_BAD
            assert peer.ask(opcode, f"no-{rig.name}/q").outcome == FAIL_BAD

    def test_creation_on_first_push_where_allowed(self, tcp_rig: Rig) -> None:
        peer = cast(Kokaq, tcp_rig.special("kokaq create"))
        assert peer.ask(POP, f"new-{tcp_rig.name}/q").outcome == FAIL_BAD
        peer.push(f"new-{tcp_rig.name}/q", b"m")
        assert peer.pop_all(f"new-{tcp_rig.name}/q") == [b"m"]


class TestTaking:
    def test_nothing_there(self, rig: Rig) -> None:
        """ "Pop, Peek and AcquirePeekLock on an empty queue: Fail/Ok at once"."""
        peer = rig.kokaq().make(rig.queue)
        assert [peer.ask(opcode, rig.queue).outcome for opcode in (POP, PEEK, ACQUIRE)] == [FAIL_OK] * 3

    def test_peek_leaves_it_where_it_is(self, rig: Rig) -> None:
        """ "Peek: the message that Pop would give, left where it is"."""
        peer = rig.kokaq().make(rig.queue)
        peer.push(rig.queue, b"a")
        peer.push(rig.queue, b"b", {PRIORITY: 1})
        peeks = [peer.ask(PEEK, rig.queue) for _ in range(2)]
        assert [(each.payload, each.number(VERSION)) for each in peeks] == [(b"b", 1)] * 2
        assert peer.pop_all(rig.queue) == [b"b", b"a"]

    def test_pop_takes_it_for_good(self, rig: Rig) -> None:
        """ "Pop: takes the head for good (at most once)"."""
        peer = rig.kokaq().make(rig.queue)
        peer.push(rig.queue, b"a")
        assert peer.ask(POP, rig.queue).payload == b"a"
        peer.close()
        assert rig.kokaq().ask(POP, rig.queue).outcome == FAIL_OK

    @pytest.mark.parametrize("opcode", TAKING)
    def test_what_an_answer_tells(self, rig: Rig, opcode: int) -> None:
        """ "Get, Peek, Pop and AcquirePeekLock answer with metadata (always with the UUID), then a payload component
        with both names"."""
        peer = rig.kokaq().make(rig.queue)
        before = int(time.time())
        uuid = peer.push(rig.queue, b"m", {TTL: 60})
        answer = peer.ask(opcode, rig.queue, b"", {UUID: uuid} if opcode == GET else None)
        assert (answer.outcome, answer.queue, answer.payload, answer.fields[UUID]) == (
            SUCCESS_OK,
            rig.queue,
            b"m",
            uuid,
        )
        sizes = {TTL: 4, VERSION: 4, CREATED: 4, EXPIRES: 4, UUID: 16, MODIFIED: 8, HANDLING: 4}
        assert {tag: len(answer.fields[tag]) for tag in sizes} == sizes
        assert answer.number(VERSION) == 1
        assert before <= answer.number(CREATED) <= before + 5
        assert answer.fields[SOURCE].startswith(b"kokaq ")
        assert answer.fields[SOURCE].endswith(b" QueueService")

    @pytest.mark.parametrize(("client", "name"), [(0, b"ProxyHttp"), (4, b"HealthService"), (77, b"77")])
    def test_client_id(self, rig: Rig, client: int, name: bytes) -> None:
        """ "clientId: kept as the message's source; another value is taken and shown as a number"."""
        peer = rig.kokaq().make(rig.queue)
        read_answer(peer.send(kokaq(PUSH, rig.queue, b"m", client=client)))
        assert peer.ask(POP, rig.queue).fields[SOURCE].split()[-1] == name

    @pytest.mark.parametrize("opcode", TAKING)
    def test_larger_messages_come_in_pieces(self, rig: Rig, opcode: int) -> None:
        """ "several responses with the same opaque, each a piece; all but the last have status PartialSuccess"; "later
        pieces of a chunked answer carry no metadata"."""
        peer = rig.kokaq()
        payload = os.urandom(150_000)
        rig.phpmq().send(publish(rig.name, payload))
        wait_for(lambda: peer.ask(GET, rig.queue).outcome == SUCCESS_OK)
        uuid = peer.ask(PEEK, rig.queue).fields[UUID]
        read_answer(peer), read_answer(peer)  # the remaining pieces
        peer.send(kokaq(opcode, rig.queue, b"", {UUID: uuid} if opcode == GET else None, opaque=b"same"))
        pieces = [read_answer(peer) for _ in range(3)]
        assert [piece.outcome for piece in pieces] == [PARTIAL_OK, PARTIAL_OK, SUCCESS_OK]
        assert {piece.opaque for piece in pieces} == {b"same"}
        assert {piece.queue for piece in pieces} == {rig.queue}
        assert pieces[0].fields[UUID] == uuid
        assert pieces[1].fields == pieces[2].fields == {}
        assert b"".join(piece.payload or b"" for piece in pieces) == payload

    @pytest.mark.parametrize("opcode", TAKING)
    def test_one_way_does_nothing(self, rig: Rig, opcode: int) -> None:
        """ "One-way Pop, Peek, Get and AcquirePeekLock do nothing"; "One-way requests are never answered"."""
        peer = rig.kokaq().make(rig.queue)
        peer.push(rig.queue, b"m")
        peer.send(kokaq(opcode, rig.queue, type_byte=0xC0))
        assert peer.ask(NOP).outcome == SUCCESS_OK
        assert peer.depth(rig.queue) == 1


class TestOneWay:
    def test_never_answered_whatever_happens(self, rig: Rig) -> None:
        """ "One-way requests are never answered, whatever happens"."""
        peer = rig.kokaq().make(rig.queue)
        for opcode in range(12):
            if opcode != NOP:  # a Nop has no components
                peer.send(kokaq(opcode, rig.queue, b"x", type_byte=0xC0))
                peer.send(kokaq(opcode, f"missing-{rig.name}/q", b"x", type_byte=0xC0))
                peer.send(kokaq(opcode, None, b"x", {UUID: b"short"}, type_byte=0xC0))
            peer.send(kokaq(opcode, type_byte=0xC0))
        peer.send(NOP_BYTES).expect(bytes.fromhex("04200100 deadbeef 00010000"))

    def test_push_create_delete_and_release_are_done(self, rig: Rig) -> None:
        peer = rig.kokaq()
        peer.send(kokaq(CREATE, rig.queue, type_byte=0xC0), kokaq(PUSH, rig.queue, b"m", type_byte=0xC0))
        peer.wait_for_depth(rig.queue, 1)
        uuid = peer.ask(ACQUIRE, rig.queue).fields[UUID]
        peer.send(kokaq(RELEASE, None, b"", {UUID: uuid}, type_byte=0xC0))
        assert peer.ask(ACQUIRE, rig.queue).fields[UUID] == uuid
        peer.send(kokaq(DELETE, None, b"", {UUID: uuid}, type_byte=0xC0))
        peer.send(kokaq(DELETE, rig.queue, type_byte=0xC0))
        assert peer.ask(GET, rig.queue).outcome == FAIL_BAD


class TestLocks:
    def hold(self, rig: Rig, **fields: int) -> tuple[Kokaq, bytes]:
        """A queue of two messages, the first of them locked."""
        peer = rig.kokaq().make(rig.queue)
        uuid = peer.push(rig.queue, b"first")
        peer.push(rig.queue, b"second")
        answer = peer.ask(ACQUIRE, rig.queue, b"", {LOCK: fields["lock"]} if fields else None)
        assert (answer.outcome, answer.fields[UUID], answer.payload) == (SUCCESS_OK, uuid, b"first")
        return peer, uuid

    def test_default_duration(self, rig: Rig) -> None:
        """ "the head, locked for Lock Duration (default 30 s), with UUID and Expiration Time of the lock"."""
        peer, _ = self.hold(rig)
        assert peer.ask(ACQUIRE, rig.queue).number(EXPIRES) == pytest.approx(time.time() + 30, abs=2)

    def test_delete_settles(self, rig: Rig) -> None:
        """ "Delete with a UUID field: settle (remove) the message that this connection holds the lock of"."""
        peer, uuid = self.hold(rig)
        assert peer.ask(DELETE, rig.queue, b"", {UUID: uuid}).outcome == SUCCESS_OK
        assert peer.ask(GET, rig.queue, b"", {UUID: uuid}).outcome == FAIL_BAD
        assert peer.ask(DELETE, rig.queue, b"", {UUID: uuid}).outcome == FAIL_BAD
        assert peer.pop_all(rig.queue) == [b"second"]

    @pytest.mark.parametrize("opcode", [RELEASE, POP])
    @pytest.mark.parametrize("named", [True, False])
    def test_release(self, rig: Rig, opcode: int, named: bool) -> None:
        """ "`0x09` is ReleasePeekLock. `0x05` carrying a UUID field is also taken as ReleasePeekLock"; "gives it back,
        at its old place"; "without one a UUID suffices"; "A release counts as a delivery"."""
        peer, uuid = self.hold(rig)
        answer = peer.ask(opcode, rig.queue if named else None, b"", {UUID: uuid})
        assert (answer.opcode, answer.outcome) == (opcode, SUCCESS_OK)
        answer = peer.ask(POP, rig.queue)
        assert (answer.payload, answer.number(VERSION)) == (b"first", 2)

    def test_it_ends_with_its_time(self, rig: Rig) -> None:
        """ "A lock ends with its connection or its time; the message is then back at its old place, delivery count +
        1"."""
        peer, uuid = self.hold(rig, lock=60)
        peer.wait_for_depth(rig.queue, 2)
        assert peer.ask(DELETE, None, b"", {UUID: uuid}).outcome == FAIL_BAD
        answer = peer.ask(POP, rig.queue)
        assert (answer.payload, answer.number(VERSION)) == (b"first", 2)

    def test_it_ends_with_its_connection(self, rig: Rig) -> None:
        peer, _ = self.hold(rig)
        peer.close()
        other = rig.kokaq()
        other.wait_for_depth(rig.queue, 2)
        assert other.ask(POP, rig.queue).number(VERSION) == 2

    def test_renewal(self, rig: Rig) -> None:
        """ "With a UUID already held by this connection: renews the lock"."""
        peer, uuid = self.hold(rig, lock=150)
        answer = peer.ask(ACQUIRE, None, b"", {UUID: uuid, LOCK: 60_000})
        assert (answer.outcome, answer.fields[UUID]) == (SUCCESS_OK, uuid)
        assert answer.number(EXPIRES) == pytest.approx(time.time() + 60, abs=2)
        time.sleep(0.2)
        assert peer.depth(rig.queue) == 1
        assert peer.ask(DELETE, None, b"", {UUID: uuid}).outcome == SUCCESS_OK

    @pytest.mark.parametrize("opcode", [DELETE, RELEASE, POP, ACQUIRE])
    def test_only_its_own_connection(self, rig: Rig, opcode: int) -> None:
        """ "the message that this connection holds the lock of"."""
        peer, uuid = self.hold(rig)
        other = rig.kokaq()
        assert other.ask(opcode, rig.queue, b"", {UUID: uuid}).outcome == FAIL_BAD
        assert other.ask(opcode, None, b"", {UUID: os.urandom(16)}).outcome == FAIL_BAD
        assert peer.ask(DELETE, None, b"", {UUID: uuid}).outcome == SUCCESS_OK

    def test_get_of_a_locked_message(self, rig: Rig) -> None:
        """ "Get with a UUID: that message's payload and metadata", wherever it is."""
        _, uuid = self.hold(rig)
        assert rig.kokaq().ask(GET, None, b"", {UUID: uuid}).payload == b"first"


class TestQueues:
    def test_create_and_exists(self, rig: Rig) -> None:
        """ "Create: the queue (or, with an empty queue name, the namespace). It exists already: Fail/Exists"."""
        peer = rig.kokaq()
        assert [peer.ask(CREATE, f"{rig.name}/").outcome for _ in range(2)] == [SUCCESS_OK, FAIL_EXISTS]
        assert [peer.ask(CREATE, f"{rig.name}/q").outcome for _ in range(2)] == [SUCCESS_OK, FAIL_EXISTS]

    def test_delete_only_when_empty(self, rig: Rig) -> None:
        """ "without: delete the queue, or the namespace, only when empty, else Fail/NotAllowed"."""
        peer = rig.kokaq().make(f"{rig.name}/q")
        peer.push(f"{rig.name}/q", b"m")
        assert peer.ask(DELETE, f"{rig.name}/q").outcome == FAIL_NOT_ALLOWED
        uuid = peer.ask(ACQUIRE, f"{rig.name}/q").fields[UUID]
        assert peer.ask(DELETE, f"{rig.name}/q").outcome == FAIL_NOT_ALLOWED
        peer.ask(DELETE, None, b"", {UUID: uuid})
        assert peer.ask(DELETE, f"{rig.name}/").outcome == FAIL_NOT_ALLOWED
        assert peer.ask(DELETE, f"{rig.name}/q").outcome == SUCCESS_OK
        assert peer.ask(DELETE, f"{rig.name}/").outcome == SUCCESS_OK
        assert peer.ask(DELETE, f"{rig.name}/").outcome == FAIL_BAD

    def test_get_without_a_uuid(self, rig: Rig) -> None:
        """ "without: the queue's metadata (depth, creation time, …)"; "Depth counts ready messages"."""
        peer = rig.kokaq().make(rig.queue)
        for _ in range(3):
            peer.push(rig.queue, b"m")
        peer.push(rig.queue, b"later", {DELAY: 60_000})
        peer.ask(ACQUIRE, rig.queue)
        answer = peer.ask(GET, rig.queue)
        assert (answer.number(DEPTH), len(answer.fields[DEPTH])) == (2, 8)
        assert answer.number(CREATED) == pytest.approx(time.time(), abs=5)
        assert answer.payload is None


class TestMessageTypes:
    @pytest.mark.parametrize("type_byte", [0x40, 0x41, 0x42])
    def test_every_opcode_under_every_type(self, rig: Rig, type_byte: int) -> None:
        """ "Push, Pop, Peek, locks and settling mean the same under every message type"."""
        peer = rig.kokaq()

        def ask(opcode: int, queue: str | None = None, fields: Fields | None = None) -> int:
            answer = read_answer(peer.send(kokaq(opcode, queue, b"m", fields, type_byte=type_byte)))
            assert (answer.type_byte, answer.opcode) == (type_byte & 3, opcode)
            return answer.outcome

        assert ask(NOP) == SUCCESS_OK
        assert ask(CREATE, rig.queue) == SUCCESS_OK
        assert ask(PUSH, rig.queue) == SUCCESS_OK
        assert ask(PEEK, rig.queue) == SUCCESS_OK
        assert ask(GET, rig.queue) == SUCCESS_OK
        uuid = peer.ask(PEEK, rig.queue).fields[UUID]
        assert ask(GET, None, {UUID: uuid}) == SUCCESS_OK
        assert ask(ACQUIRE, rig.queue) == SUCCESS_OK
        assert ask(ACQUIRE, None, {UUID: uuid}) == SUCCESS_OK
        assert ask(RELEASE, None, {UUID: uuid}) == SUCCESS_OK
        assert ask(ACQUIRE, rig.queue) == SUCCESS_OK
        assert ask(POP, None, {UUID: uuid}) == SUCCESS_OK
        assert ask(ACQUIRE, rig.queue) == SUCCESS_OK
        assert ask(DELETE, None, {UUID: uuid}) == SUCCESS_OK
        assert ask(POP, rig.queue) == FAIL_OK
        assert ask(DELETE, rig.queue) == SUCCESS_OK

    def test_admin_create_carries_defaults(self, rig: Rig) -> None:
        """ "Admin: Create may carry TTL, Max Deliveries, Lock Duration as the queue's defaults"."""
        peer = rig.kokaq()
        defaults: Fields = {TTL: 90, MAX_DELIVERIES: 1, LOCK: 5_000}
        answer = read_answer(peer.send(kokaq(CREATE, rig.queue, b"", defaults, type_byte=0x41)))
        assert answer.outcome == SUCCESS_OK
        facts = peer.ask(GET, rig.queue)
        assert (facts.number(TTL), facts.number(MAX_DELIVERIES), facts.number(LOCK)) == (90, 1, 5_000)
        uuid = peer.push(rig.queue, b"m")
        locked = peer.ask(ACQUIRE, rig.queue)
        assert locked.number(TTL) in (89, 90)
        assert locked.number(EXPIRES) == pytest.approx(time.time() + 5, abs=2)
        peer.ask(RELEASE, None, b"", {UUID: uuid})
        dead = peer.ask(GET, None, b"", {UUID: uuid})
        assert dead.fields[DEAD_REASON] == b"deliveries"

    def test_control(self, rig: Rig) -> None:
        """ "Control messages (type 2): Nop = health (Success/Ok), Get = broker counters as metadata"."""
        peer = rig.kokaq()
        health = read_answer(peer.send(kokaq(NOP, type_byte=0x42)))
        assert (health.type_byte, health.outcome) == (0x02, SUCCESS_OK)
        counters = read_answer(peer.send(kokaq(GET, type_byte=0x42)))
        assert counters.outcome == SUCCESS_OK
        assert {DEPTH, CREATED, SOURCE} <= counters.fields.keys()
        assert b"published=" in counters.fields[SOURCE]


class TestBad:
    """ "Decodable but wrong (unknown opcode, bad field): Fail/Bad, the connection stays"."""

    @pytest.mark.parametrize("opcode", [0x06, 0x0A, 0x7F, 0xFF])
    def test_unknown_opcodes(self, rig: Rig, opcode: int) -> None:
        peer = rig.kokaq()
        assert peer.ask(opcode).outcome == FAIL_BAD
        assert peer.ask(NOP).outcome == SUCCESS_OK

    @pytest.mark.parametrize(
        "fields",
        [
            {UUID: b"short"},
            {REQUEST_ID: bytes(17)},
            {TTL: b""},
            {TTL: bytes(9)},
            {TTL: b"\1\0\0\0\0"},
            {SOURCE: b"\xff"},
        ],
        ids=str,
    )
    def test_bad_fields(self, rig: Rig, fields: Fields) -> None:
        peer = rig.kokaq().make(rig.queue)
        assert peer.ask(PUSH, rig.queue, b"m", fields).outcome == FAIL_BAD
        assert peer.depth(rig.queue) == 0

    @pytest.mark.parametrize("opcode", [CREATE, DELETE, GET, PEEK, POP, PUSH, ACQUIRE, RELEASE])
    def test_without_names_and_uuid(self, rig: Rig, opcode: int) -> None:
        """ "Operational requests except Nop name their queue in a payload component; … else Fail/Bad"."""
        peer = rig.kokaq()
        assert peer.ask(opcode).outcome == FAIL_BAD
        assert peer.ask(opcode, None, b"", {PRIORITY: 1}).outcome == FAIL_BAD

    @pytest.mark.parametrize("opcode", [PUSH, GET, POP, PEEK, ACQUIRE])
    def test_without_a_queue_name(self, rig: Rig, opcode: int) -> None:
        assert rig.kokaq().ask(opcode, "default/").outcome == FAIL_BAD

    def test_a_name_that_is_not_utf_8(self, rig: Rig) -> None:
        peer = rig.kokaq()
        peer.send(kokaq(CREATE)[:-1], b"\x01", b"\x01\x04\x20\x00\x01\x01\x00\x00\xff\xff")
        assert read_answer(peer).outcome == FAIL_BAD


ERRORS = {
    "bad-magic": "04210140 00000000 00000000",
    "bad-version": "04200240 00000000 00000000",
    "bad-type-byte": "04200110 00000000 00000000",
    "bad-tag": "04200140 00000000 03000004",
    "bad-component-tag": "04200140 00000000 03000001 03042000 01010000 6161",
    "bad-component-magic": "04200140 00000000 03000001 01042100 01010000 6161",
    "duplicate-component": "04200140 00000000 03000003 01042000 01010000 6161 01042000 01010000 6161",
    "too-many-fields": "04200140 00000000 03000002 02042000 00000041",
}


class TestErrors:
    """ "Wrong magic, version, component magic, type byte or Tag bits: protocol error, closed"."""

    @pytest.mark.parametrize("code", ERRORS)
    def test_closed(self, rig: Rig, code: str) -> None:
        rig.kokaq().send(bytes.fromhex(ERRORS[code])).expect_end()

    @VARIANTS
    def test_a_type_byte_of_another_variant(
        self, rig: Rig, variant: tuple[str, list[int], list[int], list[int]]
    ) -> None:
        """ "From then on only the type bytes of the learned variant are valid"."""
        _, two_way, _, _ = variant
        other = next(each for each in variants() if each[1][0] != two_way[0] and each[0][-3:] == variant[0][-3:])
        peer = rig.kokaq().send(kokaq(NOP, type_byte=two_way[0]))
        read_answer(peer)
        peer.send(kokaq(NOP, type_byte=other[1][0])).expect_end()

    def test_a_line_in_the_log_for_each(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path, 'sspq = []\nphpmq = []\n[[kokaq]]\naddress = "127.0.0.1:0"') as broker:
            for message in ERRORS.values():
                broker.dial("kokaq").send(bytes.fromhex(message)).expect_end()
            lines = broker.events("protocol error")
        assert [line["code"] for line in lines] == list(ERRORS)

    def test_what_came_before_is_done_and_answered(self, rig: Rig) -> None:
        """ "Requests that were complete before it are carried out", and their answers still given."""
        rig.kokaq().make(rig.queue)
        peer: Peer = rig.kokaq().send(kokaq(PUSH, rig.queue, b"m"), b"garbage, and nothing else")
        assert read_answer(peer).outcome == SUCCESS_OK
        peer.expect_end()
        assert rig.kokaq().depth(rig.queue) == 1


class TestHalfClosed:
    def test_answers_are_still_given(self, tcp_rig: Rig) -> None:
        """A client that has finished sending gets its answers, then the end of the stream."""
        tcp_rig.kokaq().make(tcp_rig.queue)
        peer = tcp_rig.kokaq()
        peer.send(*[kokaq(PUSH, tcp_rig.queue, b"m") for _ in range(100)], NOP_BYTES).finish()
        assert [read_answer(peer).outcome for _ in range(101)] == [SUCCESS_OK] * 101
        peer.expect_end()

    def test_pushes_before_hanging_up_are_kept(self, rig: Rig) -> None:
        rig.kokaq().make(rig.queue)
        rig.kokaq().send(*[kokaq(PUSH, rig.queue, b"m", type_byte=0xC0) for _ in range(3000)]).close()
        rig.kokaq().wait_for_depth(rig.queue, 3000)
