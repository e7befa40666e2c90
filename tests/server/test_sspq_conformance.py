"""Every rule of docs/protocols/sspq.md over real sockets, in bytes. Rules are quoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.conftest import Rig
from support.brokers import BrokerProcess, Peer, wait_for
from support.raw import (
    CONFIRM,
    DEAD_RECEIVE,
    FAIL_OK,
    GET,
    NO_RECEIVE,
    POP,
    RECEIVE,
    SUCCESS_OK,
    send,
    sspq,
)

HELLO = bytes.fromhex("55995e0300000005 48656c6c6f")


def receive(peer: Peer) -> Peer:
    return peer.send(sspq(RECEIVE))


def lose(rig: Rig, payload: bytes, retries: int) -> None:
    """Receive a message, and hang up without confirming it."""
    peer = rig.sspq()
    receive(peer).expect(send(payload, retries))
    peer.close()


def test_the_worked_example(rig: Rig) -> None:
    """ "SEND, RECEIVE, the message comes as a SEND, CONFIRM": every byte of the page's example."""
    peer = rig.sspq()
    peer.send(HELLO, bytes.fromhex("5599ec0000000000"))
    peer.expect(HELLO)
    peer.send(bytes.fromhex("5599c00000000000"))
    peer.close()
    lost = rig.sspq().send(HELLO)
    receive(lost).expect(HELLO)
    lost.close()
    again = rig.sspq().send(bytes.fromhex("5599ec0000000000"))
    again.expect(bytes.fromhex("55995e0200000005 48656c6c6f"))
    again.send(bytes.fromhex("5599c00000000000"))


def test_byte_order(rig: Rig) -> None:
    """ "byte order: big-endian"."""
    payload = bytes(range(256)) * 2
    peer = rig.sspq().send(bytes.fromhex("55995e0000000200"), payload, bytes.fromhex("5599ec0000000000"))
    peer.expect(bytes.fromhex("55995e0000000200"), payload)


def test_many_packages_in_one_write_and_one_in_many(rig: Rig) -> None:
    """ "Packages may be pipelined: many in one write, or one in many writes"."""
    peer = rig.sspq()
    for at in range(len(HELLO)):
        peer.send(HELLO[at : at + 1])
    peer.send(*[send(b"%d" % number, 7) for number in range(50)], sspq(RECEIVE))
    peer.expect(HELLO)
    for number in range(50):
        peer.send(sspq(CONFIRM), sspq(RECEIVE)).expect(send(b"%d" % number, 7))


def test_an_empty_payload_is_a_message(rig: Rig) -> None:
    """ "payload: as many bytes as the size says"."""
    receive(rig.sspq().send(send(b"", 9))).expect(send(b"", 9))


def test_receive_waits(rig: Rig) -> None:
    """ "RECEIVE with nothing there: waits"."""
    waiting = receive(rig.sspq())
    rig.sspq().send(send(b"at last", 2))
    waiting.expect(send(b"at last", 2))


def test_confirm_removes_the_message(rig: Rig) -> None:
    """ "Work on the message, then send CONFIRM. Only then is the message gone for good"."""
    peer = receive(rig.sspq().send(send(b"one", 255), send(b"two", 255))).expect(send(b"one", 255))
    peer.send(sspq(CONFIRM), sspq(RECEIVE)).expect(send(b"two", 255))
    peer.close()
    receive(rig.sspq()).expect(send(b"two", 255))


