"""``penstock writers``, against a real endpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.brokers import BrokerProcess
from support.commands import penstock
from support.flights import Flight


def rule(token: str, *may: str) -> dict[str, object]:
    return {"token_sha256": hashlib.sha256(token.encode()).hexdigest(), "name": f"the {token}", "may": list(may)}


RULES = [rule("job", "publish"), rule("other", "publish"), rule("boss", "administer"), rule("reader", "read")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options: dict[str, Any] = {"flight": {"address": "127.0.0.1:0"}, "access": RULES, "queues": {"default/q": {}}}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), **options) as live:
        yield live


def who(broker: BrokerProcess, folder: Path, token: str) -> list[str]:
    (folder / token).write_text(f"{token}\n")
    return [f"--endpoint={broker.addresses['flight']}", f"--token-file={folder / token}"]


def test_list_and_drop(broker: BrokerProcess, tmp_path: Path) -> None:
    job, other, boss = (who(broker, tmp_path, token) for token in ("job", "other", "boss"))
    with Flight(broker.addresses["flight"], token="job") as flight:
        for name in ("nightly", "hourly"):
            flight.write([pa.record_batch({"payload": ["x"]})], writer=name, queue="default/q", epoch=4)
    code, out, _ = penstock("writers", "list", *boss)
    lines = [line.split() for line in out.splitlines()]
    assert (code, lines[0]) == (0, ["WRITER", "OWNER", "EPOCH", "PARTITIONS", "SEEN"])
    assert [line[:5] for line in lines[1:]] == [[name, "the", "job", "4", "1"] for name in ("hourly", "nightly")]
    [first, _] = penstock("writers", "list", "--json", *job).json
    assert (first["name"], first["owner"], first["epoch"], first["partitions"]) == ("hourly", "the job", 4, 1)
    assert penstock("writers", "list", "--json", *other).json == []
    code, _, err = penstock("writers", "drop", "nightly", *other)
    assert (code, "belongs to another identity" in err) == (3, True)
    assert penstock("writers", "drop", "nightly", *job).code == 0
    assert penstock("writers", "drop", "nightly", *job).code == 4
    assert penstock("writers", "drop", "hourly", "--json", *boss).json == [{"writer": "hourly", "known": True}]
    code, out, err = penstock("writers", "list", *boss)
    assert (code, out, err) == (0, "", "no writer is remembered\n")


def test_who_may_not_publish_has_no_writers(broker: BrokerProcess, tmp_path: Path) -> None:
    code, _, err = penstock("writers", "list", *who(broker, tmp_path, "reader"))
    assert (code, "publish or administer" in err) == (3, True)
