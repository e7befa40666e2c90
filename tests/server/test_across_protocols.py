"""A message sent over one protocol is received over any other: every pair, and what each can tell of it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from server.conftest import House
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


def name_of(house: House) -> str:
    """The one queue that all three can reach: that of the SSPQ listener."""
    return house.sspq_name


def send_phpmq(house: House, payload: bytes) -> None:
    house.phpmq().send(publish(name_of(house), payload))


def send_sspq(house: House, payload: bytes) -> None:
    house.sspq().send(send(payload, 7))


def send_kokaq(house: House, payload: bytes) -> None:
    house.kokaq().push(f"default/{name_of(house)}", payload)


def receive_phpmq(house: House) -> bytes:
    peer = house.phpmq().send(consume(name_of(house), 1))
    found = read_dispatch(peer)
    peer.send(consume(name_of(house), 0), acknowledge(name_of(house), found.id)).close()
    return found.payload


def receive_sspq(house: House) -> bytes:
    peer = house.sspq().send(sspq(RECEIVE))
    peer.expect(b"\x55\x99\x5e")
    _, size = peer.read(1), int.from_bytes(peer.read(4), "big")
    payload = peer.read(size)
    peer.send(sspq(CONFIRM))
    return payload


def receive_kokaq(house: House) -> bytes:
    peer = house.kokaq()
    queue = f"default/{name_of(house)}"
    wait_for(lambda: peer.depth(queue))
    answer = peer.ask(ACQUIRE, queue)
    assert peer.ask(DELETE, None, b"", {UUID: answer.fields[UUID]}).outcome == SUCCESS_OK
    return answer.payload or b""


@pytest.mark.parametrize("receive", [receive_phpmq, receive_sspq, receive_kokaq])
@pytest.mark.parametrize("give", [send_phpmq, send_sspq, send_kokaq])
def test_every_pair(house: House, give: Callable[[House, bytes], None], receive: Callable[[House], bytes]) -> None:
    """ "A message sent over one protocol can be received over any other": any bytes, and none, once each."""
    for payload in (b"plain", b"", bytes(range(256)) * 200):
        give(house, payload)
        assert receive(house) == payload
    kokaq = house.kokaq()
    wait_for(lambda: kokaq.ask(DELETE, f"default/{name_of(house)}").outcome == SUCCESS_OK, "something was left over")


class TestIds:
    def test_phpmq_and_kokaq_show_the_same(self, house: House) -> None:
        kokaq = house.kokaq().make(house.queue)
        given, asked = kokaq.push(house.queue, b"a"), os.urandom(16)
        kokaq.push(house.queue, b"b", {UUID: asked})
        peer = house.phpmq().send(publish(house.name, b"c"), consume(house.name, 3))
        found = [read_dispatch(peer) for _ in range(3)]
        assert [each.id for each in found[:2]] == [given.hex().encode(), asked.hex().encode()]
        third = kokaq.ask(GET, house.queue, b"", {UUID: bytes.fromhex(found[2].id.decode())})
        assert third.payload == b"c"
        peer.send(*[acknowledge(house.name, each.id) for each in found])
        wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: asked}).outcome == FAIL_BAD)

    def test_a_lock_is_not_settled_by_another_protocol(self, house: House) -> None:
        kokaq = house.kokaq().make(house.queue)
        uuid = kokaq.push(house.queue, b"a")
        kokaq.ask(ACQUIRE, house.queue)
        house.phpmq().send(acknowledge(house.name, uuid.hex().encode()), publish(house.name, b"marker"))
        kokaq.wait_for_depth(house.queue, 1)
        assert kokaq.ask(DELETE, None, b"", {UUID: uuid}).outcome == SUCCESS_OK


class TestTimeToLive:
    def test_phpmq_to_kokaq(self, house: House) -> None:
        house.phpmq().send(publish(house.name, b"m", 100))
        kokaq = house.kokaq()
        wait_for(lambda: kokaq.ask(GET, house.queue).outcome == SUCCESS_OK)
        assert kokaq.ask(POP, house.queue).number(TTL) in (99, 100)

    def test_kokaq_to_phpmq(self, house: House) -> None:
        kokaq = house.kokaq().make(house.queue)
        kokaq.push(house.queue, b"m", {TTL: 100})
        kokaq.push(house.queue, b"n")
        peer = house.phpmq().send(consume(house.name, 2))
        assert [read_dispatch(peer).ttl in (99, 100), read_dispatch(peer).ttl] == [True, None]

    def test_sspq_never_expires(self, house: House) -> None:
        house.sspq().send(send(b"m"))
        kokaq, queue = house.kokaq(), f"default/{name_of(house)}"
        kokaq.wait_for_depth(queue, 1)
        assert TTL not in kokaq.ask(POP, queue).fields

    def test_it_expires_for_sspq_too(self, tcp_house: House) -> None:
        """What runs out over one protocol is a dead letter for the others."""
        tcp_house.phpmq().send(publish(name_of(tcp_house), b"m", 1))
        tcp_house.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"m", 255))


class TestPriorities:
    def test_all_protocols_give_higher_priorities_first(self, house: House) -> None:
        name = name_of(house)
        kokaq, queue = house.kokaq(), f"default/{name}"
        house.sspq().send(send(b"sspq", 3))
        kokaq.wait_for_depth(queue, 1)
        house.phpmq().send(publish(name, b"phpmq"))
        kokaq.wait_for_depth(queue, 2)
        kokaq.push(queue, b"urgent", {PRIORITY: 9})
        kokaq.push(queue, b"urgent too", {PRIORITY: 9})
        assert [receive_sspq(house), receive_phpmq(house)] == [b"urgent", b"urgent too"]
        assert [receive_kokaq(house), receive_sspq(house)] == [b"sspq", b"phpmq"]

    def test_a_requeue_stays_in_its_priority(self, house: House) -> None:
        """ "Re-queue goes to the end of its priority"."""
        kokaq = house.kokaq().make(house.queue)
        for payload, priority in [(b"a", 5), (b"b", 5), (b"c", 0)]:
            kokaq.push(house.queue, payload, {PRIORITY: priority})
        peer = house.phpmq().send(consume(house.name, 1))
        peer.send(requeue(house.name, read_dispatch(peer).id))
        read_dispatch(peer)
        peer.send(consume(house.name, 0)).close()
        kokaq.wait_for_depth(house.queue, 3)
        assert kokaq.pop_all(house.queue) == [b"b", b"a", b"c"]


class TestRetries:
    @pytest.mark.parametrize("give", [send_phpmq, send_kokaq])
    def test_other_protocols_have_255(self, house: House, give: Callable[[House, bytes], None]) -> None:
        """ "PHPMQ and Kokaq messages have retry counter 255"."""
        give(house, b"m")
        for _ in range(2):
            house.sspq().send(sspq(RECEIVE)).expect(send(b"m", 255)).close()

    def test_only_a_lost_sspq_connection_spends_one(self, house: House) -> None:
        """ "only a lost SSPQ connection spends one": a lost PHPMQ or Kokaq connection, a 005 and a release do not."""
        name, queue = name_of(house), f"default/{name_of(house)}"
        house.sspq().send(send(b"m", 2))
        peer = house.phpmq().send(consume(name, 1))
        peer.send(requeue(name, read_dispatch(peer).id))
        read_dispatch(peer)
        peer.close()
        kokaq = house.kokaq()
        kokaq.wait_for_depth(queue, 1)
        uuid = kokaq.ask(ACQUIRE, queue).fields[UUID]
        kokaq.ask(RELEASE, None, b"", {UUID: uuid})
        kokaq.ask(ACQUIRE, queue)
        kokaq.close()
        house.sspq().send(sspq(RECEIVE)).expect(send(b"m", 2)).close()
        house.sspq().send(sspq(RECEIVE)).expect(send(b"m", 1)).send(sspq(CONFIRM))

    def test_deliveries_are_counted_by_all(self, house: House) -> None:
        name, queue = name_of(house), f"default/{name_of(house)}"
        house.sspq().send(send(b"m", 255), sspq(RECEIVE)).expect(send(b"m", 255)).close()
        peer = house.phpmq().send(consume(name, 1))
        read_dispatch(peer)
        peer.close()
        kokaq = house.kokaq()
        kokaq.wait_for_depth(queue, 1)
        assert kokaq.ask(POP, queue).number(VERSION) == 3


class TestDeadLetters:
    def test_rejected_over_phpmq(self, house: House) -> None:
        """Rejected over PHPMQ, looked at over Kokaq, taken over SSPQ."""
        name = name_of(house)
        house.kokaq().push(f"default/{name}", b"bad")
        peer = house.phpmq().send(consume(name, 1))
        number = read_dispatch(peer).id
        peer.send(reject(name, number))
        kokaq, uuid = house.kokaq(), bytes.fromhex(number.decode())
        assert wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: uuid}).fields.get(DEAD_REASON)) == b"rejected"
        taker = house.sspq().send(sspq(DEAD_RECEIVE)).expect(send(b"bad", 255))
        taker.send(sspq(CONFIRM))
        wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: uuid}).outcome == FAIL_BAD)

    def test_retries_spent_over_sspq(self, house: House) -> None:
        queue = f"default/{name_of(house)}"
        house.sspq().send(send(b"m", 0))
        kokaq = house.kokaq()
        kokaq.wait_for_depth(queue, 1)
        uuid = kokaq.ask(4, queue).fields[UUID]
        house.sspq().send(sspq(RECEIVE)).expect(send(b"m", 0)).close()
        assert wait_for(lambda: kokaq.ask(GET, None, b"", {UUID: uuid}).fields.get(DEAD_REASON)) == b"retries"
