"""A message sent over one protocol is received over any other: every pair, and the metadata that each can carry."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from server.conftest import Rig
from support.brokers import wait_for
from support.raw import (
    ACQUIRE,
    CONFIRM,
    DEAD_REASON,
    DEAD_RECEIVE,
    DELETE,
    FAIL_BAD,
    GET,
    POP,
    PRIORITY,
    RECEIVE,
    RELEASE,
    SUCCESS_OK,
    TTL,
    UUID,
    VERSION,
    acknowledge,
    consume,
    publish,
    read_dispatch,
    reject,
    requeue,
    send,
    sspq,
)


def name_of(rig: Rig) -> str:
    """The only queue that all three can reach: the SSPQ listener's."""
    return rig.sspq_name


def send_phpmq(rig: Rig, payload: bytes) -> None:
    rig.phpmq().send(publish(name_of(rig), payload))


def send_sspq(rig: Rig, payload: bytes) -> None:
    rig.sspq().send(send(payload, 7))


def send_kokaq(rig: Rig, payload: bytes) -> None:
    rig.kokaq().push(f"default/{name_of(rig)}", payload)


def receive_phpmq(rig: Rig) -> bytes:
    peer = rig.phpmq().send(consume(name_of(rig), 1))
    message = read_dispatch(peer)
    peer.send(consume(name_of(rig), 0), acknowledge(name_of(rig), message.id)).close()
    return message.payload


def receive_sspq(rig: Rig) -> bytes:
    peer = rig.sspq().send(sspq(RECEIVE))
    peer.expect(b"\x55\x99\x5e")
    _, size = peer.read(1), int.from_bytes(peer.read(4), "big")
    payload = peer.read(size)
    peer.send(sspq(CONFIRM))
    return payload


def receive_kokaq(rig: Rig) -> bytes:
    peer = rig.kokaq()
    queue = f"default/{name_of(rig)}"
    wait_for(lambda: peer.depth(queue))
    answer = peer.ask(ACQUIRE, queue)
    assert peer.ask(DELETE, None, b"", {UUID: answer.fields[UUID]}).outcome == SUCCESS_OK
    return answer.payload or b""


@pytest.mark.parametrize("receive", [receive_phpmq, receive_sspq, receive_kokaq])
@pytest.mark.parametrize("give", [send_phpmq, send_sspq, send_kokaq])
def test_every_pair(rig: Rig, give: Callable[[Rig, bytes], None], receive: Callable[[Rig], bytes]) -> None:
    """ "A message sent over one protocol can be received over any other": any payload, including an empty one, once."""
    for payload in (b"plain", b"", bytes(range(256)) * 200):
        give(rig, payload)
        assert receive(rig) == payload
    kokaq = rig.kokaq()
    wait_for(lambda: kokaq.ask(DELETE, f"default/{name_of(rig)}").outcome == SUCCESS_OK, "something was left over")


class TestIds:
    def test_phpmq_and_kokaq_show_the_same(self, rig: Rig) -> None:
        kokaq = rig.kokaq().make(rig.queue)
        given, chosen = kokaq.push(rig.queue, b"a"), os.urandom(16)
        kokaq.push(rig.queue, b"b", {UUID: chosen})
        peer = rig.phpmq().send(publish(rig.name, b"c"), consume(rig.name, 3))
        messages = [read_dispatch(peer) for _ in range(3)]
        assert [each.id for each in messages[:2]] == [given.hex().encode(), chosen.hex().encode()]
        third = kokaq.ask(GET, rig.queue, b"", {UUID: bytes.fromhex(messages[2].id.decode())})
        assert third.payload == b"c"
        peer.send(*[acknowledge(rig.name, each.id) for each in messages])
        wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: chosen}).outcome == FAIL_BAD)

    def test_a_lock_is_not_settled_by_another_protocol(self, rig: Rig) -> None:
        kokaq = rig.kokaq().make(rig.queue)
        uuid = kokaq.push(rig.queue, b"a")
        kokaq.ask(ACQUIRE, rig.queue)
        rig.phpmq().send(acknowledge(rig.name, uuid.hex().encode()), publish(rig.name, b"marker"))
        kokaq.wait_for_depth(rig.queue, 1)
        assert kokaq.ask(DELETE, None, b"", {UUID: uuid}).outcome == SUCCESS_OK


class TestTimeToLive:
    def test_phpmq_to_kokaq(self, rig: Rig) -> None:
        rig.phpmq().send(publish(rig.name, b"m", 100))
        kokaq = rig.kokaq()
        wait_for(lambda: kokaq.ask(GET, rig.queue).outcome == SUCCESS_OK)
        assert kokaq.ask(POP, rig.queue).number(TTL) in (99, 100)

    def test_kokaq_to_phpmq(self, rig: Rig) -> None:
        kokaq = rig.kokaq().make(rig.queue)
        kokaq.push(rig.queue, b"m", {TTL: 100})
        kokaq.push(rig.queue, b"n")
        peer = rig.phpmq().send(consume(rig.name, 2))
        assert [read_dispatch(peer).ttl in (99, 100), read_dispatch(peer).ttl] == [True, None]

    def test_sspq_never_expires(self, rig: Rig) -> None:
        rig.sspq().send(send(b"m"))
        kokaq, queue = rig.kokaq(), f"default/{name_of(rig)}"
        kokaq.wait_for_depth(queue, 1)
        assert TTL not in kokaq.ask(POP, queue).fields

    def test_it_expires_for_sspq_too(self, tcp_rig: Rig) -> None:
        """A message that expires over one protocol is a dead letter for the others."""
        tcp_rig.phpmq().send(publish(name_of(tcp_rig), b"m", 1))
        tcp_rig.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"m", 255))


class TestPriorities:
    def test_all_protocols_give_higher_priorities_first(self, rig: Rig) -> None:
        name = name_of(rig)
        kokaq, queue = rig.kokaq(), f"default/{name}"
        rig.sspq().send(send(b"sspq", 3))
        kokaq.wait_for_depth(queue, 1)
        rig.phpmq().send(publish(name, b"phpmq"))
        kokaq.wait_for_depth(queue, 2)
        kokaq.push(queue, b"urgent", {PRIORITY: 9})
        kokaq.push(queue, b"urgent too", {PRIORITY: 9})
        assert [receive_sspq(rig), receive_phpmq(rig)] == [b"urgent", b"urgent too"]
        assert [receive_kokaq(rig), receive_sspq(rig)] == [b"sspq", b"phpmq"]

    def test_a_requeue_stays_in_its_priority(self, rig: Rig) -> None:
        """ "Re-queue goes to the end of its priority"."""
        kokaq = rig.kokaq().make(rig.queue)
        for payload, priority in [(b"a", 5), (b"b", 5), (b"c", 0)]:
            kokaq.push(rig.queue, payload, {PRIORITY: priority})
        peer = rig.phpmq().send(consume(rig.name, 1))
        peer.send(requeue(rig.name, read_dispatch(peer).id))
        read_dispatch(peer)
        peer.send(consume(rig.name, 0)).close()
        kokaq.wait_for_depth(rig.queue, 3)
        assert kokaq.pop_all(rig.queue) == [b"b", b"a", b"c"]


class TestRetries:
    @pytest.mark.parametrize("give", [send_phpmq, send_kokaq])
    def test_other_protocols_have_255(self, rig: Rig, give: Callable[[Rig, bytes], None]) -> None:
        """ "PHPMQ and Kokaq messages have retry counter 255"."""
        give(rig, b"m")
        for _ in range(2):
            rig.sspq().send(sspq(RECEIVE)).expect(send(b"m", 255)).close()

    def test_only_a_lost_sspq_connection_spends_one(self, rig: Rig) -> None:
        """ "only a lost SSPQ connection spends one": a lost PHPMQ or Kokaq connection, a 005 and a release do not."""
        name, queue = name_of(rig), f"default/{name_of(rig)}"
        rig.sspq().send(send(b"m", 2))
        peer = rig.phpmq().send(consume(name, 1))
        peer.send(requeue(name, read_dispatch(peer).id))
        read_dispatch(peer)
        peer.close()
        kokaq = rig.kokaq()
        kokaq.wait_for_depth(queue, 1)
        uuid = kokaq.ask(ACQUIRE, queue).fields[UUID]
        kokaq.ask(RELEASE, None, b"", {UUID: uuid})
        kokaq.ask(ACQUIRE, queue)
        kokaq.close()
        rig.sspq().send(sspq(RECEIVE)).expect(send(b"m", 2)).close()
        rig.sspq().send(sspq(RECEIVE)).expect(send(b"m", 1)).send(sspq(CONFIRM))

    def test_deliveries_are_counted_by_all(self, rig: Rig) -> None:
        name, queue = name_of(rig), f"default/{name_of(rig)}"
        rig.sspq().send(send(b"m", 255), sspq(RECEIVE)).expect(send(b"m", 255)).close()
        peer = rig.phpmq().send(consume(name, 1))
        read_dispatch(peer)
        peer.close()
        kokaq = rig.kokaq()
        kokaq.wait_for_depth(queue, 1)
        assert kokaq.ask(POP, queue).number(VERSION) == 3


class TestDeadLetters:
    def test_rejected_over_phpmq(self, rig: Rig) -> None:
        """Rejected over PHPMQ, inspected over Kokaq, received over SSPQ."""
        name = name_of(rig)
        rig.kokaq().push(f"default/{name}", b"bad")
        peer = rig.phpmq().send(consume(name, 1))
        number = read_dispatch(peer).id
        peer.send(reject(name, number))
        kokaq, uuid = rig.kokaq(), bytes.fromhex(number.decode())
        assert wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: uuid}).fields.get(DEAD_REASON)) == b"rejected"
        taker = rig.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"bad", 255))
        taker.send(sspq(CONFIRM))
        wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: uuid}).outcome == FAIL_BAD)

    def test_retries_spent_over_sspq(self, rig: Rig) -> None:
        queue = f"default/{name_of(rig)}"
        rig.sspq().send(send(b"m", 0))
        kokaq = rig.kokaq()
        kokaq.wait_for_depth(queue, 1)
        uuid = kokaq.ask(4, queue).fields[UUID]
        rig.sspq().send(sspq(RECEIVE)).expect(send(b"m", 0)).close()
        assert wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: uuid}).fields.get(DEAD_REASON)) == b"retries"
