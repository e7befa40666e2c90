"""``penstock readers``, against a real endpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers import BrokerProcess
from support.commands import penstock
from support.flights import Flight

RULES = [
    {"token_sha256": hashlib.sha256(b"boss").hexdigest(), "may": ["read", "administer"], "where": ["*"]},
    {"token_sha256": hashlib.sha256(b"reader").hexdigest(), "may": ["read"], "where": ["*"]},
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), flight={"address": "127.0.0.1:0"}, access=RULES) as live:
        yield live


@pytest.fixture
def report(broker: BrokerProcess) -> None:
    """Two readers, one of which has a name that a terminal must not obey."""
    with Flight(broker.addresses["flight"], token="boss") as flight:
        flight.act("progress", reader="nightly", queue="default/sspq", position=1, pin=True)
        flight.act("progress", reader="sülze", view="events", position=1)


@pytest.fixture
def who(broker: BrokerProcess, tmp_path: Path) -> list[str]:
    """The options of somebody who may do everything."""
    (tmp_path / "token").write_text("boss\n")
    return [f"--endpoint={broker.addresses['flight']}", f"--token-file={tmp_path / 'token'}"]


@pytest.mark.usefixtures("report")
class TestReaders:
    def test_list(self, who: list[str]) -> None:
        code, out, _ = penstock("readers", "list", *who)
        lines = [line.split() for line in out.splitlines()]
        assert code == 0
        assert lines[0][:4] == ["READER", "VIEW", "OF", "POSITION"]
        assert ["nightly", "messages", "default/sspq", "1", "0", "0.0", "-", "0", "yes"] in [line[:9] for line in lines]
        assert ["sülze", "events", "*"] in [line[:3] for line in lines]

    def test_as_json(self, who: list[str]) -> None:
        found = {row["name"]: row for row in penstock("readers", "list", "--json", *who).json}
        assert found["nightly"]["pin"] is True
        assert found["sülze"]["lag_rows"] > 0

    def test_forget(self, who: list[str]) -> None:
        assert penstock("readers", "forget", "nightly", *who).code == 0
        assert penstock("readers", "forget", "nightly", *who).code == 4
        assert penstock("readers", "forget", "sülze", "--json", *who).json == [{"reader": "sülze", "known": True}]
        several = [each.replace("--endpoint=", "--endpoint=grpc://127.0.0.1:1,") for each in who]
        code, out, err = penstock("readers", "list", *several)
        assert (code, out, err) == (0, "", "there are no readers\n")


class TestProblems:
    def test_nobody_there(self) -> None:
        code, _, err = penstock("readers", "list", "--endpoint=grpc://127.0.0.1:1")
        assert code == 1
        assert "grpc://127.0.0.1:1 does not answer" in err
        code, _, err = penstock("readers", "list", "--endpoint=grpc://127.0.0.1:1,grpc://127.0.0.1:2")
        assert (code, "grpc://127.0.0.1:1,grpc://127.0.0.1:2 does not answer" in err) == (1, True)

    @pytest.mark.parametrize("endpoint", ["nonsense", "http://127.0.0.1:1", "grpc://"])
    def test_no_endpoint(self, endpoint: str) -> None:
        code, _, err = penstock("readers", "list", f"--endpoint={endpoint}")
        assert code in (1, 2)
        assert endpoint in err
        assert "Traceback" not in err

    def test_wrong_token(self, broker: BrokerProcess, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("wrong")
        where = [f"--endpoint={broker.addresses['flight']}", f"--token-file={tmp_path / 'token'}"]
        code, _, err = penstock("readers", "list", *where)
        assert (code, "do not know this token" in err) == (3, True)

    @pytest.mark.usefixtures("report")
    def test_no_right_to_forget(self, broker: BrokerProcess, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("reader")
        where = [f"--endpoint={broker.addresses['flight']}", f"--token-file={tmp_path / 'token'}"]
        assert penstock("readers", "list", *where).code == 0
        code, _, err = penstock("readers", "forget", "nightly", *where)
        assert (code, "belongs to another identity" in err) == (3, True)
