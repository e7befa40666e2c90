"""Access rules at work: denied by the protocol's own means, and logged once. And listeners that refuse peers."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.serve import REFUSED
from penstock.server.protocols.kokaq.listener import KokaqListener
from penstock.server.protocols.phpmq.listener import PhpmqListener
from penstock.server.protocols.sspq.listener import SspqListener
from support.brokers import BrokerProcess
from support.good import PLAIN, Broker, broker_with
from support.raw import (
    ACQUIRE,
    CREATE,
    DEAD_RECEIVE,
    DELETE,
    FAIL_BAD,
    FAIL_NOT_ALLOWED,
    GET,
    NO_RECEIVE,
    NOP,
    PEEK,
    POP,
    PUSH,
    RECEIVE,
    SUCCESS_OK,
    UUID,
    consume,
    kokaq,
    publish,
    read_dispatch,
    send,
    sspq,
)

#: Every peer here may publish to a, consume from b, and administer the namespace mine.
RULES = """
[[access]]
network = "127.0.0.0/8"
may = ["publish"]
where = ["default/a", "default/shared"]
[[access]]
network = "127.0.0.0/8"
may = ["consume"]
where = ["default/b", "default/shared"]
[[access]]
network = "127.0.0.0/8"
may = ["administer"]
where = ["mine/*"]
[[access]]
network = "127.0.0.0/8"
may = ["consume"]
where = ["default/*-*-*-*-*-*-*-*-dlq"]
[queues."default/a"]
[queues."default/b"]
[queues."default/shared"]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    listeners = PLAIN.replace("[[sspq]]", '[[sspq]]\nqueue = "default/a"')
    listeners += '[[sspq]]\naddress = "127.0.0.1:0"\nqueue = "default/b"\n'
    with broker_with(tmp_path_factory.mktemp("broker"), tables=RULES, listeners=listeners) as broker:
        yield broker


def denials(broker: Broker) -> list[tuple[str, str, str]]:
    return [(line["protocol"], line["right"], line["queue"]) for line in broker.events("access denied")]


@pytest.fixture
def expected_denials(broker: Broker) -> Iterator[list[tuple[str, str, str]]]:
    """The test adds the denials that it expects; exactly these must be in the log."""
    before, expected = len(denials(broker)), list[tuple[str, str, str]]()
    yield expected
    assert denials(broker)[before:] == expected


def test_phpmq_is_closed(broker: Broker, expected_denials: list[tuple[str, str, str]]) -> None:
    broker.dial("phpmq").send(publish("b", b"x")).expect_end()
    broker.dial("phpmq").send(consume("a", 1)).expect_end()
    expected_denials += [("phpmq", "publish", "default/b"), ("phpmq", "consume", "default/a")]
    peer = broker.dial("phpmq").send(publish("shared", b"x"), consume("shared", 1))
    assert read_dispatch(peer).payload == b"x"


def test_sspq_is_answered_with_no_receive(broker: Broker, expected_denials: list[tuple[str, str, str]]) -> None:
    """Logged once for each kind of request, however often it is tried."""
    peer = broker.dial("sspq").send(sspq(RECEIVE) * 3, sspq(DEAD_RECEIVE)).expect(sspq(NO_RECEIVE) * 4)
    peer.send(send(b"x"), sspq(RECEIVE)).expect(sspq(NO_RECEIVE))
    expected_denials += [("sspq", "consume", "default/a"), ("sspq", "dead-letter", "default/a")]


def test_sspq_is_closed_on_a_send(broker: Broker, expected_denials: list[tuple[str, str, str]]) -> None:
    broker.dial("sspq", 1).send(send(b"x"), sspq(RECEIVE)).expect_end()
    expected_denials += [("sspq", "publish", "default/b")]


@pytest.mark.parametrize(
    ("opcode", "queue", "right"),
    [
        (PUSH, "default/b", "publish"),
        (POP, "default/a", "consume"),
        (PEEK, "default/a", "consume"),
        (ACQUIRE, "default/a", "consume"),
        (GET, "default/a", "consume"),
        (CREATE, "default/new", "administer"),
        (CREATE, "other/", "administer"),
        (DELETE, "default/a", "administer"),
        (PUSH, "default/no-such-queue", "publish"),
    ],
)
def test_kokaq_is_answered(
    broker: Broker, expected_denials: list[tuple[str, str, str]], opcode: int, queue: str, right: str
) -> None:
    peer = broker.kokaq()
    assert [peer.ask(opcode, queue).outcome for _ in range(3)] == [FAIL_NOT_ALLOWED] * 3
    assert peer.ask(NOP).outcome == SUCCESS_OK
    expected_denials += [("kokaq", right, queue)]


def test_a_run_of_kokaq_pushes_is_answered_one_by_one(
    broker: Broker, expected_denials: list[tuple[str, str, str]]
) -> None:
    peer = broker.kokaq()
    peer.send(kokaq(PUSH, "default/b", b"x") * 50, kokaq(NOP))
    assert [peer.read(12)[9] for _ in range(51)] == [FAIL_NOT_ALLOWED] * 50 + [SUCCESS_OK]
    expected_denials += [("kokaq", "publish", "default/b")]


