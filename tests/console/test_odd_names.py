"""Odd names: every queue can be opened, none looks like another, and none makes a page overflow."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from support.browser import Watch
from support.console import Api, Visit

#: The last two have the greatest length allowed.
NAMES = (
    "..", ".", "..;", "%2e%2e", "a/b", "a;b", " two  spaces ", "?q=1#x", "<b>bold</b>", "back\\slash", "rules",
    "abc\u202etxt.exe", "zero\u200bwidth", "אבג 123", "\u2066isolated\u2069", "x" * 255, "é" * 127
)  # fmt: skip
#: Characters that must be escaped: they are invisible or change the direction of text.
INVISIBLE = re.compile("[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\x00-\x08\x7f\xad]")
#: All text of a page, visible or read by screen readers.
ALL_TEXT = """() => [document.title, document.body.innerText,
  ...[...document.querySelectorAll("*")].flatMap((one) => [one.title, one.ariaLabel, one.placeholder, one.alt]),
].join("\\n")"""
#: The tables that overflow their panels, and the page if it overflows the window.
OVERFLOWING = """() => [...document.querySelectorAll(".scroll"), document.documentElement]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel ?? "the page")"""


def shown(name: str) -> str:
    """How the command line and the console show a name."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def fill(api: Api, namespace: str) -> None:
    for name in NAMES:
        api.make(namespace, name)
        api.publish(namespace, name, f'{{"of": "{name[:20]}"}}', correlation_id=name[:60])


def goto(page: Page, address: str) -> None:
    page.goto(page.url.partition("#")[0] + address)


def test_every_queue_is_opened_used_and_deleted(visit: Visit, api: Api) -> None:
    fill(api, "odd")
    page = visit("#/queues?find=odd/*")
    links = page.get_by_role("rowheader").get_by_role("link")
    expect(links).to_have_count(len(NAMES))
    for name in NAMES:
        goto(page, "#/queues?find=odd/*")
        links.filter(has_text=re.compile(f"^odd/{re.escape(shown(name))}$")).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(shown(name), use_inner_text=True)
        expect(page.get_by_role("button", name=re.compile("^Message "))).to_have_count(1)
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert api.queue("odd", name)["paused"]
        assert not INVISIBLE.search(page.evaluate(ALL_TEXT)), name
    page.get_by_role("button", name=re.compile("^Message ")).click()
    page.get_by_role("dialog").get_by_role("link", name="Message history").click()
    expect(page.get_by_text("Published", exact=True)).to_be_visible()
    for name in ("..", "abc\u202etxt.exe"):
        [message] = api.messages("odd", name)
        api.call("DELETE", "queues", "odd", name, "messages", message["id"])
        goto(page, "#/queues?find=odd/*")
        links.filter(has_text=re.compile(f"^odd/{re.escape(shown(name))}$")).click()
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_label(f"Type odd/{shown(name)} to confirm").fill(f"odd/{shown(name)}")
        page.get_by_role("button", name="Delete it").click()
        expect(page.get_by_text(f"Deleted odd/{shown(name)}.")).to_be_visible()
        assert api.status("queues", "odd", name) == 404


def test_invisible_characters_are_escaped_everywhere(visit: Visit, api: Api) -> None:
    """Namespaces, payloads and correlation IDs are escaped, too."""
    api.make("name\u202espace", "in\u2066side")
    api.publish("name\u202espace", "in\u2066side", "pay\u202eload \u200b\0", correlation_id="corre\u202elation")
    api.call("PUT", "sql", "queries", "..", body={"query": "select 1", "about": ""})
    page = visit("#/overview")
    [message] = api.messages("name\u202espace", "in\u2066side")
    queue = "#/queue/name%E2%80%AEspace/in%E2%81%A6side"
    pages = (
        "#/overview", "#/queues?find=space", queue, f"{queue}?message={message['id']}", f"{queue}/rules",
        f"#/message/name%E2%80%AEspace/in%E2%81%A6side/{message['id']}", "#/admin/tokens", "#/admin/audit", "#/sql",
    )  # fmt: skip
    for address in pages:
        goto(page, address)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.locator(".bones")).to_have_count(0)
        assert not INVISIBLE.search(page.evaluate(ALL_TEXT)), address
    goto(page, f"{queue}?message={message['id']}")
    expect(page.get_by_role("region", name="Payload")).to_have_text("pay\\u202eload \\u200b\\x00")
    goto(page, "#/sql")
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("button", name="Remove .., by first admin").click()
    expect(page.get_by_text("Removed ...")).to_be_visible()


