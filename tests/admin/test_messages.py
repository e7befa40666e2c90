"""Messages: browsing without consuming, search, payloads, publishing, one message's life."""

from __future__ import annotations

import pytest

from penstock.admin.pages import encode_cursor
from support.web import Api, WebBroker, path_of


def browse(api: Api, queue: str, **query: object) -> list[str]:
    found = api.all(f"queues/{path_of(queue)}/messages", **query)
    return [str(each["payload"]["value"]) for each in found]


def test_browsing_consumes_nothing(api: Api, queue: str) -> None:
    api.publish(queue, *(f"m{number}" for number in range(7)))
    api.publish(queue, "first", priority=5)
    for limit in (1, 3, 8, 100):
        assert browse(api, queue, limit=limit) == ["first", *(f"m{number}" for number in range(7))]
    detail = api.get(f"queues/{path_of(queue)}")
    assert (detail["ready"], detail["out"], detail["counters"]["delivered"]) == (8, 0, 0)


def test_states_are_listed_separately(api: Api, queue: str) -> None:
    api.publish(queue, "now")
    api.publish(queue, "later", delay_seconds=100.0)
    assert browse(api, queue, state="ready") == ["now"]
    assert browse(api, queue, state="delayed") == ["later"]
    assert browse(api, queue, state="dead") == browse(api, queue, state="out") == []
    (delayed,) = api.get(f"queues/{path_of(queue)}/messages", state="delayed")["items"]
    assert delayed["due_at"] > delayed["published_at"]


def test_search_finds_by_every_criterion(api: Api, queue: str) -> None:
    ids = api.publish(queue, *(f"order {number} of 50" for number in range(50)))
    api.publish(queue, "other", correlation_id="c-17")
    path = f"queues/{path_of(queue)}/messages"
    assert browse(api, queue, text="order 3", limit=4) == ["order 3 of 50", *(f"order 3{n} of 50" for n in range(10))]
    assert browse(api, queue, hex=b"order 7 ".hex()) == ["order 7 of 50"]
    assert browse(api, queue, id=ids[9]) == ["order 9 of 50"]
    assert browse(api, queue, correlation_id="c-17") == ["other"]
    at = api.get(path, limit=1, id=ids[20])["items"][0]["published_at"]
    assert "order 20 of 50" in browse(api, queue, published_from=at)
    assert "order 20 of 50" not in browse(api, queue, published_to=at)
    assert browse(api, queue, text="nothing like it") == []
    page = api.get(path, text="other")
    assert (page["looked_at"], page["total"]) == (51, 51)


@pytest.mark.parametrize(
    ("given", "encoding", "shown"),
    [
        ("plain text", "text", ("text", "plain text")),
        ({"a": [1, None]}, "json", ("json", {"a": [1, None]})),
        ("00ff10", "hex", ("hex", "00ff10")),
        ("AP8Q", "base64", ("hex", "00ff10")),
        ("", "text", ("text", "")),
    ],
)
def test_payloads_are_shown_in_their_encoding(
    api: Api, queue: str, given: object, encoding: str, shown: tuple[str, object]
) -> None:
    path = f"queues/{path_of(queue)}/messages"
    (made,) = api.do("POST", path, {"messages": [{"payload": given, "encoding": encoding}]})["ids"]
    payload = api.get(f"{path}/{made}")["payload"]
    assert (payload["encoding"], payload["value"], payload["truncated"]) == (*shown, False)


#: JSON that parsers alter: numbers beyond 2^53 and 2^64, long or trailing digits, exponents, duplicate names, order.
EXACT = (
    b'{"id":1234567890123456789,"huge":123456789012345678901234567890,"long":3.14159265358979323846264338327950288,'
    b'"price":1.10,"power":1e2,"zero":-0.0,"twice":1,"twice":2,"10":0,"9":0,"text":"\\u00e9 \xc3\xa9  \\/"}'
)


def test_json_is_shown_and_accepted_with_every_digit(api: Api, queue: str) -> None:
    path = f"/api/v1/queues/{path_of(queue)}/messages"
    spaced = EXACT.replace(b",", b" ,\n ").replace(b'":', b'" : ')
    body = b'{"messages":[{"encoding":"json","payload":%b}]}'
    ids = [api.ask("POST", path, body % each).value["ids"][0] for each in (EXACT, spaced)]
    assert [api.ask("GET", f"{path}/{made}/payload").body for made in ids] == [EXACT, EXACT]
    for encoding in (None, "json"):
        for place in (path, f"{path}/{ids[0]}"):
            shown = api.ask("GET", place, bytes=4096, encoding=encoding)
            assert b'"value":' + EXACT + b"," in shown.body, shown


@pytest.mark.parametrize("text", ["[1e400]", "no JSON", "[" * 5000 + "]" * 5000, '["\\ud800"]'])
def test_json_that_some_parsers_reject_is_shown_as_text(api: Api, queue: str, text: str) -> None:
    path = f"queues/{path_of(queue)}/messages"
    (made,) = api.publish(queue, text)
    for query in ({"bytes": 20_000}, {"bytes": 20_000, "encoding": "json"}):
        payload = api.get(f"{path}/{made}", **query)["payload"]
        assert (payload["encoding"], payload["value"]) == ("text", text)


