"""Every rule of docs/protocols/phpmq.md over real sockets, in bytes. Rules are quoted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from server.conftest import Rig
from support.brokers import BrokerProcess, Peer, wait_for
from support.raw import (
    FAIL_BAD,
    GET,
    SUCCESS_OK,
    TTL,
    UUID,
    VERSION,
    Fields,
    acknowledge,
    consume,
    phpmq,
    publish,
    read_dispatch,
    reject,
    requeue,
)

ZEROS_29 = b"0" * 26
FORMS: list[dict[str, Any]] = [{"width": width, "eol": eol} for width in (32, 36) for eol in (b"", b"\n", b"\r\n")]


def payloads(peer: Peer, count: int) -> list[bytes]:
    return [read_dispatch(peer).payload for _ in range(count)]


def test_the_worked_example(rig: Rig) -> None:
    """ "H + 2-digit version + 3-digit type + 2-digit packet count, then that many packets": the page's conversation."""
    name = b"Foo" + rig.name.encode()
    size = b"%029d" % len(name)
    peer = rig.phpmq()
    peer.send(b"H0100103P01", size, name, b"P02", ZEROS_29, b"011Hello WorldP05", ZEROS_29, b"0043600")
    peer.send(b"H0100202P01", size, name, b"P04", ZEROS_29, b"0015")
    peer.expect(b"H0100304P01", size, name, b"P02", ZEROS_29, b"011Hello WorldP03", ZEROS_29, b"032")
    number = peer.read(32)
    peer.expect(b"P05", ZEROS_29, b"0043600")
    assert number == number.lower()
    bytes.fromhex(number.decode())
    peer.send(b"H0100402P01", size, name, b"P03", ZEROS_29, b"032", number)
    assert rig.kokaq().ask(GET, rig.queue.replace("queue", "Fooqueue")).outcome == SUCCESS_OK


class TestForms:
    @pytest.mark.parametrize("form", FORMS, ids=str)
    def test_answers_are_in_the_form_of_the_first_message(self, rig: Rig, form: dict[str, Any]) -> None:
        """ "The first message fixes width, form and line end; we answer in them": 32 and 36, compact, LF and CRLF."""
        peer = rig.phpmq().send(publish(rig.name, b"a\r\nb\n", **form), consume(rig.name, 2, **form))
        message = read_dispatch(peer, **form)
        assert (message.queue, message.payload, message.ttl) == (rig.name, b"a\r\nb\n", None)
        peer.send(acknowledge(rig.name, message.id, **form), publish(rig.name, b"next", **form))
        assert read_dispatch(peer, **form).payload == b"next"

    def test_literal_36_wide_lined(self, rig: Rig) -> None:
        """ "*lined* (one LF, or CRLF, after the message header, after each packet header and after each content)"."""
        name = rig.name.encode()
        size = b"%033d" % len(name)
        peer = rig.phpmq()
        peer.send(b"H0100102\r\nP01", size, b"\r\n", name, b"\r\nP02", b"0" * 32, b"5\r\nHello\r\n")
        peer.send(b"H0100202\r\nP01", size, b"\r\n", name, b"\r\nP04", b"0" * 32, b"1\r\n9\r\n")
        peer.expect(b"H0100303\r\nP01", size, b"\r\n", name, b"\r\nP02", b"0" * 32, b"5\r\nHello\r\nP03")
        peer.expect(b"0" * 31, b"32\r\n")

    def test_the_last_line_end_is_optional(self, rig: Rig) -> None:
        """ "A message is complete at its last content byte; the line end before the next `H` is optional"."""
        message = publish(rig.name, b"x", eol=b"\n")
        rig.phpmq().send(message[:-1], message, message[:-1])
        rig.kokaq().wait_for_depth(rig.queue, 3)

    @pytest.mark.parametrize("eol", [b"", b"\n"])
    def test_byte_by_byte(self, rig: Rig, eol: bytes) -> None:
        """ "the same bytes always decode the same way however they are split over reads"."""
        peer = rig.phpmq()
        for byte in publish(rig.name, b"slow", 60, width=36, eol=eol) + consume(rig.name, 1, width=36, eol=eol):
            peer.send(bytes((byte,)))
        assert read_dispatch(peer, width=36, eol=eol).payload == b"slow"

    def test_packets_in_any_order_after_the_first(self, rig: Rig) -> None:
        """ "Packet 01 comes first, the others in any order"."""
        name = rig.name.encode()
        peer = rig.phpmq().send(phpmq(1, (1, name), (5, b"60"), (2, b"x")), consume(rig.name, 5))
        number = read_dispatch(peer).id
        peer.send(phpmq(5, (1, name), (5, b"0"), (3, number)))
        assert read_dispatch(peer).ttl == 0


