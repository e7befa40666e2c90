"""Accessibility: axe-core finds no violation on any page in light, dark and on a phone; a keyboard is enough."""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from support.brokers import wait_for
from support.browser import Watch
from support.console import Api, Visit

AXE = Axe()
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: Every page, and a text that is on it once it has loaded.
PAGES = {
    "overview": ("#/overview", "Longest queues"),
    "queues": ("#/queues", "seen/q"),
    "messages": ("#/queue/seen/q", "Deliveries"),
    "activity": ("#/queue/seen/q/activity", "Messages since the queue was created"),
    "consumers": ("#/queue/seen/q/consumers", "No locks"),
    "rules": ("#/queue/seen/q/rules", "Keep dead letters"),
    "dead": ("#/dead", "Inspect"),
    "message": ("#/message", "Show history"),
    "connections": ("#/connections", "No locks"),
    "pipelines": ("#/pipelines", "No writers"),
    "sql": ("#/sql", "audit"),
    "tokens": ("#/admin/tokens", "Revoke"),
    "definitions": ("#/admin/definitions", "Import"),
    "backup": ("#/admin/backup", "No backups yet"),
    "drain": ("#/admin/drain", "Messages left"),
    "journal": ("#/admin/journal", "being written"),
    "audit": ("#/admin/audit", "create-queue"),
}
#: All rules in one look; in the others only rules that colours and widths can break.
RULES: dict[str, dict[str, Any]] = {
    "light": {"type": "tag", "values": STANDARDS},
    "dark": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
    "phone": {"type": "rule", "values": ["target-size", "scrollable-region-focusable", "region", "color-contrast"]},
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}},
}


@pytest.fixture(scope="module", autouse=True)
def _something_to_see(api: Api) -> None:
    api.make("seen", "q")
    api.publish("seen", "q", '{"a": [1, {"b": null}]}', "text", "\u2603")
    api.publish("seen", "q", "late", ttl_seconds=0.001)
    wait_for(lambda: api.queue("seen", "q")["dead"] == 1, "the message did not expire")


def violations(page: Page, look: str = "light") -> list[str]:
    options = {"resultTypes": ["violations"], "runOnly": RULES[look]}
    found = AXE.run(page, options=options).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_passes_axe_and_fits(visit: Visit, look: str) -> None:
    page = visit(**LOOKS[look])
    base = page.url.partition("#")[0]
    for name, (address, text) in PAGES.items():
        page.goto(base + address)
        expect(page.get_by_text(text).first).to_be_attached()
        assert violations(page, look) == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} is too wide"


@pytest.mark.parametrize("look", ["light", "dark"])
def test_dialogs_pass_axe(visit: Visit, api: Api, look: str) -> None:
    page = visit("#/queue/seen/q", **LOOKS[look])
    page.get_by_role("button", name=re.compile("^Message ")).first.click()
    expect(page.get_by_role("region", name="Payload")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("button", name="Edit a copy").click()
    expect(page.get_by_label("Payload", exact=True)).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Payload")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == []


def test_the_login_passes_axe(visit: Visit, watches: list[Watch]) -> None:
    page = visit(token="", **LOOKS["phone"])
    watches[0].expected += ["401"]
    expect(page.get_by_label("Token")).to_be_focused()
    assert violations(page) == []


def test_pages_are_reached_with_the_keyboard(visit: Visit) -> None:
    page = visit()
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text("Overview")
    for letter, heading in {
        "q": "Queues",
        "d": "Dead letters",
        "c": "Connections",
        "s": "SQL",
        "o": "Overview",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(letter)
        expect(title).to_have_text(heading)
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("seen")  # letters are not shortcuts in a text field
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/queues\\?find=seen"))
    expect(page.get_by_role("rowheader")).to_have_text(["seen/q"])
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="seen/q")).to_be_focused()
    page.keyboard.press("Enter")
    expect(title).to_have_text("q")


def test_single_keys_can_be_turned_off(visit: Visit) -> None:
    page = visit()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.keyboard.press("?")
    page.get_by_label("Enable single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_the_first_tab_stop_skips_to_the_content_and_focus_is_visible(visit: Visit) -> None:
    page = visit("#/queues")
    expect(page.get_by_role("rowheader").first).to_be_visible()
    page.keyboard.press("Tab")
    skip = page.get_by_role("button", name="Skip to the page")
    expect(skip).to_be_focused()
    assert skip.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_the_theme_is_chosen_and_kept(visit: Visit) -> None:
    page = visit(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark
