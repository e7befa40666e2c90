"""A broker with HTTP for each test module, and new queues for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.web import Api, WebBroker, path_of

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    with WebBroker(Path(tmp_path_factory.mktemp("broker"))) as found:
        yield found


@pytest.fixture
def api(broker: WebBroker) -> Api:
    return broker.api


@pytest.fixture
def queue(api: Api) -> str:
    """The full name of a new queue."""
    name = f"default/q{next(_numbers)}"
    api.do("PUT", f"queues/{path_of(name)}", {"rules": {"max_deliveries": 1}})
    return name
