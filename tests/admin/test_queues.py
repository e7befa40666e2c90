"""Namespaces and queues: listed page by page, created, changed by two people, deleted."""

from __future__ import annotations

import pytest

from support.web import Api, path_of


def test_a_queue_is_created_configured_and_deleted(api: Api) -> None:
    made = api.do("PUT", "queues/shop/orders", {"rules": {"max_depth": 5, "default_ttl_seconds": 1.5}})
    assert made["name"] == "shop/orders"
    assert made["rules"]["max_depth"] == 5
    assert made["rules"]["default_ttl_seconds"] == 1.5
    changed = api.do("PATCH", "queues/shop/orders", {"max_bytes": 7}, {"If-Match": f'"{made["version"]}"'})
    assert changed["rules"] == {**made["rules"], "max_bytes": 7}
    assert changed["version"] != made["version"]
    assert "shop" in [each["name"] for each in api.get("namespaces")["items"]]
    assert api.do("DELETE", "queues/shop/orders") == {"done": True}
    assert api.refused("GET", "queues/shop/orders")["code"] == "not-found"
    assert api.do("DELETE", "namespaces/shop") == {"done": True}
    assert "shop" not in [each["name"] for each in api.get("namespaces")["items"]]


def test_names_may_contain_any_character(api: Api) -> None:
    for name in ("default/a/b", "default/ü %?#&+;=", "default/..", "default/new\nline"):
        assert api.do("PUT", f"queues/{path_of(name)}", {})["name"] == name
        api.publish(name, "x")
        assert api.get(f"queues/{path_of(name)}")["ready"] == 1
        assert name in [each["name"] for each in api.get("queues", contains=name[8:])["items"]]


def test_a_queue_needs_a_name(api: Api) -> None:
    problem = api.refused("PUT", "queues/default/", {})
    assert (problem["status"], problem["field"]) == (400, "path.queue")


def test_an_existing_queue_is_not_created_again(api: Api, queue: str) -> None:
    problem = api.refused("PUT", f"queues/{path_of(queue)}", {})
    assert (problem["code"], problem["field"]) == ("conflict", "path.queue")
    assert queue in problem["detail"]


def test_two_people_changing_one_queue_conflict(api: Api, queue: str) -> None:
    path = f"queues/{path_of(queue)}"
    seen = api.get(path)["version"]
    first = api.do("PATCH", path, {"max_depth": 1}, {"If-Match": f'"{seen}"'})
    problem = api.refused("PATCH", path, {"max_depth": 2}, {"If-Match": f'"{seen}"'})
    assert problem["code"] == "stale"
    assert problem["current"]["rules"]["max_depth"] == 1
    assert problem["current"]["version"] == first["version"]
    assert api.get(path)["rules"]["max_depth"] == 1
    assert api.refused("PATCH", path, {"max_depth": 2})["code"] == "version-required"
    assert api.refused("DELETE", path, None, {"If-Match": f'"{seen}"'})["code"] == "stale"


def test_a_queue_is_paused_and_resumed(api: Api, queue: str) -> None:
    path = f"queues/{path_of(queue)}"
    api.publish(queue, "x")
    assert api.do("POST", f"{path}/pause")["paused"]
    assert "paused" in api.get(path)["states"]
    assert queue in [each["name"] for each in api.get("queues", state="paused")["items"]]
    assert not api.do("POST", f"{path}/resume")["paused"]


def test_a_queue_with_messages_is_not_deleted(api: Api, queue: str) -> None:
    api.publish(queue, "x")
    assert "purge" in api.refused("DELETE", f"queues/{path_of(queue)}")["detail"]
    assert api.refused("DELETE", "namespaces/default")["code"] == "conflict"


def test_pages_list_everything_once(api: Api) -> None:
    names = [f"pages/{letter}{number}" for letter in "ab" for number in range(7)]
    for name in names:
        api.do("PUT", f"queues/{path_of(name)}", {})
    api.publish("pages/a3", *"xyz")
    for sort in ("name", "ready", "oldest", "published", "bytes"):
        for order in ("ascending", "descending"):
            found = api.all("queues", pattern="pages/*", limit=3, sort=sort, order=order)
            assert sorted(each["name"] for each in found) == names
    most = api.get("queues", pattern="pages", sort="ready", order="descending", limit=1)
    assert [each["name"] for each in most["items"]] == ["pages/a3"]
    assert most["total"] == len(names)
    assert api.get("queues", pattern="pages/a*")["total"] == 7


def test_a_cursor_stays_valid_when_queues_come_and_go(api: Api) -> None:
    for number in range(6):
        api.do("PUT", f"queues/moving/{number}", {})
    page = api.get("queues", pattern="moving/*", limit=3)
    api.do("DELETE", "queues/moving/2")
    api.do("PUT", "queues/moving/15", {})
    rest = api.get("queues", pattern="moving/*", limit=10, cursor=page["next"])
    assert [each["name"] for each in rest["items"]] == ["moving/3", "moving/4", "moving/5"]


@pytest.mark.parametrize("cursor", ["x", "gA", "kwECAw", "a" * 3000, "%00"])
def test_a_forged_cursor_is_rejected(api: Api, cursor: str) -> None:
    answer = api.ask("GET", "/api/v1/queues", cursor=cursor)
    assert answer.status == 400
    assert answer.value["field"] == "query.cursor"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"rules": {"max_depth": -1}}, "body.rules.max_depth"),
        ({"rules": {"max_depth": "many"}}, "body.rules.max_depth"),
        ({"rules": {"lock_seconds": 0}}, "body.rules.lock_seconds"),
        ({"rules": {"on_full": "panic"}}, "body.rules.on_full"),
        ({"rules": {"unheard_of": 1}}, "body.rules.unheard_of"),
        ({"rule": {}}, "body.rule"),
        ([], "body"),
        (b"{", "body"),
        (b"\xff", "body"),
    ],
)
def test_bad_rules_are_reported_with_their_field(api: Api, body: object, field: str) -> None:
    problem = api.refused("PUT", "queues/default/bad", body)
    assert (problem["status"], problem["field"]) == (400, field)
    assert api.refused("GET", "queues/default/bad")["code"] == "not-found"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "sort=colour", "state=sad", "unknown=1", "%ff=1"]
)
def test_bad_parameters_are_reported(api: Api, query: str) -> None:
    answer = api.ask("GET", f"/api/v1/queues?{query}")
    assert answer.status == 400
    assert answer.value["field"].startswith("query")


def test_names_that_are_too_long_are_refused(api: Api) -> None:
    assert "255" in api.refused("PUT", f"queues/default/{'x' * 256}", {})["detail"]
    assert "/" in api.refused("PUT", f"queues/{path_of('a/b').replace('/', '%2F')}/c", {})["detail"]
