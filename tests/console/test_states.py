"""What the console does when something is wrong: no login, no right, no broker, two people at once."""

from __future__ import annotations

import re
import signal

import pytest
from playwright.sync_api import expect

from penstock.admin.assets import POLICY, assets
from support.brokers import BrokerProcess
from support.browser import Watch
from support.console import Api, Visit


def test_logging_in_with_a_token_and_out_again(visit: Visit, api: Api, watches: list[Watch]) -> None:
    page = visit("#/queues", token="")
    watches[0].expected += ["401"]
    page.get_by_label("Token").fill("not-a-token")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("This token is unknown")).to_be_visible()
    page.get_by_label("Token").fill(api.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")  # the page requested before the login
    [cookie] = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    page.get_by_role("button", name="Log out").first.click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []


def test_a_login_link_logs_in_and_leaves_the_address(visit: Visit, api: Api) -> None:
    page = visit(f"#/login?token={api.token}", token="")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert api.token not in page.url


def test_a_viewer_is_offered_no_actions(visit: Visit, api: Api, watches: list[Watch]) -> None:
    api.make("seen", "only")
    api.publish("seen", "only", "x")
    page = visit("#/queue/seen/only", token=api.token_for("viewer", "view"))
    expect(page.get_by_role("button", name=re.compile("^Message "))).to_be_visible()
    for name in ("Publish", "Pause", "Purge", "Delete", "Move…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.goto(page.url.partition("#")[0] + "#/admin/tokens")
    expect(page.get_by_text("Access denied")).to_be_visible()
    page.goto(page.url.partition("#")[0] + "#/queue/seen/only/rules")
    expect(page.get_by_label("Maximum messages")).to_be_disabled()


def test_a_caller_limited_to_some_queues_sees_what_is_hidden(visit: Visit, api: Api, watches: list[Watch]) -> None:
    api.make("mine", "a")
    api.make("theirs", "b")
    body = {"name": "some", "may": ["view"], "where": ["mine/*"]}
    page = visit("#/queues", token=api.call("POST", "tokens", body=body)["token"])
    watches[0].expected += ["403"]
    expect(page.get_by_role("rowheader", name="mine/a")).to_be_visible()
    expect(page.get_by_role("rowheader", name="theirs/b")).to_have_count(0)
    page.goto(page.url.partition("#")[0] + "#/connections")
    expect(page.get_by_role("alert").get_by_text("Access denied")).to_be_visible()


def test_a_revoked_token_ends_at_the_login(visit: Visit, api: Api, watches: list[Watch]) -> None:
    page = visit("#/queues", token=api.token_for("soon gone", "view"))
    watches[0].expected += ["401"]
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    [token] = [each for each in api.get("tokens")["items"] if each["name"] == "soon gone"]
    api.call("DELETE", "tokens", token["id"])
    expect(page.get_by_label("Token")).to_be_visible()


def test_missing_things_are_reported(visit: Visit, watches: list[Watch]) -> None:
    page = visit("#/queue/no/where")
    watches[0].expected += ["404"]
    expect(page.get_by_role("alert").get_by_text("Not found")).to_be_visible()
    page.goto(page.url.partition("#")[0] + "#/nonsense")
    expect(page.get_by_text("There is no such page")).to_be_visible()


@pytest.mark.parametrize("cursor", ["nonsense", "eyJ4IjoxfQ"])
def test_an_invalid_cursor_is_reported(visit: Visit, watches: list[Watch], cursor: str) -> None:
    page = visit(f"#/queues?cursor={cursor}")
    watches[0].expected += ["400"]
    expect(page.get_by_role("alert")).to_be_visible()


def test_two_people_change_one_queue_and_nothing_is_lost(visit: Visit, api: Api, watches: list[Watch]) -> None:
    api.make("both", "q")
    one, other = visit("#/queue/both/q/rules"), visit("#/queue/both/q/rules")
    for watch in watches:
        watch.expected += ["412"]
    one.get_by_label("Maximum messages").fill("111")
    other.get_by_label("Maximum bytes").fill("222")
    one.get_by_role("button", name="Save").click()
    expect(one.get_by_text("Changed the configuration of both/q.")).to_be_visible()
    expect(other.get_by_text("Somebody else has changed this configuration.")).to_be_visible()
    other.get_by_role("button", name="Save").click()
    rules = api.queue("both", "q")["rules"]
    assert (rules["max_depth"], rules["max_bytes"]) == (111, 0)  # not silently overwritten
    other.get_by_role("button", name="Load the current configuration").click()
    expect(other.get_by_label("Maximum messages")).to_have_value("111")
    other.get_by_label("Maximum bytes").fill("222")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_text("Changed the configuration of both/q.")).to_be_visible()
    rules = api.queue("both", "q")["rules"]
    assert (rules["max_depth"], rules["max_bytes"]) == (111, 222)
    expect(one.get_by_label("Maximum bytes")).to_have_value("222")  # the first person's page updates by itself


def test_an_open_page_survives_a_restart_of_the_broker(
    visit: Visit, api: Api, broker: BrokerProcess, watches: list[Watch]
) -> None:
    api.make("kept", "q")
    api.publish("kept", "q", "survives")
    page = visit("#/queue/kept/q")
    watches[0].expected += ["ERR_", "401", "503"]
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Message "))).to_be_visible()
    broker.stop()
    try:
        expect(page.get_by_text("No connection to the broker.")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("^Message "))).to_be_visible()  # the data shown so far stays
    finally:
        broker.start()
    api.publish("kept", "q", "after")
    token = page.get_by_label("Token")
    expect(token.or_(page.get_by_role("button", name=re.compile("^Message ")).nth(1))).to_be_visible()
    if token.is_visible():  # the login may have ended with the broker; the open page returns after the next login
        token.fill(api.token)
        page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name=re.compile("^Message "))).to_have_count(2)
    expect(page.get_by_text("No connection to the broker.")).to_have_count(0)


