"""Kokaq peers that follow the document's listings, drawings and gaps literally. Rules are quoted from the page."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from server.conftest import Rig
from support.brokers import BrokerProcess, wait_for
from support.raw import (
    ACQUIRE,
    CREATE,
    DELETE,
    FAIL_BAD,
    FAIL_EXISTS,
    FAIL_INFRA,
    FAIL_NOT_ALLOWED,
    GET,
    NOP,
    PEEK,
    POP,
    PUSH,
    RELEASE,
    SOURCE,
    SUCCESS_OK,
    TTL,
    UUID,
    VERSION,
    Answer,
    Fields,
    Kokaq,
    component,
    kokaq,
    read_answer,
)

CONTROL = 0x42
LISTED = 2


def listed(opcode: int, queue: str, payload: bytes = b"", uuid: bytes = b"", *, opaque: bytes = b"\0\0\0\1") -> bytes:
    """A two-way request as in the listings: metadata is 0x01, payload 0x02, in both headers."""
    metadata = b"\x01\x04\x20\x00\0\0\0\1\x05\x10" + uuid if uuid else b""
    tag = 2 | bool(uuid)
    return b"\x04\x20\x01\x40" + opaque + bytes((opcode, 2, 0, tag)) + metadata + component(queue, payload, tag=LISTED)


class TestTags:
    """ "to a peer whose first payload component is tagged `0x02` as the listings have it: answered in kind"."""

    def ask(self, peer: Kokaq, request: bytes) -> Answer:
        return read_answer(peer.send(request), payload_tag=LISTED)

    def test_every_answer_with_components(self, rig: Rig) -> None:
        rig.kokaq().make(rig.queue)
        peer = rig.kokaq()
        pushed = self.ask(peer, listed(PUSH, rig.queue, b"one"))
        assert (pushed.outcome, len(pushed.fields[UUID])) == (SUCCESS_OK, 16)
        assert int.from_bytes(self.ask(peer, listed(GET, rig.queue)).fields[0x42], "big") == 1
        for opcode in (PEEK, ACQUIRE):
            answer = self.ask(peer, listed(opcode, rig.queue))
            assert (answer.payload, answer.queue, answer.fields[UUID]) == (b"one", rig.queue, pushed.fields[UUID])
        assert self.ask(peer, listed(RELEASE, rig.queue, uuid=pushed.fields[UUID])).outcome == SUCCESS_OK
        assert self.ask(peer, listed(POP, rig.queue)).payload == b"one"

    def test_literal_bytes(self, rig: Rig) -> None:
        """The answer to Push: the tag of the operation header follows the listing too."""
        rig.kokaq().make(rig.queue)
        peer = rig.kokaq().send(listed(PUSH, rig.queue, b"one"))
        peer.expect(bytes.fromhex("04200100 00000001 07010001 01042000 00000001 0510"))

    def test_it_is_the_first_payload_component_that_counts(self, rig: Rig) -> None:
        """Later components do not change it, and metadata alone decides nothing."""
        rig.kokaq().make(rig.queue)
        peer = rig.kokaq()
        peer.send(kokaq(GET, None, b"", {UUID: bytes(16)}))
        assert read_answer(peer).outcome == FAIL_BAD
        peer.send(listed(PUSH, rig.queue, b"one"), kokaq(PUSH, rig.queue, b"two"))
        assert [read_answer(peer, payload_tag=LISTED).outcome for _ in range(2)] == [SUCCESS_OK] * 2
        drawn = rig.kokaq().send(kokaq(PUSH, rig.queue, b"three"), listed(PUSH, rig.queue, b"four"))
        assert [read_answer(drawn).outcome for _ in range(2)] == [SUCCESS_OK] * 2

    def test_answers_do_not_depend_on_read_boundaries(self, rig: Rig) -> None:
        """ "the same bytes … however they are split over reads": only its request and earlier ones matter."""
        peer = rig.kokaq()
        peer.send(kokaq(GET, None, type_byte=CONTROL), listed(CREATE, rig.queue), listed(GET, rig.queue))
        assert read_answer(peer, payload_tag=1).fields.keys() >= {SOURCE}
        assert read_answer(peer, payload_tag=LISTED).outcome == SUCCESS_OK
        assert read_answer(peer, payload_tag=LISTED).fields.keys() >= {0x42}

    @pytest.mark.parametrize("tag", [1, 2])
    def test_a_message_in_pieces(self, tcp_rig: Rig, tag: int) -> None:
        """All pieces of a large message have the same tags."""
        large = bytes(range(256)) * 600
        name = tcp_rig.sspq_name
        tcp_rig.sspq().send(struct.pack(">HBBI", 0x5599, 0x5E, 255, len(large)), large)
        tcp_rig.kokaq().wait_for_depth(f"default/{name}", 1)
        peer = tcp_rig.kokaq()
        peer.send(listed(POP, f"default/{name}") if tag == LISTED else kokaq(POP, f"default/{name}"))
        pieces = [read_answer(peer, payload_tag=tag) for _ in range(3)]
        assert b"".join(piece.payload or b"" for piece in pieces) == large


class TestNop:
    @pytest.mark.parametrize("opaque", ["0000", "0001", "0002", "0003", "1234", "00ff", "ff00"])
    @pytest.mark.parametrize("kind", ["40 00", "41 01", "42 02", "81 41"])
    def test_both_bytes_are_copied_back(self, rig: Rig, opaque: str, kind: str) -> None:
        """ "For Nop bytes 10 and 11 are opaque, whatever they are, and no component follows"."""
        asked, answered = kind.split()
        peer = rig.kokaq()
        for _ in range(2):
            peer.send(bytes.fromhex(f"042001 {asked} deadbeef 0002 {opaque}"))
            peer.expect(bytes.fromhex(f"042001 {answered} deadbeef 0001 {opaque}"))

    def test_byte_by_byte_and_in_a_row(self, rig: Rig) -> None:
        requests = b"".join(bytes.fromhex(f"04200140 000000{n:02x} 0002 12{n:02x}") for n in range(64))
        answers = b"".join(bytes.fromhex(f"04200100 000000{n:02x} 0001 12{n:02x}") for n in range(64))
        rig.kokaq().send(requests).expect(answers)
        peer = rig.kokaq()
        for byte in requests[:240]:
            peer.send(bytes((byte,)))
        peer.expect(answers[:240])

    def test_a_failing_one(self, tmp_path: Path) -> None:
        """ "Fail/Infra with a Source Info text"; "who has sent a second opaque byte gets that back, and no text"."""
        with BrokerProcess(tmp_path, _FULL) as broker:
            peer = broker.dial("kokaq", kind=Kokaq)
            answer = read_answer(peer.send(kokaq(NOP, type_byte=CONTROL)))
            assert (answer.outcome, b"disk" in answer.fields[SOURCE]) == (FAIL_INFRA, True)
            for opaque in ("0001", "1203", "ffff"):
                peer.send(bytes.fromhex(f"04200142 deadbeef 0002 {opaque}"))
                peer.expect(bytes.fromhex(f"04200102 deadbeef 0015 {opaque}"))


#: More free space than any disk offers, so the broker is unhealthy from the start.
_FULL = f"""
sspq = []
phpmq = []
kokaq = ["127.0.0.1:0"]
[journal]
min_free_bytes = {2**62}
"""


class TestNames:
    def test_create_makes_the_namespace_too(self, rig: Rig) -> None:
        """ "creates the queue, and its namespace if that is missing"."""
        peer = rig.kokaq()
        assert peer.ask(CREATE, f"ns-{rig.name}/orders").outcome == SUCCESS_OK
        assert peer.ask(CREATE, f"ns-{rig.name}/orders").outcome == FAIL_EXISTS
        assert peer.ask(CREATE, f"ns-{rig.name}/").outcome == FAIL_EXISTS
        assert peer.ask(DELETE, f"ns-{rig.name}/").outcome == FAIL_NOT_ALLOWED
        peer.push(f"ns-{rig.name}/orders", b"m")

    @pytest.mark.parametrize("type_byte", [0x40, 0x41, 0x42])
    def test_under_every_message_type(self, rig: Rig, type_byte: int) -> None:
        name = f"ns-{rig.name}-{type_byte}/orders"
        peer = rig.kokaq()
        assert read_answer(peer.send(kokaq(CREATE, name, type_byte=type_byte))).outcome == SUCCESS_OK
        assert peer.depth(name) == 0

    def test_an_invalid_namespace(self, rig: Rig) -> None:
        """A refused Create leaves no namespace without its queue."""
        peer = rig.kokaq()
        body = b"\x01\x04\x20\x00" + bytes((3, 1, 0, 0)) + b"a/b" + b"q"
        answer = read_answer(peer.send(kokaq(CREATE)[:-1] + b"\x01" + body))
        assert answer.outcome == FAIL_NOT_ALLOWED
        wait_for(lambda: [line for line in rig.broker.events("queue not made") if line["queue"] == "a/b/q"])

    @pytest.mark.parametrize("opcode", [CREATE, PUSH, GET, PEEK, POP, ACQUIRE, DELETE])
    def test_an_empty_namespace_is_the_default_one(self, rig: Rig, opcode: int) -> None:
        """ "An empty namespace with a queue name is `default`"."""
        peer = rig.kokaq()
        if opcode != CREATE:
            peer.make(rig.queue)
        if opcode in (PEEK, POP, ACQUIRE):
            peer.push(rig.queue, b"m")
        answer = peer.ask(opcode, f"/{rig.name}", b"m" if opcode == PUSH else b"")
        assert answer.outcome == SUCCESS_OK
        assert answer.queue in (None, rig.queue)
        assert peer.ask(GET, rig.queue).outcome == (FAIL_BAD if opcode == DELETE else SUCCESS_OK)

    def test_first_push_where_that_creates(self, tcp_rig: Rig) -> None:
        peer = tcp_rig.special("kokaq create")
        assert isinstance(peer, Kokaq)
        peer.push(f"/{tcp_rig.name}", b"m")
        assert peer.depth(tcp_rig.queue) == 1


class TestSourceInfo:
    @pytest.mark.parametrize("text", [b"billing, host 7", "Übersee 漢".encode(), b"x" * 255])
    def test_kept_and_given_back(self, rig: Rig, text: bytes) -> None:
        """ "Source Info: what the publisher said of itself, if it did": by every way of getting the message."""
        peer = rig.kokaq().make(rig.queue)
        uuid = peer.push(rig.queue, b"m", {SOURCE: text, TTL: 60})
        for opcode in (PEEK, ACQUIRE):
            assert peer.ask(opcode, rig.queue).fields[SOURCE] == text
        assert peer.ask(GET, None, b"", {UUID: uuid}).fields[SOURCE] == text
        assert peer.ask(RELEASE, None, b"", {UUID: uuid}).outcome == SUCCESS_OK
        assert peer.ask(POP, rig.queue).fields[SOURCE] == text

    @pytest.mark.parametrize("fields", [None, {TTL: 60}, {SOURCE: b""}], ids=str)
    def test_else_protocol_address_and_client(self, rig: Rig, fields: Fields | None) -> None:
        """ "else protocol, address and client"."""
        peer = rig.kokaq().make(rig.queue)
        peer.push(rig.queue, b"m", fields)
        source = peer.ask(POP, rig.queue).fields[SOURCE].split()
        assert (source[0], source[-1]) == (b"kokaq", b"QueueService")

    def test_after_a_restart(self, tmp_path: Path) -> None:
        """Source Info is journaled with the message."""
        with BrokerProcess(tmp_path, 'sspq = []\nphpmq = []\nkokaq = ["127.0.0.1:0"]') as broker:
            broker.dial("kokaq", kind=Kokaq).make("ns/q").push("ns/q", b"m", {SOURCE: b"billing"})
            broker.kill()
            broker.start()
            assert broker.dial("kokaq", kind=Kokaq).ask(POP, "ns/q").fields[SOURCE] == b"billing"


class TestPopIsNotRelease:
    def test_without_a_uuid_it_takes_the_message(self, rig: Rig) -> None:
        """ "`0x05` without a UUID is a Pop": the lock stays, and the next message is gone."""
        peer = rig.kokaq().make(rig.queue)
        first, second = (peer.push(rig.queue, body) for body in (b"first", b"second"))
        assert peer.ask(ACQUIRE, rig.queue).fields[UUID] == first
        assert peer.ask(POP, rig.queue).fields[UUID] == second
        assert peer.ask(POP, None, b"", {UUID: first}).outcome == SUCCESS_OK
        again = peer.ask(POP, rig.queue)
        assert (again.fields[UUID], again.number(VERSION)) == (first, 2)

    def test_it_is_logged_once_for_a_connection_that_holds_locks(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path, 'sspq = []\nphpmq = []\nkokaq = ["127.0.0.1:0"]') as broker:
            peer = broker.dial("kokaq", kind=Kokaq).make("ns/q")
            for _ in range(4):
                peer.push("ns/q", b"m")
            peer.ask(POP, "ns/q")
            assert _warnings(broker) == []
            peer.ask(ACQUIRE, "ns/q")
            assert [peer.ask(POP, "ns/q").outcome for _ in range(2)] == [SUCCESS_OK] * 2
            assert _warnings(broker) == ["ns/q"]


def _warnings(broker: BrokerProcess) -> list[str]:
    wanted = "a peer that holds locks pops: 0x05 takes a message for good, and releases a lock only with its UUID"
    return [line["queue"] for line in broker.events(wanted)]
