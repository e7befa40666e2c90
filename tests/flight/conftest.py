"""One broker with a Flight endpoint for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers import BrokerProcess
from support.flights import Flight

FREE = {"address": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), flight=FREE) as live:
        yield live


@pytest.fixture(scope="module")
def flight(broker: BrokerProcess) -> Iterator[Flight]:
    with Flight(broker.addresses["flight"]) as client:
        yield client
