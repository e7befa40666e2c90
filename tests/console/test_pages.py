"""The main task of every page, done by clicking; the result is read from the broker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from penstock.protocols import protocols
from support.brokers import BrokerProcess, wait_for
from support.browser import Watch
from support.console import Api, Visit
from support.web import eventually


def test_the_overview_follows_the_traffic(visit: Visit, api: Api) -> None:
    api.make("flow", "in")
    page = visit()
    expect(page.get_by_text("Accepts messages.")).to_be_visible()
    expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
    api.publish("flow", "in", *["x"] * 7)
    row = page.get_by_role("row", name="flow/in")
    expect(row.get_by_role("cell").first).to_have_text("7")


def test_queues_are_found_sorted_and_created(visit: Visit, api: Api) -> None:
    for name in ("small", "large", "other"):
        api.make("sorted", name)
    api.publish("sorted", "large", "1", "2", "3")
    api.publish("sorted", "small", "1")
    page = visit("#/queues")
    page.get_by_label("Name", exact=True).fill("sorted/")
    expect(page).to_have_url(re.compile("find=sorted"))
    page.get_by_role("button", name="Ready").click()
    expect(page).to_have_url(re.compile("sort=ready&order=descending"))
    names = page.get_by_role("rowheader")
    expect(names).to_have_text(["sorted/large", "sorted/small", "sorted/other"])
    page.reload()  # the address contains the selection
    expect(names).to_have_text(["sorted/large", "sorted/small", "sorted/other"])
    page.get_by_role("button", name="New queue").click()
    page.get_by_role("dialog").get_by_label("Namespace").fill("sorted")
    page.get_by_role("dialog").get_by_label("Queue").fill("a & <b>")
    page.get_by_role("button", name="Create queue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("a & <b>")
    assert api.queue("sorted", "a & <b>")["ready"] == 0


def test_many_queues_are_paged(visit: Visit, api: Api) -> None:
    names = [f"many/q{number:04}" for number in range(1500)]
    api.call("POST", "definitions", body={"queues": {name: {} for name in names}})
    page = visit("#/queues?find=many/*")
    expect(page.get_by_text("100 of 1,500 queues")).to_be_visible()
    expect(page.get_by_role("rowheader")).to_have_text(names[:100])
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_role("rowheader")).to_have_text(names[100:200])
    page.get_by_role("button", name="First page").click()
    expect(page.get_by_role("rowheader")).to_have_text(names[:100])


def test_a_message_is_published_found_and_viewed(visit: Visit, api: Api) -> None:
    api.make("shop", "orders")
    api.publish("shop", "orders", *[f"order {n}" for n in range(5)])
    page = visit("#/queue/shop/orders")
    page.get_by_role("button", name="Publish").click()
    text = '{"order": 12345678901234567890, "who": "<img src=x onerror=alert(1)>", "lines": [1, 2]}'
    page.get_by_label("Payload", exact=True).fill(text)
    page.get_by_label("Correlation ID").fill("c-17")
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published ", exact=False).first).to_be_visible()
    [message] = eventually(lambda: api.messages("shop", "orders", correlation_id="c-17"))
    assert message["payload"]["size"] == len(text)

    page.get_by_label("Text in the payload").fill("onerror")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text("1 found in 6 searched")).to_be_visible()
    page.get_by_role("button", name=f"Message {message['id']}").click()
    payload = page.get_by_role("region", name="Payload")
    expect(payload).to_contain_text("12345678901234567890")  # every digit
    expect(payload).to_contain_text('"<img src=x onerror=alert(1)>"')
    assert page.locator("main img, dialog img").count() == 0
    page.get_by_role("button", name="Hex").click()
    expect(payload).to_contain_text("7b 22 6f 72 64 65 72 22")
    page.get_by_role("button", name="Text", exact=True).click()
    expect(payload).to_have_text(text)
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download").click()
    assert Path(saved.value.path()).read_text() == text
    assert len(api.messages("shop", "orders")) == 6  # viewing consumed nothing


def test_a_queue_is_paused_and_that_is_undone(visit: Visit, api: Api) -> None:
    api.make("shop", "paused")
    page = visit("#/queue/shop/paused")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Messages are accepted and not delivered.")).to_be_visible()
    assert api.queue("shop", "paused")["paused"]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not api.queue("shop", "paused")["paused"]


def test_a_queue_is_purged_and_deleted_with_its_name_typed(visit: Visit, api: Api) -> None:
    api.make("shop", "old")
    api.publish("shop", "old", *["x"] * 30)
    page = visit("#/queue/shop/old")
    page.get_by_role("button", name="Purge").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Purge")
    page.get_by_label("Type shop/old to confirm").fill("shop/ol")
    expect(confirm).to_be_disabled()
    page.get_by_label("Type shop/old to confirm").fill("shop/old")
    confirm.click()
    expect(page.get_by_text("No messages: ready")).to_be_visible()
    assert api.queue("shop", "old")["ready"] == 0
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_label("Type shop/old to confirm").fill("shop/old")
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_text("Deleted shop/old.")).to_be_visible()
    assert api.status("queues", "shop", "old") == 404
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("old")
    assert api.status("queues", "shop", "old") == 200


def test_rules_are_changed_and_that_is_undone(visit: Visit, api: Api) -> None:
    api.make("shop", "rules")
    page = visit("#/queue/shop/rules/rules")
    page.get_by_label("Maximum messages").fill("1000")
    page.get_by_label("Expired messages").select_option("drop")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Changed the configuration of shop/rules.")).to_be_visible()
    rules = api.queue("shop", "rules")["rules"]
    assert (rules["max_depth"], rules["on_expiry"]) == (1000, "drop")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_label("Maximum messages")).to_have_value("0")
    assert api.queue("shop", "rules")["rules"]["on_expiry"] == "dead"


def test_the_form_has_every_rule_that_the_api_describes(visit: Visit, api: Api) -> None:
    api.make("shop", "every", max_deliveries=7)
    page = visit("#/queue/shop/every/rules")
    rules = api.get("openapi.json")["components"]["schemas"]["QueueRules"]["properties"]
    del rules["paused"]  # the button Pause
    for name, rule in rules.items():
        field = page.get_by_label(rule["title"], exact=True)
        expect(field).to_have_id(name)
        if "x-choices" in rule:
            expect(field.locator("option")).to_have_text(list(rule["x-choices"].values()))
            expect(field).to_have_value(rule["default"])
        elif rule["type"] == "boolean":
            expect(field).to_be_checked(checked=rule["default"])
        else:
            expect(field).to_have_value("7" if name == "max_deliveries" else f"{rule['default']:g}")
            expect(page.locator(f"#{name}-hint")).to_have_text(rule["description"])
    expect(page.locator("form .fields").locator("input, select")).to_have_count(len(rules))


def test_connections_are_filtered_by_the_protocols_of_the_broker(visit: Visit, api: Api) -> None:
    titles = {name: protocol.title for name, protocol in protocols().items()}
    assert api.get("overview")["protocols"] == titles
    page = visit("#/connections?protocol=sspq")
    chosen = page.get_by_label("Protocol", exact=True)
    expect(chosen.locator("option")).to_have_text(["All protocols", *titles.values()])
    expect(chosen).to_have_value("sspq")


def dead_letters(api: Api, queue: str, number: int) -> None:
    api.make("post", queue)
    api.publish("post", queue, *[f"letter {n}" for n in range(number)], ttl_seconds=0.001)
    wait_for(lambda: api.queue("post", queue)["dead"] == number, "the messages did not expire")


def test_dead_letters_are_redriven_with_progress(visit: Visit, api: Api) -> None:
    dead_letters(api, "late", 40)
    page = visit("#/dead?find=post/late")
    page.get_by_role("button", name="Redrive expired of post/late").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    job = page.get_by_role("row", name="Redrive post/late done")
    expect(job).to_contain_text("40")
    assert (api.queue("post", "late")["ready"], api.queue("post", "late")["dead"]) == (40, 0)
    expect(page.get_by_text("No matching dead letters")).to_be_visible()


def test_a_redrive_is_cancelled_and_resumed(visit: Visit, api: Api, watches: list[Watch]) -> None:
    dead_letters(api, "slow", 200)
    page = visit("#/dead?find=post/slow")
    watches[0].expected += ["409"]  # until the cancelled step has ended
    page.get_by_role("button", name="Redrive expired of post/slow").click()
    page.get_by_label("Maximum messages per second").fill("20")
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    job = page.get_by_role("row", name="Redrive post/slow")
    wait_for(lambda: api.queue("post", "slow")["ready"] > 0, "the redrive did not begin")
    job.get_by_role("button", name="Cancel").click()
    expect(job).to_contain_text("cancelled")
    queue = api.queue("post", "slow")
    assert 0 < queue["ready"] < 200
    assert queue["ready"] + queue["dead"] == 200
    job.get_by_role("button", name="Resume").click()
    expect(job).to_contain_text("running")
    job.get_by_role("button", name="Cancel").click()
    expect(job).to_contain_text("cancelled")
    queue = api.queue("post", "slow")
    assert queue["ready"] + queue["dead"] == 200


def test_a_copy_of_a_dead_letter_is_edited_and_its_life_is_shown(visit: Visit, api: Api) -> None:
    dead_letters(api, "edited", 2)
    page = visit("#/dead?find=post/edited")
    page.get_by_role("link", name="Inspect expired of post/edited").click()
    page.get_by_role("button", name=re.compile("^Message ")).first.click()
    page.get_by_role("button", name="Edit a copy").click()
    expect(page.get_by_label("Payload", exact=True)).to_have_value(re.compile("letter"))
    page.get_by_label("Payload", exact=True).fill("letter, mended")
    page.get_by_label("Delete the original message").check()
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(page.get_by_text("deleted the original")).to_be_visible()
    queue = api.queue("post", "edited")
    assert (queue["ready"], queue["dead"]) == (1, 1)
    [mended] = api.messages("post", "edited")
    assert mended["payload"]["value"] == "letter, mended"

    left = page.get_by_role("button", name=re.compile("^Message "))
    expect(left).to_have_count(1)
    left.click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    wait_for(lambda: api.queue("post", "edited")["ready"] == 2, "the copy was not redriven")
    redriven = next(each for each in api.messages("post", "edited") if each["id"] != mended["id"])
    page.goto(page.url.partition("#")[0] + f"#/message/post/edited/{redriven['id']}")
    events = page.get_by_role("listitem").filter(has=page.locator("time"))
    expect(events).to_have_count(3)
    expect(events).to_contain_text(["Published", "Became a dead letter", "Redriven"])
    expect(events.nth(1)).to_contain_text("its time to live expired")


def test_a_connection_is_viewed_and_closed(visit: Visit, api: Api, broker: BrokerProcess) -> None:
    peer = broker.dial("sspq")
    wait_for(lambda: api.get("connections")["items"], "no connection is listed")
    [one] = api.get("connections")["items"]
    page = visit("#/connections")
    page.get_by_role("button", name=one["peer"]).click()
    expect(page.get_by_role("dialog")).to_contain_text("sspq")
    page.get_by_role("button", name="Close the connection").click()
    page.get_by_role("button", name="Close it").click()
    expect(page.get_by_text("Closed the connection.")).to_be_visible()
    peer.expect_end()
    assert api.get("connections")["items"] == []


def test_a_message_is_found_by_its_id_alone(visit: Visit, api: Api) -> None:
    api.make("shop", "findable")
    [message] = api.publish("shop", "findable", "here")
    page = visit()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.keyboard.press("/")
    page.keyboard.type(message)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"#/message/shop/findable/{message}"))
    expect(page.get_by_text("Published", exact=True)).to_be_visible()


def test_sql_results_are_shown_plotted_saved_and_downloaded(visit: Visit, api: Api, watches: list[Watch]) -> None:
    api.make("asked", "a")
    api.make("asked", "b")
    api.publish("asked", "a", "1", "2", "3")
    api.publish("asked", "b", "1")
    page = visit("#/sql")
    page.get_by_label("Query").fill(
        "select queue, count(*) as n from live where namespace = 'asked' group by queue order by queue"
    )
    page.get_by_label("Query").press("Control+Enter")
    table = page.get_by_role("table", name="Result")
    expect(table.get_by_role("row")).to_have_text(["queuen", "a3", "b1"])
    page.get_by_role("button", name="Chart").click()
    expect(page.get_by_role("table", name="n")).to_contain_text("a3")
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert Path(saved.value.path()).read_text().split() == ["queue,n", "a,3", "b,1"]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Parquet").click()
    assert Path(saved.value.path()).read_bytes()[:4] == b"PAR1"
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("button", name="Save this query").click()
    page.get_by_role("dialog").get_by_label("Name").fill("how many")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    watches[0].expected += ["400"]
    page.get_by_label("Query").fill("select 1 from nowhere")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    page.get_by_role("button", name=re.compile("select queue, count")).click()
    expect(page.get_by_label("Query")).to_have_value(re.compile("asked"))
    page.get_by_role("button", name="History").click()
    expect(page.locator(".queries li")).to_have_count(1)


def test_a_token_is_created_used_and_revoked(visit: Visit, api: Api, origin: str) -> None:
    page = visit("#/admin/tokens")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Token name").fill("grafana")
    page.get_by_role("button", name="Create token").click()
    token = page.get_by_label("Token of grafana").input_value()
    page.get_by_role("button", name="Done").click()
    theirs = Api(origin, token)
    assert theirs.get("session")["role"] == "view"
    row = page.get_by_role("row", name=re.compile("grafana"))
    row.get_by_role("button", name="Revoke").click()
    page.get_by_label("Type grafana to confirm").fill("grafana")
    page.get_by_role("button", name="Revoke it").click()
    expect(row).to_have_count(0)
    assert theirs.status("session") == 401


def test_definitions_are_compared_first_and_then_applied(visit: Visit, api: Api) -> None:
    page = visit("#/admin/definitions")
    definitions = {"namespaces": ["given"], "queues": {"given/one": {"max_depth": 5}}}
    page.get_by_label("Definitions, TOML or JSON").fill(json.dumps(definitions))
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    page.get_by_role("button", name="Show the difference").click()
    expect(page.get_by_role("row", name="given/one")).to_contain_text("create")
    assert api.status("queues", "given", "one") == 404
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Applied ")).to_be_visible()
    assert api.queue("given", "one")["rules"]["max_depth"] == 5


def test_a_backup_is_created(visit: Visit, api: Api) -> None:
    page = visit("#/admin/backup")
    page.get_by_label("Name", exact=True).fill("by-hand")
    page.get_by_role("button", name="Back up now").click()
    expect(page.get_by_role("rowheader", name="by-hand")).to_be_visible()
    [backup] = api.get("backups")["items"]
    assert Path(backup["folder"]).is_dir()


def test_a_drain_refuses_publishing_until_it_is_undone(visit: Visit, api: Api) -> None:
    page = visit("#/admin/drain")
    page.get_by_role("button", name="Drain…").click()
    page.get_by_label("Type drain to confirm").fill("drain")
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.get_by_text("Publishing is refused; consumers continue.")).to_be_visible()
    assert api.get("drain")["active"]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Drain…")).to_be_visible()
    assert not api.get("drain")["active"]


def test_the_audit_log_shows_before_and_after(visit: Visit, api: Api) -> None:
    api.make("shop", "audited")
    page = visit("#/queue/shop/audited")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused shop/audited.")).to_be_visible()
    page.goto(page.url.partition("#")[0] + "#/admin/audit?target=shop/audited")
    row = page.get_by_role("row", name=re.compile("pause-queue"))
    expect(row).to_contain_text("done")
    row.get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("shop/audited")


@pytest.mark.parametrize("tab", ["activity", "consumers"])
def test_the_other_parts_of_a_queue_are_shown(visit: Visit, api: Api, tab: str) -> None:
    api.make("shown", tab)
    page = visit(f"#/queue/shown/{tab}/{tab}")
    texts = {"activity": "Messages since the queue was created", "consumers": "No consumers"}
    expect(page.get_by_text(texts[tab])).to_be_visible()