class TestDialects:
    """ "dispatch (003): 3 packets or 4"."""

    @pytest.mark.parametrize("width", [32, 36])
    @pytest.mark.parametrize(
        ("sent", "ttls"),
        [
            ("002 only", [None, 0, 60]),
            ("plain 001", [None, None, None]),
            ("packet 05", [0, 0, 60]),
            ("005", [0, 0, 60]),
            ("006", [0, 0, 60]),
            ("plain 001, then 006", [0, 0, 60]),
        ],
    )
    def test_three_or_four_packets(self, rig: Rig, width: int, sent: str, ttls: list[int | None]) -> None:
        """ "any packet `05`, any 005 or 006: 4 packets, from then on"; "none of these, but a 001 of two packets: 3";
        "none of these: each message as it was sent", whatever the width: published plain, with 0, with 60."""
        peer = rig.phpmq()
        if "001" in sent:
            peer.send(publish(rig.name + "x", b"", width=width))
        if "05" in sent:
            peer.send(publish(rig.name + "x", b"", 0, width=width))
        if sent == "005":
            peer.send(requeue(rig.name, b"f" * 32, width=width))
        if "006" in sent:
            peer.send(reject(rig.name, b"f" * 32, width=width))
        rig.phpmq().send(publish(rig.name, b"m"), publish(rig.name, b"m", 0), publish(rig.name, b"m", 60))
        peer.send(consume(rig.name, 9, width=width))
        assert [read_dispatch(peer, width=width).ttl for _ in ttls] == ttls

    def test_runs_of_both_kinds_are_in_order(self, rig: Rig) -> None:
        """ "as it was sent": message by message, in any mixture."""
        sent = [None, None, 0, None, 3600, 0, 0, None]
        consumer = rig.phpmq().send(consume(rig.name, 100))
        rig.phpmq().send(*[publish(rig.name, b"%d" % at, ttl) for at, ttl in enumerate(sent)])
        messages = [read_dispatch(consumer) for _ in sent]
        assert [(each.payload, each.ttl) for each in messages] == [(b"%d" % at, ttl) for at, ttl in enumerate(sent)]

    @pytest.mark.parametrize(("life", "ttl"), [({}, None), ({TTL: 0}, None), ({TTL: 3600}, 3600)])
    def test_what_came_over_kokaq(self, rig: Rig, life: Fields, ttl: int | None) -> None:
        """ "published with a packet `05` … or has a TTL": another protocol's 0 is no packet 05."""
        rig.kokaq().make(rig.queue).push(rig.queue, b"m", life or None)
        assert read_dispatch(rig.phpmq().send(consume(rig.name, 1))).ttl == ttl

    def test_a_re_queued_message_is_still_as_it_was_sent(self, rig: Rig) -> None:
        """ "published with a packet `05` or has a TTL": 005 adds a TTL to one message, and removes the other's."""
        rig.phpmq().send(publish(rig.name, b"plain"), publish(rig.name, b"mortal", 60))
        peer = rig.phpmq().send(consume(rig.name, 2))
        first, second = read_dispatch(peer), read_dispatch(peer)
        peer.send(consume(rig.name, 0), requeue(rig.name, first.id, 3600), requeue(rig.name, second.id, 0))
        rig.kokaq().wait_for_depth(rig.queue, 2)
        other = rig.phpmq().send(consume(rig.name, 2))
        assert [(each.payload, each.ttl) for each in (read_dispatch(other), read_dispatch(other))] == [
            (b"plain", 3600),
            (b"mortal", 0),
        ]

    @pytest.mark.parametrize(("dialect", "width", "ttl"), [("36", 36, None), ("32", 32, None), ("ttl", 36, 0)])
    def test_a_pinned_listener(self, tcp_rig: Rig, dialect: str, width: int, ttl: int | None) -> None:
        """ "A listener can be pinned to a dialect (`--phpmq ADDR,dialect=32`) for clients that hard-code 3"."""
        peer = tcp_rig.special(f"phpmq {dialect}")
        peer.send(consume(tcp_rig.name, 1, width=width), publish(tcp_rig.name, b"m", width=width))
        message = read_dispatch(peer, width=width)
        assert message.ttl == ttl
        peer.send(requeue(tcp_rig.name, message.id, 9, width=width))
        assert read_dispatch(peer, width=width).ttl == (None if ttl is None else 9)

    @pytest.mark.parametrize(("dialect", "width"), [("36", 32), ("32", 36)])
    def test_a_pinned_listener_refuses_the_other_width(self, tcp_rig: Rig, dialect: str, width: int) -> None:
        tcp_rig.special(f"phpmq {dialect}").send(publish(tcp_rig.name, b"m", width=width)).expect_end()

    def test_a_listener_has_its_namespace(self, tcp_rig: Rig) -> None:
        """ "They live in the namespace of the listener (`default`)"; "Queue names are created on first use"."""
        kokaq = tcp_rig.kokaq()
        assert kokaq.ask(GET, f"elsewhere/{tcp_rig.name}").outcome == FAIL_BAD
        tcp_rig.special("phpmq elsewhere").send(publish(tcp_rig.name, b"m"))
        wait_for(lambda: kokaq.ask(GET, f"elsewhere/{tcp_rig.name}").outcome == SUCCESS_OK)
        assert kokaq.ask(GET, tcp_rig.queue).outcome == FAIL_BAD