@pytest.mark.parametrize("payload", [b'"\xff"', b'"\\ud800"'])
def test_json_that_is_not_text_is_rejected(api: Api, queue: str, payload: bytes) -> None:
    path = f"/api/v1/queues/{path_of(queue)}/messages"
    answer = api.ask("POST", path, b'{"messages":[{"encoding":"json","payload":%b}]}' % payload)
    assert (answer.status, answer.value["code"]) == (400, "bad-request")


def test_a_large_payload_is_cut_and_downloaded_whole(api: Api, queue: str) -> None:
    text = "ä" * 500_000
    (made,) = api.publish(queue, text)
    path = f"queues/{path_of(queue)}/messages/{made}"
    payload = api.get(path, bytes=1001)["payload"]
    assert (payload["size"], payload["truncated"], payload["encoding"]) == (1_000_000, True, "text")
    assert payload["value"].startswith("ä" * 500)
    whole = api.ask("GET", f"/api/v1/{path}/payload")
    assert whole.body == text.encode()
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert api.ask("GET", f"/api/v1/{path}", bytes=2**20 + 1).value["field"] == "query.bytes"


def test_publishing_is_all_or_none(api: Api) -> None:
    api.do("PUT", "queues/default/small", {"rules": {"max_depth": 2}})
    body = {"messages": [{"payload": "x"}] * 3}
    problem = api.refused("POST", "queues/default/small/messages", body)
    assert (problem["code"], problem["detail"]) == ("refused", "the queue is full")
    assert api.get("queues/default/small")["ready"] == 0


def test_delayed_messages_beyond_the_limit_are_published_all_or_none(api: Api) -> None:
    api.do("PUT", "queues/default/dropping", {"rules": {"max_depth": 2, "on_full": "drop-oldest"}})
    path, later = "queues/default/dropping/messages", {"payload": "later", "delay_seconds": 100.0}
    problem = api.refused("POST", path, {"messages": [later] * 3})
    assert (problem["code"], problem["detail"]) == ("refused", "the queue is full")
    assert api.get("queues/default/dropping")["delayed"] == 0
    api.do("POST", path, {"messages": [later, *[{"payload": "now"}] * 3]})
    found = api.get("queues/default/dropping")
    assert (found["delayed"], found["ready"], found["dead"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "body.messages[0].payload"),
        ({"payload": 1}, "body.messages[0].payload"),
        ({"payload": "xyz", "encoding": "hex"}, "body.messages[0].payload"),
        ({"payload": "x", "priority": -1}, "body.messages[0].priority"),
        ({"payload": "x", "ttl_seconds": -1}, "body.messages[0].ttl_seconds"),
        ({"payload": "x", "correlation_id": "ü" * 200}, "body.messages[0].correlation_id"),
    ],
)
def test_bad_messages_are_reported_with_their_field(api: Api, queue: str, message: object, field: str) -> None:
    problem = api.refused("POST", f"queues/{path_of(queue)}/messages", {"messages": [message]})
    assert (problem["status"], problem["field"]) == (400, field)


def test_a_message_is_deleted_once(api: Api, queue: str) -> None:
    (made,) = api.publish(queue, "x")
    path = f"queues/{path_of(queue)}/messages/{made}"
    api.do("DELETE", path)
    assert api.refused("DELETE", path)["code"] == "not-found"
    assert api.refused("GET", path)["code"] == "not-found"
    assert api.refused("GET", f"queues/{path_of(queue)}/messages/12")["field"] == "path.id"


def test_the_life_of_a_message(broker: WebBroker, api: Api) -> None:
    """Published, delivered and lost, dead-lettered, redriven, deleted: all events are listed, with their authors."""
    api.do("PUT", "queues/default/sspq2", {"rules": {"max_deliveries": 1}})
    (made,) = api.publish("default/sspq2", "x")
    broker.kill_messages("default/sspq2")
    job = api.do("POST", "jobs", {"kind": "redrive", "queue": "default/sspq2"})
    assert api.job(job)["done"] == 1
    api.do("DELETE", f"queues/default/sspq2/messages/{made}")
    life = api.get(f"queues/default/sspq2/messages/{made}/events")
    assert [event["kind"] for event in life["events"]] == ["published", "dead", "redriven", "dropped"]
    assert [event["reason"] for event in life["events"]] == [None, "deliveries", None, "deleted"]
    assert life["state"] is None
    assert life["events"][0]["source"].startswith("http first admin")


@pytest.mark.parametrize("state", ["ready", "out", "delayed", "dead"])
@pytest.mark.parametrize("place", [(), (1,), (1, 2), (1, 2, 3, 4)])
def test_a_foreign_cursor_is_rejected(api: Api, queue: str, state: str, place: tuple[int, ...]) -> None:
    found = api.ask("GET", f"/api/v1/queues/{path_of(queue)}/messages", state=state, cursor=encode_cursor(state, place))
    assert (found.status, found.value["field"]) == (400, "query.cursor")
