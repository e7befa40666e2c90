"""The page of Spark's readers, writers and pipelines, with a broker that has a Flight endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from support.brokers import BrokerProcess
from support.console import Api, Visit
from support.flights import Flight


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("pipelines")
    free, token = {"address": "127.0.0.1:0"}, str(folder / "admin-token")
    with BrokerProcess(folder, http=free, flight=free, admin_token_file=token) as running:
        yield running


def test_a_reader_is_shown_with_its_lag_and_forgotten_with_its_name_typed(
    visit: Visit, api: Api, broker: BrokerProcess
) -> None:
    api.make("read", "q")
    api.publish("read", "q", *["x"] * 5)
    with Flight(broker.addresses["flight"], token=api.token_for("spark", "read")) as flight:
        flight.act("progress", reader="nightly", queue="read/q", position=1)
    page = visit("#/pipelines")
    row = page.get_by_role("row", name="nightly")
    expect(row).to_contain_text("rows")
    row.get_by_role("button", name="Forget…").click()
    page.get_by_label("Type nightly to confirm").fill("nightly")
    page.get_by_role("button", name="Forget it").click()
    expect(page.get_by_text("No readers")).to_be_visible()
    assert api.get("readers")["items"] == []
    for text in ("No pipelines", "No leases", "No writers"):
        expect(page.get_by_text(text)).to_be_visible()