class TestTimeToLive:
    def test_0_never_expires_and_is_shown_as_0(self, rig: Rig) -> None:
        """ "`0` = never expires"."""
        peer = rig.phpmq().send(publish(rig.name, b"m", 0), consume(rig.name, 1))
        assert read_dispatch(peer).ttl == 0

    def test_the_largest(self, rig: Rig) -> None:
        """ "above 2³²−1 is an error": 4294967295 is taken, and can be shown by every protocol."""
        peer = rig.phpmq().send(publish(rig.name, b"m", 4294967295))
        kokaq = rig.kokaq()
        kokaq.wait_for_depth(rig.queue, 1)
        assert kokaq.ask(4, rig.queue).number(TTL) >= 4294967290
        peer.send(consume(rig.name, 1))
        assert (read_dispatch(peer).ttl or 0) >= 4294967290
        rig.phpmq().send(publish(rig.name, b"m", 4294967296)).expect_end()

    def test_what_remains_rounded_up(self, tcp_rig: Rig) -> None:
        """ "On dispatch the *remaining* seconds, rounded up, so a live message with a TTL never shows 0"."""
        peer = tcp_rig.phpmq().send(publish(tcp_rig.name, b"m", 2))
        time.sleep(1.1)
        peer.send(consume(tcp_rig.name, 1))
        assert read_dispatch(peer).ttl == 1

    def test_it_runs_out_in_the_queue(self, tcp_rig: Rig) -> None:
        """ "TTL that runs out in the queue goes to the dead letters with reason `expired`, promptly and in whatever
        order, not only when the message reaches the head"."""
        peer = tcp_rig.phpmq().send(publish(tcp_rig.name, b"stays"), publish(tcp_rig.name, b"goes", 1))
        kokaq = tcp_rig.kokaq()
        kokaq.wait_for_depth(tcp_rig.queue, 2)
        kokaq.wait_for_depth(tcp_rig.queue, 1)
        peer.send(consume(tcp_rig.name, 5), publish(tcp_rig.name, b"last"))
        assert payloads(peer, 2) == [b"stays", b"last"]

    def test_one_that_is_out_is_left_alone(self, tcp_rig: Rig) -> None:
        """ "TTL acts on ready and delayed messages; one that is out is left alone and expires if it comes back
        late"."""
        peer = tcp_rig.phpmq().send(
            publish(tcp_rig.name, b"m", 1), publish(tcp_rig.name, b"n", 1), consume(tcp_rig.name, 2)
        )
        first, second = read_dispatch(peer), read_dispatch(peer)
        time.sleep(1.1)
        peer.send(requeue(tcp_rig.name, first.id, 0))
        again = read_dispatch(peer)
        assert (again.id, again.ttl) == (first.id, 0)
        peer.close()
        kokaq = tcp_rig.kokaq()
        kokaq.wait_for_depth(tcp_rig.queue, 1)  # the requeued one came back; the other had expired
        assert kokaq.ask(GET, tcp_rig.queue, b"", {UUID: bytes.fromhex(second.id.decode())}).fields[0x43] == b"expired"


class TestWindows:
    """ "002, count: at most N unacknowledged on that connection and queue"."""

    def start(self, rig: Rig, messages: int, window: int) -> Peer:
        peer = rig.phpmq().send(*[publish(rig.name, b"%d" % number, 0) for number in range(messages)])
        return peer.send(consume(rig.name, window))

    def idle(self, rig: Rig, peer: Peer) -> None:
        """Assert that nothing else comes before a message through another queue."""
        peer.send(publish(rig.name + "-idle", b"idle"), consume(rig.name + "-idle", 1))
        message = read_dispatch(peer)
        assert message.payload == b"idle"
        peer.send(acknowledge(rig.name + "-idle", message.id), consume(rig.name + "-idle", 0))

    @pytest.mark.parametrize("settle", [acknowledge, requeue, reject])
    def test_each_settlement_opens_a_slot(self, rig: Rig, settle: Any) -> None:
        """ "each 004/005/006 opens a slot and the next message follows"."""
        peer = self.start(rig, 5, 2)
        first, second = read_dispatch(peer), read_dispatch(peer)
        assert (first.payload, second.payload) == (b"0", b"1")
        self.idle(rig, peer)
        peer.send(settle(rig.name, second.id))
        assert read_dispatch(peer).payload == b"2"
        self.idle(rig, peer)

    def test_several_queues_with_a_window_each(self, rig: Rig) -> None:
        """ "Several queues per connection, a window each"."""
        peer = self.start(rig, 3, 1)
        other = rig.name + "-other"
        peer.send(*[publish(other, b"other %d" % number) for number in range(3)], consume(other, 2))
        messages = [read_dispatch(peer) for _ in range(3)]
        assert sorted(each.payload for each in messages) == [b"0", b"other 0", b"other 1"]
        self.idle(rig, peer)
        peer.send(*[acknowledge(other, each.id) for each in messages if each.queue == other])
        assert read_dispatch(peer).payload == b"other 2"

    def test_a_later_002_replaces_the_window(self, rig: Rig) -> None:
        """ "A later 002 for the same queue replaces the window"."""
        peer = self.start(rig, 6, 1)
        first = read_dispatch(peer)
        peer.send(consume(rig.name, 3))
        assert payloads(peer, 2) == [b"1", b"2"]
        peer.send(consume(rig.name, 1), acknowledge(rig.name, first.id))
        self.idle(rig, peer)

    def test_0_stops(self, rig: Rig) -> None:
        """ "`0` stops"; "Messages already out stay out"."""
        peer = self.start(rig, 4, 2)
        first, second = read_dispatch(peer), read_dispatch(peer)
        peer.send(consume(rig.name, 0), acknowledge(rig.name, first.id))
        self.idle(rig, peer)
        kokaq = rig.kokaq()
        assert kokaq.depth(rig.queue) == 2
        peer.send(acknowledge(rig.name, second.id), consume(rig.name, 9))
        assert payloads(peer, 2) == [b"2", b"3"]

    def test_messages_still_out_count_in_a_new_window(self, rig: Rig) -> None:
        peer = self.start(rig, 4, 2)
        payloads(peer, 2)
        peer.send(consume(rig.name, 0), consume(rig.name, 3))
        assert payloads(peer, 1) == [b"2"]
        self.idle(rig, peer)

    def test_above_the_limit_it_is_clamped(self, rig: Rig) -> None:
        """ "above the limit it is clamped": any number of digits."""
        peer = rig.phpmq().send(publish(rig.name, b"m"), phpmq(2, (1, rig.name.encode()), (4, b"9" * 33)))
        assert read_dispatch(peer).payload == b"m"

    def test_two_consumers_share(self, rig: Rig) -> None:
        one, two = rig.phpmq().send(consume(rig.name, 1)), rig.phpmq().send(consume(rig.name, 1))
        kokaq = rig.kokaq()
        wait_for(lambda: kokaq.ask(GET, rig.queue).outcome == SUCCESS_OK)
        rig.phpmq().send(publish(rig.name, b"a"), publish(rig.name, b"b"))
        assert {read_dispatch(one).payload, read_dispatch(two).payload} == {b"a", b"b"}


