"""Brokers whose database refuses them for a while: both the serving one and the standby survive."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock.core.broker import Broker as CoreBroker
from penstock.demo.postgresql import Server
from penstock.journal.errors import LogAway
from penstock.server.admin.tokens import TokenStore
from penstock.server.logs import Logger
from penstock.server.registry.readers import ReaderTable
from server.test_take_over import Broker, brokers, http, push, taken
from support.brokers import FREE, wait_for
from support.roles import END, Role, role_of

#: The text in the log, once per outage, and in ``/readyz``.
TURNED_AWAY = "the journal is not available: trying again"
DENIED = "turns"


@pytest.fixture
def role(postgres: Server) -> Iterator[Role]:
    """A role that is dropped after the test."""
    with role_of(postgres, "turned_away") as role:
        yield role


#: Statements that cause an outage, and those that end it.
TROUBLES = {
    "rights": (
        ["revoke all on all tables in schema penstock from {role}"],
        ["grant all on all tables in schema penstock to {role}"],
    ),
    "login": (["alter role {role} nologin", END], ["alter role {role} login"]),
    "password": (["alter role {role} password 'wrong'", END], ["alter role {role} password 'right'"]),
    "read-only": (
        ["alter role {role} set default_transaction_read_only = on", END],
        ["alter role {role} reset default_transaction_read_only"],
    ),
}


@contextmanager
def trouble(role: Role, name: str) -> Iterator[None]:
    """Cause an outage."""
    begin, end = TROUBLES[name]
    for statement in begin:
        role.execute(statement)
    try:
        yield
    finally:
        for statement in end:
            role.execute(statement)


def denied(broker: Broker) -> bool:
    """Whether it reports that the database refuses it."""
    status, state = http(broker, "/readyz")
    return status == 503 and any(DENIED in reason for reason in state["reasons"])


def in_order(pair: list[Broker]) -> bool:
    """Whether one serves and the other stands by."""
    states = [http(broker, "/readyz")[1] for broker in pair]
    return (
        sorted(each["role"] for each in states) == ["serving", "standby"]
        and [each["ok"] for each in states].count(True) == 1
    )


def serving(pair: list[Broker]) -> Broker:
    """The serving broker."""
    broker = next(broker for broker in pair if http(broker, "/readyz")[0] == 200)
    broker.wait_for_role("serving")
    return broker


def test_a_database_that_turns_brokers_away_ends_none_of_them(tmp_path: Path, role: Role) -> None:
    with brokers(tmp_path, role.url, http=FREE) as pair:
        for name in TROUBLES:
            push(serving(pair), name.encode())
            with trouble(role, name):
                for broker in pair:
                    wait_for(partial(denied, broker), f"{name}: it does not say so")
            wait_for(lambda: in_order(pair), f"{name}: neither broker serves", 60)
            assert all(broker.process is not None and broker.process.poll() is None for broker in pair), name
        assert taken(serving(pair)) == [name.encode() for name in TROUBLES]
        for broker in pair:
            assert len(broker.events(TURNED_AWAY)) <= 2 * len(TROUBLES), "logged once, not at each attempt"


def test_a_broker_starts_while_its_password_is_wrong(tmp_path: Path, role: Role) -> None:
    with trouble(role, "password"), Broker(tmp_path, journal={"url": role.url}, http=FREE) as broker:
        broker.wait_for_role("standby")
        assert denied(broker)
        role.execute("alter role {role} password 'right'")
        broker.wait_for_role("serving")
        push(broker, b"one")


def test_a_broker_serves_while_the_database_has_no_connection_for_its_flight_endpoint(
    tmp_path: Path, role: Role
) -> None:
    role.execute("alter role {role} connection limit 2")
    with Broker(tmp_path, journal={"url": role.url}, flight=FREE) as broker:
        broker.wait_for_role("serving")
        push(broker, b"one")
        [failed] = broker.events("the Flight endpoint does not start")[:1]
        assert "too many connections" in failed["reason"]
        role.execute("alter role {role} connection limit -1")
        wait_for(lambda: broker.events("the Flight endpoint is ready"))


class Away:
    """The stored values of a database that does not answer."""

    def get(self, name: str) -> bytes | None:
        raise LogAway("not now")

    def put(self, name: str, value: bytes) -> None:
        raise AssertionError("nothing is changed")

    def delete(self, name: str) -> None:
        self.put(name, b"")

    def set_aside(self, name: str) -> None:
        self.put(name, b"")


def test_readers_and_tokens_that_can_not_be_read_now_are_kept() -> None:
    with pytest.raises(LogAway):
        ReaderTable(Logger(io.StringIO()), CoreBroker(), Away())
    with pytest.raises(LogAway):
        TokenStore(Away())