class TestLostConnections:
    """ "connection lost before CONFIRM"."""

    def test_counter_0(self, rig: Rig) -> None:
        """ "counter 0: to the dead letters, reason `retries`"."""
        rig.sspq().send(send(b"once", 0))
        lose(rig, b"once", 0)
        peer = rig.sspq().send(bytes.fromhex("5599de0000000000"))
        peer.expect(bytes.fromhex("55995e0000000004"), b"once")

    def test_counter_255(self, rig: Rig) -> None:
        """ "255: re-queued unchanged"."""
        rig.sspq().send(send(b"for ever", 255))
        for _ in range(3):
            lose(rig, b"for ever", 255)
        receive(rig.sspq()).expect(send(b"for ever", 255))

    def test_counter_between(self, rig: Rig) -> None:
        """ "else counter − 1 and re-queued"; a delivery shows the rest."""
        rig.sspq().send(send(b"twice", 2))
        for left in (2, 1, 0):
            lose(rig, b"twice", left)
        rig.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"twice", 0))

    def test_requeue_is_the_end_of_the_queue(self, rig: Rig) -> None:
        """ ""Re-queue" is the end of the queue"."""
        rig.sspq().send(send(b"first", 5), send(b"second", 5))
        lose(rig, b"first", 5)
        peer = rig.sspq()
        wait_for(lambda: rig.kokaq().depth(f"default/{rig.sspq_name}") == 2)
        receive(peer).expect(send(b"second", 5))
        peer.send(sspq(CONFIRM), sspq(RECEIVE)).expect(send(b"first", 4))

    def test_a_reset_is_a_loss_too(self, rig: Rig) -> None:
        peer = receive(rig.sspq().send(send(b"rude", 1))).expect(send(b"rude", 1))
        peer.reset()
        receive(rig.sspq()).expect(send(b"rude", 0))

    def test_a_waiting_request_is_forgotten(self, rig: Rig) -> None:
        """A request ends with its connection: the message goes to a remaining receiver, with an unchanged counter."""
        receive(rig.sspq()).finish().expect_end()
        receive(rig.sspq().send(send(b"later", 0))).expect(send(b"later", 0))

    def test_what_was_sent_before_hanging_up_is_kept(self, rig: Rig) -> None:
        """ "SENDs that were received whole are kept"; a package cut short never happened."""
        rig.sspq().send(*[send(b"%d" % number) for number in range(1000)], HELLO[:-1]).close()
        rig.kokaq().wait_for_depth(f"default/{rig.sspq_name}", 1000)


class TestDeclined:
    """ "RECEIVE or DEAD_RECEIVE while a message is unconfirmed or a request is already waiting: NO_RECEIVE"."""

    NO = bytes.fromhex("55990e0000000000")

    @pytest.mark.parametrize("second", [RECEIVE, DEAD_RECEIVE])
    def test_while_a_message_is_unconfirmed(self, rig: Rig, second: int) -> None:
        """ "the earlier request or delivery stands"."""
        peer = receive(rig.sspq().send(send(b"m", 3))).expect(send(b"m", 3))
        peer.send(sspq(second)).expect(self.NO)
        peer.send(sspq(CONFIRM))
        receive(peer).send(send(b"next")).expect(send(b"next"))

    @pytest.mark.parametrize("first", [RECEIVE, DEAD_RECEIVE])
    @pytest.mark.parametrize("second", [RECEIVE, DEAD_RECEIVE])
    def test_while_a_request_waits(self, rig: Rig, first: int, second: int) -> None:
        """ "One outstanding RECEIVE or DEAD_RECEIVE per connection"."""
        peer = rig.sspq().send(sspq(first), sspq(second)).expect(self.NO)
        if first == RECEIVE:
            rig.sspq().send(send(b"m", 3))
            peer.expect(send(b"m", 3))
        else:
            other = rig.sspq().send(send(b"dead"))
            receive(other).expect(send(b"dead")).close()
            peer.expect(send(b"dead"))

    def test_when_dead_letters_are_off(self, tcp_rig: Rig) -> None:
        """ "dead letters switched off: DEAD_RECEIVE is answered NO_RECEIVE at once"; and a message whose counter is
        spent is dropped."""
        peer = tcp_rig.special("sspq no dead letters")
        peer.send(sspq(DEAD_RECEIVE)).expect(self.NO)
        receive(peer.send(send(b"gone", 0))).expect(send(b"gone", 0))
        peer.close()
        again = tcp_rig.special("sspq no dead letters")
        again.send(sspq(DEAD_RECEIVE)).expect(self.NO)
        receive(again.send(send(b"fresh", 0))).expect(send(b"fresh", 0)).send(sspq(CONFIRM))


class TestDeadLetters:
    def bury(self, rig: Rig, *payloads: bytes) -> None:
        for payload in payloads:
            rig.sspq().send(send(payload))
            lose(rig, payload, 0)
            wait_for(lambda: rig.kokaq().depth(f"default/{rig.sspq_name}") == 0)

    def test_the_oldest_comes_first_and_confirm_removes_it(self, rig: Rig) -> None:
        """ "DEAD_RECEIVE takes the oldest dead letter of the queue. CONFIRM removes it"."""
        self.bury(rig, b"a", b"b")
        peer = rig.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"a"))
        peer.send(sspq(CONFIRM), sspq(DEAD_RECEIVE)).expect(send(b"b"))

    def test_lost_again(self, rig: Rig) -> None:
        """ "dead letter given out, connection lost: always back to the dead letters, counter untouched"."""
        self.bury(rig, b"a", b"b")
        for _ in range(2):
            peer = rig.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"a"))
            peer.close()
        rig.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"a"))

    def test_it_waits(self, rig: Rig) -> None:
        """ "RECEIVE with nothing there: waits", for dead letters too."""
        peer = rig.sspq().send(sspq(DEAD_RECEIVE))
        self.bury(rig, b"late")
        peer.expect(send(b"late"))


