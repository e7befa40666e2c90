"""Real brokers with their Flight endpoint. The Spark session is shared with all other tests: see tests/conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from support.sparks import SparkBroker


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., SparkBroker]]:
    """Starts brokers, each in a folder of its own, and stops them at the end."""
    brokers: list[SparkBroker] = []

    def start(name: str = "broker", **options: object) -> SparkBroker:
        broker = SparkBroker(tmp_path / name, **options)
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.stop()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBroker]:
    """A broker shared by all tests that only use queues of their own."""
    with SparkBroker(tmp_path_factory.mktemp("broker")) as live:
        yield live


_numbers = count(1)


@pytest.fixture
def queue() -> str:
    """A name that no other test uses."""
    return f"q{next(_numbers)}"