@pytest.mark.parametrize("fields", [None, {1: 60}], ids=["plain", "with metadata"])
def test_a_one_way_push_is_closed(
    broker: Broker, expected_denials: list[tuple[str, str, str]], fields: dict[int, bytes | int] | None
) -> None:
    peer = broker.kokaq()
    peer.send(kokaq(PUSH, "default/b", b"x", fields, type_byte=0xC0), kokaq(NOP)).expect_end()
    expected_denials += [("kokaq", "publish", "default/b")]


def test_an_id_grants_no_access(broker: Broker, expected_denials: list[tuple[str, str, str]]) -> None:
    """With the right to publish only, a message can't be read by its ID, with or without the queue's name."""
    peer = broker.kokaq()
    uuid = peer.push("default/a", b"secret")
    assert peer.ask(GET, "default/a", fields={UUID: uuid}).outcome == FAIL_NOT_ALLOWED
    assert peer.ask(GET, None, fields={UUID: uuid}).outcome == FAIL_BAD  # as one that does not exist
    assert peer.ask(GET, "default/b", fields={UUID: uuid}).payload is None
    expected_denials += [("kokaq", "consume", "default/a")]


def test_a_name_that_nearly_fits_a_rule_is_matched_quickly(
    broker: Broker, expected_denials: list[tuple[str, str, str]]
) -> None:
    """Peers without rights choose the name, so no name may take the rules longer than another."""
    name = f"default/{'-' * 255}"
    assert broker.kokaq().ask(PEEK, name).outcome == FAIL_NOT_ALLOWED
    expected_denials += [("kokaq", "consume", name)]


def test_administrators_may_administer(broker: Broker, expected_denials: list[tuple[str, str, str]]) -> None:
    peer = broker.kokaq()
    steps = [(CREATE, "mine/"), (CREATE, "mine/q"), (DELETE, "mine/q"), (DELETE, "mine/")]
    assert [peer.ask(opcode, queue).outcome for opcode, queue in steps] == [SUCCESS_OK] * 4
    assert not expected_denials


def test_unix_peers_are_known_by_their_user(tmp_path: Path) -> None:
    rule = f'[[access]]\nuser = "{os.getuid()}"\nmay = ["publish", "consume"]\n'
    listeners = f'{rule}[[phpmq]]\naddress = "unix:{tmp_path}/s"\n[[phpmq]]\naddress = "127.0.0.1:0"\n'
    listeners += "".join(f'[[{each}]]\naddress = "unix:{tmp_path}/{each}"\n' for each in ("sspq", "kokaq"))
    with broker_with(tmp_path, listeners=listeners) as broker:
        peer = broker.dial("phpmq").send(publish("q", b"x"), consume("q", 1))
        assert read_dispatch(peer).payload == b"x"
        broker.dial("phpmq", 1).send(publish("q", b"x")).expect_end()


# Listeners


def test_a_socket_file_is_for_its_user_and_group_and_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()  # as a crash leaves it
    with broker_with(tmp_path, listeners=PLAIN.replace("127.0.0.1:0", f"unix:{path}", 1)) as broker:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        broker.dial("phpmq").send(publish("q", b"x"))
    assert not path.exists()


@pytest.mark.parametrize("what", ["a file", "a link", "a broker"])
def test_a_foreign_file_at_the_address_is_kept(tmp_path: Path, what: str) -> None:
    path = tmp_path / "s"
    listening = socket.socket(socket.AF_UNIX)
    if what == "a file":
        path.write_text("precious")
    elif what == "a link":
        path.symlink_to(tmp_path / "precious")
    else:
        listening.bind(str(path))
        listening.listen()
    broker = BrokerProcess(tmp_path, PLAIN.replace("127.0.0.1:0", f"unix:{path}", 1))
    with pytest.raises(AssertionError, match=r"is not a socket|another process already listens"):
        broker.start()
    assert broker.ended() == REFUSED
    assert os.path.lexists(path)
    listening.close()


@pytest.mark.parametrize("address", ["0.0.0.0:9100", "[::]:9100", "192.0.2.1:9100", "example.org:9100"])
def test_remote_listening_without_tls_is_refused(address: str) -> None:
    for listeners in (
        {"phpmq": [PhpmqListener(address=address)]},
        {"sspq": [SspqListener(address=address)]},
        {"kokaq": [KokaqListener(address=address)]},
    ):
        with pytest.raises(ValueError, match="insecure"):
            BrokerOptions(**listeners)
        BrokerOptions(**listeners, insecure_bind=True)
    BrokerOptions(phpmq=[PhpmqListener(address=address, tls_certificate="c.pem")])


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/tmp/x"])
def test_local_listening_needs_no_tls(address: str) -> None:
    BrokerOptions(phpmq=[PhpmqListener(address=address)])


def test_ipv6(tmp_path: Path) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    with broker_with(tmp_path, listeners=PLAIN.replace("127.0.0.1", "[::1]")) as broker:
        peer = broker.dial("phpmq").send(publish("q", b"x"), consume("q", 1))
        assert read_dispatch(peer).payload == b"x"