class TestSettling:
    def test_005(self, rig: Rig) -> None:
        """ "same message ID, to the end of the queue, with the new TTL (0 = never), no retry spent"."""
        peer = rig.phpmq().send(publish(rig.name, b"a", 50), publish(rig.name, b"b", 50), consume(rig.name, 1))
        first = read_dispatch(peer)
        peer.send(requeue(rig.name, first.id, 7))
        second = read_dispatch(peer)
        peer.send(acknowledge(rig.name, second.id))
        again = read_dispatch(peer)
        assert (second.payload, again.payload, again.id) == (b"b", b"a", first.id)
        assert again.ttl in (6, 7)

    def test_006(self, rig: Rig) -> None:
        """ "moved to the queue's dead letters with reason `rejected`"."""
        peer = rig.phpmq().send(publish(rig.name, b"bad", 50), consume(rig.name, 1))
        number = read_dispatch(peer).id
        peer.send(reject(rig.name, number))
        uuid = bytes.fromhex(number.decode())
        kokaq = rig.kokaq()
        reason = wait_for(lambda: kokaq.ask(GET, rig.queue, b"", {UUID: uuid}).fields.get(0x43))
        assert reason == b"rejected"

    def test_receipt_is_an_acknowledgement(self, rig: Rig) -> None:
        """ "004 "For message receipt": packets 01, 03: the same layout as an acknowledgement"."""
        peer = rig.phpmq().send(publish(rig.name, b"m"), consume(rig.name, 1))
        number = read_dispatch(peer).id
        peer.send(b"H0100402P01", b"%029d" % len(rig.name), rig.name.encode(), b"P03", ZEROS_29, b"032", number)
        kokaq = rig.kokaq()
        uuid = bytes.fromhex(number.decode())
        wait_for(lambda: kokaq.ask(GET, rig.queue, b"", {UUID: uuid}).outcome == FAIL_BAD)

    @pytest.mark.parametrize("settle", [acknowledge, requeue, reject])
    def test_only_what_is_out_on_the_same_connection(self, rig: Rig, settle: Any) -> None:
        """ "004/005/006 act only on a message that is out on the same connection; any other ID, a wrong queue name or
        an ill-formed ID is ignored, counted and logged"."""
        peer = rig.phpmq().send(publish(rig.name, b"m"), consume(rig.name, 1))
        number = read_dispatch(peer).id
        other = rig.phpmq()
        other.send(settle(rig.name, number), consume(rig.name, 1))
        peer.send(settle(rig.name + "-wrong", number))
        for bad in (b"", b"f" * 32, number[:-1], number + b"0", b"\xff" * 32, b"z" * 32, b"f" * 255):
            peer.send(settle(rig.name, bad))
        wait_for(lambda: rig.broker.events("settlement ignored"))
        peer.close()
        again = read_dispatch(other)
        assert (again.id, again.payload) == (number, b"m")

    def test_a_late_acknowledgement_settles_nothing(self, rig: Rig) -> None:
        """ "so a late ack can't settle somebody else's delivery"."""
        lost = rig.phpmq().send(publish(rig.name, b"m"), consume(rig.name, 1))
        number = read_dispatch(lost).id
        lost.close()
        peer = rig.phpmq().send(consume(rig.name, 1))
        assert read_dispatch(peer).id == number
        rig.phpmq().send(acknowledge(rig.name, number)).close()
        peer.close()
        assert read_dispatch(rig.phpmq().send(consume(rig.name, 1))).id == number


