"""``penstock readers`` and ``penstock writers``, with real readers and writers over Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.commands import Outcome, penstock_here
from support.flights import Flight
from support.web import WebBroker

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    with WebBroker(tmp_path_factory.mktemp("broker"), flight="127.0.0.1:0", queues={"default/q": {}}) as live:
        yield live


@pytest.fixture
def run(broker: WebBroker) -> Run:
    """Run a command as an admin."""
    where = [f"--url={broker.addresses['http']}", f"--token-file={broker.folder / 'admin-token'}"]
    return lambda *arguments: penstock_here(*arguments, *where)


def test_readers(broker: WebBroker, run: Run) -> None:
    with Flight(broker.addresses["flight"]) as flight:
        flight.act("progress", reader="nightly", queue="default/sspq", position=1, pin=True)
        flight.act("progress", reader="sülze", view="events", position=1)
    listed = run("readers", "list")
    lines = [line.split() for line in listed.out.splitlines()]
    assert listed.code == 0
    assert lines[0][:4] == ["READER", "VIEW", "OF", "POSITION"]
    assert ["nightly", "messages", "default/sspq", "1", "0", "0.0", "-", "0", "yes"] in [line[:9] for line in lines]
    assert ["sülze", "events", "*"] in [line[:3] for line in lines]
    found = {row["name"]: row for row in run("readers", "list", "--json").json}
    assert found["nightly"]["pin"] is True
    assert found["sülze"]["lag_rows"] > 0
    first = run("readers", "list", "--limit=1")
    assert "1 of 2; there are more" in first.err
    assert run("readers", "forget", "nightly").code == 0
    assert run("readers", "forget", "nightly").code == 4
    assert run("readers", "forget", "sülze", "--json").json == [{"reader": "sülze", "known": True}]
    assert run("readers", "list") == (0, "", "there are no readers\n")


def test_writers(broker: WebBroker, run: Run) -> None:
    with Flight(broker.addresses["flight"]) as flight:
        for name in ("nightly", "hourly"):
            flight.write([pa.record_batch({"payload": ["x"]})], writer=name, queue="default/q", epoch=4)
    listed = run("writers", "list")
    lines = [line.split() for line in listed.out.splitlines()]
    assert (listed.code, lines[0]) == (0, ["WRITER", "OWNER", "EPOCH", "PARTITIONS", "SEEN"])
    assert [line[:4] for line in lines[1:]] == [[name, "-", "4", "1"] for name in ("hourly", "nightly")]
    [first, _] = run("writers", "list", "--json").json
    assert (first["name"], first["owner"], first["epoch"], first["partitions"]) == ("hourly", "", 4, 1)
    assert run("writers", "drop", "nightly").code == 0
    assert run("writers", "drop", "nightly").code == 4
    assert run("writers", "drop", "hourly", "--json").json == [{"writer": "hourly", "known": True}]
    assert run("writers", "list") == (0, "", "no writer is remembered\n")


def test_a_token_without_the_right(broker: WebBroker, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(broker.api.token_for("viewer", ["view"], ["default/*"]).token)
    refused = penstock_here("readers", "list", f"--url={broker.addresses['http']}", f"--token-file={file}")
    assert refused.code == 3