class TestIgnored:
    def test_confirm_with_nothing_out(self, rig: Rig) -> None:
        """ "CONFIRM with nothing out: ignored, counted"."""
        peer = rig.sspq().send(sspq(CONFIRM), send(b"still there"), sspq(CONFIRM), sspq(RECEIVE))
        peer.expect(send(b"still there"))

    def test_confirm_of_a_message_that_was_not_shown_yet(self, rig: Rig) -> None:
        """ "CONFIRM with nothing out: ignored": the client can't confirm a message that it has not received."""
        peer = rig.sspq().send(send(b"unseen", 255), sspq(RECEIVE), sspq(CONFIRM))
        peer.expect(send(b"unseen", 255))
        peer.close()
        receive(rig.sspq()).expect(send(b"unseen", 255))

    def test_no_receive_from_a_client(self, rig: Rig) -> None:
        """ "NO_RECEIVE from a client is ignored"."""
        receive(rig.sspq().send(sspq(NO_RECEIVE), send(b"x"))).expect(send(b"x"))

    @pytest.mark.parametrize("kind", [0xFF, 0x00, 0x5F])
    def test_other(self, rig: Rig, kind: int) -> None:
        """ "unknown type (OTHER): its payload is skipped, the package ignored and counted; the connection stays"."""
        peer = rig.sspq().send(sspq(kind, b"whatever \x55\x99"), sspq(kind), send(b"x"))
        receive(peer).expect(send(b"x"))

    @pytest.mark.parametrize("kind", [RECEIVE, DEAD_RECEIVE, CONFIRM, NO_RECEIVE])
    def test_payload_on_other_types(self, rig: Rig, kind: int) -> None:
        """ "payload on other types than SEND: skipped"."""
        peer = rig.sspq().send(sspq(kind, bytes(100_000), retries=3))
        if kind not in (RECEIVE, DEAD_RECEIVE):
            receive(peer)
        rig.sspq().send(send(b"x"))
        if kind == DEAD_RECEIVE:
            lose(rig, b"x", 0)
        peer.expect(send(b"x"))


class TestErrors:
    def test_wrong_magic(self, rig: Rig) -> None:
        """ "wrong magic: protocol error, closed"; what came before it is kept."""
        peer = rig.sspq().send(send(b"kept"), b"\x55\x98\x5e\x00\x00\x00\x00\x00", send(b"never"))
        peer.expect_end()
        rig.kokaq().wait_for_depth(f"default/{rig.sspq_name}", 1)

    def test_one_line_in_the_log(self, tmp_path: Path) -> None:
        """ "one log line with peer, protocol, offset and reason"."""
        with BrokerProcess(tmp_path, 'phpmq = []\nkokaq = []\n[[sspq]]\naddress = "127.0.0.1:0"') as broker:
            broker.dial("sspq").send(send(b"kept"), bytes(8)).expect_end()
            (line,) = broker.events("protocol error")
        assert (line["protocol"], line["offset"], line["code"]) == ("sspq", 12, "bad-magic")
        assert line["reason"]
        assert line["peer"] == "127.0.0.1"

    def test_size_over_the_limit(self, rig: Rig) -> None:
        """ "size over the limit: protocol error, closed"; the limit is 16 MiB and judged at the header."""
        peer = rig.sspq().send(bytes.fromhex("55995e00 01000001"))
        peer.expect_end()


def test_each_listener_has_one_queue(tcp_rig: Rig) -> None:
    """ "each SSPQ listener is bound to one `namespace/queue`"; "A queue that an SSPQ listener is bound to exists from
    the start"."""
    kokaq = tcp_rig.kokaq()
    assert kokaq.ask(GET, "default/forced").outcome == SUCCESS_OK
    tcp_rig.special("sspq forced").send(send(b"x", 200), sspq(RECEIVE)).expect(send(b"x", 1)).send(sspq(CONFIRM))
    assert kokaq.ask(POP, f"default/{tcp_rig.sspq_name}").outcome == FAIL_OK


def test_forced_retries(tcp_rig: Rig) -> None:
    """ "Options as the public server has them: force the retry counter"."""
    peer = tcp_rig.special("sspq forced").send(send(b"forced", 255), sspq(RECEIVE)).expect(send(b"forced", 1))
    peer.close()
    again = tcp_rig.special("sspq forced").send(sspq(RECEIVE)).expect(send(b"forced", 0))
    again.send(sspq(CONFIRM), sspq(0xFF), sspq(RECEIVE), sspq(RECEIVE)).expect(sspq(NO_RECEIVE))