@pytest.mark.parametrize("width", [1400, 1280, 1024, 700, 360])
def test_no_table_overflows(visit: Visit, api: Api, width: int) -> None:
    namespace = f"wide-{width}"
    fill(api, namespace)
    for number in range(120):
        api.make(namespace, f"a-queue-with-a-rather-long-name-{number}", max_depth=2**63 - 1)
    api.call("POST", "backups", body={"name": f"backup-{width}"})
    api.call("POST", "definitions", body={"queues": {}}, dry_run="true")
    page = visit("#/queues", viewport={"width": width, "height": 900})
    [message] = api.messages(namespace, "x" * 255)
    places = (
        "overview", f"queues?find={namespace}/*", f"queue/{namespace}/{'x' * 255}", f"queue/{namespace}/..",
        f"queue/{namespace}/{'x' * 255}?message={message['id']}", f"queue/{namespace}/{'x' * 255}/rules",
        f"message/{namespace}/{'x' * 255}/{message['id']}", "message", "dead", "connections", "pipelines", "sql",
        *(f"admin/{tab}" for tab in ("tokens", "definitions", "backup", "drain", "journal", "jobs", "audit")),
    )  # fmt: skip
    for place in places:
        goto(page, f"#/{place}")
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.locator(".bones")).to_have_count(0)
        assert page.evaluate(OVERFLOWING) == [], place
    goto(page, f"#/queues?find={namespace}/*")
    for column, least in (("Ready", 360), ("State", 1024), ("Consumers", 1280), ("Size", 1400)):
        head = page.get_by_role("columnheader", name=column)
        if width >= least:
            expect(head).to_be_in_viewport(ratio=1)
        else:
            expect(head).to_have_count(0)


def test_a_missing_or_forbidden_queue_shows_nothing_of_the_previous_one(
    visit: Visit, api: Api, watches: list[Watch]
) -> None:
    api.make("before", "a")
    api.publish("before", "a", *["x"] * 7)
    api.make("secret", "b")
    body = {"name": "some", "may": ["operate"], "where": ["before/*", "missing/*"]}
    page = visit("#/queue/before/a", token=api.call("POST", "tokens", body=body)["token"])
    watches[0].expected += ["404", "403"]
    for address, message in (("missing/b", "Not found"), ("secret/b", "Access denied")):
        goto(page, "#/queue/before/a")
        expect(page.get_by_text("7 of 7 messages")).to_be_visible()
        goto(page, f"#/queue/{address}")
        expect(page.get_by_role("alert").get_by_text(message)).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_have_text("b")
        for name in ("Publish", "Pause", "Purge"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        expect(page.locator(".figures")).to_have_count(0)


def test_a_queue_deleted_while_it_is_shown_disappears(visit: Visit, api: Api, watches: list[Watch]) -> None:
    api.make("gone", "soon")
    page = visit("#/queue/gone/soon")
    watches[0].expected += ["404"]
    expect(page.get_by_role("button", name="Purge")).to_be_visible()
    api.call("DELETE", "queues", "gone", "soon")
    expect(page.get_by_role("alert").get_by_text("Not found")).to_be_visible()
    expect(page.get_by_role("button", name="Purge")).to_have_count(0)


def test_one_message_after_another_shows_nothing_of_the_first(visit: Visit, api: Api, watches: list[Watch]) -> None:
    api.make("before", "messages")
    [first, second] = api.publish("before", "messages", "the first", "the second")
    page = visit(f"#/queue/before/messages?message={first}")
    watches[0].expected += ["404"]
    expect(page.get_by_role("region", name="Payload")).to_have_text("the first")
    api.call("DELETE", "queues", "before", "messages", "messages", second)
    goto(page, f"#/queue/before/messages?message={second}")
    expect(page.get_by_role("dialog").get_by_role("alert").get_by_text("Not found")).to_be_visible()
    expect(page.get_by_role("dialog").get_by_role("button", name="Delete")).to_have_count(0)


def test_a_rate_that_is_not_a_number_starts_no_job(visit: Visit, api: Api) -> None:
    """Such a rate must not count as no limit."""
    api.make("before", "rated")
    api.publish("before", "rated", "x")
    page = visit("#/queue/before/rated")
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("To the queue").fill("before/elsewhere")
    page.get_by_label("Maximum messages per second").fill("1o")
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    expect(page.get_by_role("dialog").get_by_text("This must be a number.").first).to_be_visible()
    assert api.queue("before", "rated")["ready"] == 1


@pytest.mark.parametrize(
    "address",
    ["nonsense", "message/no/where/" + "0" * 32, "queue/no/where", "message/a", "message?id=xyz", "admin/nonsense"],
)
def test_every_page_has_one_heading(visit: Visit, address: str, watches: list[Watch]) -> None:
    page = visit(f"#/{address}")
    watches[0].expected += ["404"]
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page.locator(".bones")).to_have_count(0)