class TestLostConnections:
    """ "put back at their old place in the queue, delivery count + 1"."""

    def test_order_and_counts(self, rig: Rig) -> None:
        peer = rig.phpmq().send(*[publish(rig.name, b"%d" % number) for number in range(6)])
        peer.send(consume(rig.name, 4))
        messages = [read_dispatch(peer) for _ in range(4)]
        peer.send(acknowledge(rig.name, messages[1].id))
        read_dispatch(peer)
        peer.close()
        kokaq = rig.kokaq()
        kokaq.wait_for_depth(rig.queue, 5)
        answers = [kokaq.ask(5, rig.queue) for _ in range(5)]
        assert [answer.payload for answer in answers] == [b"0", b"2", b"3", b"4", b"5"]
        assert [answer.number(VERSION) for answer in answers] == [2, 2, 2, 2, 1]
        assert answers[0].fields[UUID].hex().encode() == messages[0].id

    def test_what_was_sent_before_hanging_up_is_kept(self, rig: Rig) -> None:
        """ "What was complete before that byte has been taken and stays taken"; "A message that was cut short was never
        sent"."""
        message = publish(rig.name, b"x" * 100)
        rig.phpmq().send(message * 2000, message[:-1]).close()
        rig.kokaq().wait_for_depth(rig.queue, 2000)

    def test_acknowledgements_before_hanging_up_count(self, rig: Rig) -> None:
        peer = rig.phpmq().send(*[publish(rig.name, b"%d" % number) for number in range(100)])
        peer.send(consume(rig.name, 100))
        numbers = [read_dispatch(peer).id for _ in range(100)]
        peer.send(*[acknowledge(rig.name, number) for number in numbers[:99]]).close()
        kokaq = rig.kokaq()
        kokaq.wait_for_depth(rig.queue, 1)
        assert kokaq.pop_all(rig.queue) == [b"99"]


NAME = b"P01" + b"%029d" % 3 + b"Foo"
BAD = {
    "unknown-version": b"H0200102" + NAME,
    "unknown-type": b"H0100702" + NAME,
    "wrong-direction": b"H0100303" + NAME,
    "bad-count": b"H0100104" + NAME,
    "duplicate-packet": b"H0100102" + NAME + NAME,
    "unexpected-packet": b"H0100102" + NAME + b"P04" + ZEROS_29 + b"0011",
    "queue-not-first": b"H0100102P02" + b"0" * 29,
    "bad-start": b"X0100102",
    "bad-packet": b"H0100102" + NAME + b"Q02" + b"0" * 29,
    "bad-name": b"H0100102P01" + ZEROS_29 + b"001\xff" + b"P02" + b"0" * 29,
    "bad-size": b"H0100102P01" + ZEROS_29 + b"256" + b"n" * 256,
    "payload-too-large": b"H0100102" + NAME + b"P02" + b"%029d" % (16 * 2**20 + 1),
    "bad-line-end": b"H0100102\rP01",
    "bad-number": b"H0100102P01" + b"+" + b"0" * 27 + b"3Foo",
}


class TestErrors:
    """ "bad message: … protocol error, closed"; "one log line with peer, protocol, offset and reason"."""

    @pytest.mark.parametrize("code", BAD)
    def test_closed(self, rig: Rig, code: str) -> None:
        rig.phpmq().send(BAD[code]).expect_end()

    def test_a_line_in_the_log_for_each(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path, 'sspq = []\nkokaq = []\n[[phpmq]]\naddress = "127.0.0.1:0"') as broker:
            for message in BAD.values():
                broker.dial("phpmq").send(message).expect_end()
            lines = broker.events("protocol error")
        assert [line["code"] for line in lines] == list(BAD)
        assert all({"peer", "offset", "reason"} <= line.keys() and line["protocol"] == "phpmq" for line in lines)

    @pytest.mark.parametrize("digits", [b"+3", b"-3", b" 3", b"1_0", "٣".encode(), b""])
    def test_numbers_are_digits(self, rig: Rig, digits: bytes) -> None:
        """ "every byte must be `0`–`9`. No sign, space or underscore"."""
        rig.phpmq().send(phpmq(2, (1, b"q"), (4, digits))).expect_end()

    def test_what_came_before_is_kept(self, rig: Rig) -> None:
        """ "nothing that was already accepted is lost"."""
        rig.phpmq().send(publish(rig.name, b"good"), b"X").expect_end()
        rig.kokaq().wait_for_depth(rig.queue, 1)

    def test_003_from_a_client(self, rig: Rig) -> None:
        """ "003 from a client is an error"."""
        rig.phpmq().send(phpmq(3, (1, b"q"), (2, b""), (3, b"f" * 32))).expect_end()
