"""A real broker with its HTTP process, a real Chromium, and people with tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.brokers import PATIENCE, BrokerProcess
from support.browser import Watch, started
from support.console import Api, Visit


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser per file: Playwright keeps an event loop running in this thread, and other tests start their own."""
    expect.set_options(timeout=PATIENCE * 1000)
    with started() as browser:
        yield browser


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("console")
    with BrokerProcess(
        folder, http={"address": "127.0.0.1:0"}, admin_token_file=str(folder / "admin-token")
    ) as running:
        yield running


@pytest.fixture(scope="module")
def origin(broker: BrokerProcess) -> str:
    return f"http://{broker.address('http').rpartition('/')[2]}"


@pytest.fixture(scope="module")
def api(broker: BrokerProcess, origin: str) -> Api:
    return Api(origin, Path(broker.folder / "admin-token").read_text().strip())


@pytest.fixture
def watches() -> Iterator[list[Watch]]:
    """The watches of all pages of a test. At the end no page may have seen an unexpected error."""
    attached: list[Watch] = []
    yield attached
    for watch in attached:
        watch.check()


@pytest.fixture
def visit(chromium: Browser, origin: str, api: Api, watches: list[Watch]) -> Iterator[Visit]:
    """``visit("#/queues")`` opens a page in a browser context of its own, logged in with a token."""
    contexts = []

    def come(address: str = "#/overview", *, token: str | None = None, **options: Any) -> Page:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE * 1000)
        contexts.append(context)
        watches.append(Watch(context, origin))
        page = context.new_page()
        secret = api.token if token is None else token
        if secret:
            answer = context.request.post(
                f"{origin}/api/v1/session", data={"token": secret}, headers={"Origin": origin}
            )
            assert answer.ok, answer.text()
        page.goto(f"{origin}/{address}")
        return page

    yield come
    for context in contexts:
        context.close()
