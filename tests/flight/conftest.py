"""A broker with a Flight endpoint for each test file; some files run again with an ephemeral broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers import BrokerProcess
from support.flights import Flight

FREE = {"address": "127.0.0.1:0"}
#: Files whose tests also hold for an ephemeral broker.
BOTH = {"test_reading", "test_live", "test_leasing", "test_writing"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2] in BOTH:
        metafunc.parametrize("broker", ["on disk", "in memory"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    ephemeral = getattr(request, "param", "on disk") == "in memory"
    with BrokerProcess(tmp_path_factory.mktemp("broker"), flight=FREE, ephemeral=ephemeral) as live:
        yield live
        assert (live.folder / "data").exists() != ephemeral


@pytest.fixture(scope="module")
def flight(broker: BrokerProcess) -> Iterator[Flight]:
    with Flight(broker.addresses["flight"]) as client:
        yield client