def test_a_broker_that_hangs_is_reported_on_every_page(
    visit: Visit, api: Api, broker: BrokerProcess, watches: list[Watch]
) -> None:
    """Its process exists and answers nothing: stale data must not look current."""
    page = visit("#/overview")
    watches[0].expected += ["503"]
    expect(page.get_by_text("Accepts messages.")).to_be_visible()
    broker.signal(signal.SIGSTOP)
    try:
        expect(page.get_by_role("alert").get_by_text("The broker has not answered for")).to_be_visible()
        expect(page.get_by_text("Accepts messages.")).to_have_count(0)
        expect(page.get_by_text("Live", exact=True)).to_have_count(0)
        for link in page.get_by_role("navigation", name="Pages").get_by_role("link").all():
            link.click()
            expect(page.get_by_role("alert").get_by_text("The broker has not answered for").first).to_be_visible()
        page.goto(page.url.partition("#")[0] + "#/overview")
        page.reload()
        expect(page.get_by_role("alert").get_by_text("The broker has not answered for").first).to_be_visible()
        expect(page.get_by_text("Accepts messages.")).to_have_count(0)
    finally:
        broker.signal(signal.SIGCONT)
    expect(page.get_by_text("Accepts messages.")).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_text("The broker has not answered for")).to_have_count(0)


def test_files_are_served_with_the_policy_and_revalidated(origin: str, visit: Visit, watches: list[Watch]) -> None:
    page = visit(token="")
    watches[0].expected += ["401"]
    answer = page.request.get(f"{origin}/")
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    kept = page.request.get(f"{origin}/app.js", headers={"If-None-Match": assets()["/app.js"].etag})
    assert kept.status == 304
    assert page.request.get(f"{origin}/lib/../../assets.py").status == 404
    assert page.request.get(f"{origin}/%2e%2e/assets.py").status == 404
