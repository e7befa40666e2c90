"""Connections and locks: listed, closed, released. Readers and writers."""

from __future__ import annotations

from penstock.client import connect
from support.raw import CONFIRM, RECEIVE, send, sspq
from support.web import Api, WebBroker, eventually, path_of


def test_a_connection_is_listed_and_closed(broker: WebBroker, api: Api, queue: str) -> None:
    api.publish(queue, "x", "y")
    with connect(broker.url("kokaq", f"/{queue}")) as client:
        message = client.lock()
        assert message is not None
        (mine,) = [each for each in api.all("connections", protocol="kokaq") if each["out"]]
        assert (mine["out"], mine["tls"], mine["throttled"]) == (1, False, "")
        assert mine["peer"].startswith("127.0.0.1:")
        (wish,) = api.get(f"connections/{mine['id']}")["subscriptions"]
        assert wish == {"queue": queue, "window": 0, "credit": 0, "dead": False}
        (lock,) = api.all("locks", pattern=queue)
        assert (lock["queue"], lock["connection"]) == (queue, mine["id"])
        assert 0 < lock["seconds_left"] <= 30
        assert api.get(f"queues/{path_of(queue)}/messages/{lock['message']}")["holder"]["connection"] == mine["id"]
        assert api.get(f"queues/{path_of(queue)}/messages", state="out")["total"] == 1
        api.do("DELETE", f"connections/{mine['id']}")
        eventually(lambda: api.get(f"queues/{path_of(queue)}")["out"] == 0)
        assert api.refused("DELETE", f"connections/{mine['id']}")["code"] == "not-found"
    assert api.refused("DELETE", "connections/x")["field"] == "path.id"


def test_a_lock_is_released(broker: WebBroker, api: Api) -> None:
    api.do("PUT", "queues/default/locked", {})
    api.publish("default/locked", "x")
    with connect(broker.url("kokaq", "/default/locked")) as client:
        assert client.lock() is not None
        (lock,) = api.all("locks", pattern="default/locked")
        blind = api.token_for("blind", ["operate"], ["elsewhere/*"])
        assert blind.all("locks") == []
        assert blind.refused("DELETE", f"locks/{lock['message']}")["code"] == "not-found"
        api.do("DELETE", f"locks/{lock['message']}")
        detail = api.get("queues/default/locked")
        assert (detail["ready"], detail["out"]) == (1, 0)
        assert api.refused("DELETE", f"locks/{lock['message']}")["code"] == "not-found"


def test_many_locks_are_paged(broker: WebBroker, api: Api) -> None:
    api.do("PUT", "queues/default/many", {})
    api.publish("default/many", *map(str, range(9)))
    with connect(broker.url("kokaq", "/default/many")) as client:
        for _ in range(9):
            assert client.lock() is not None
        ids = [each["message"] for each in api.all("locks", pattern="default/many", limit=2)]
        assert len(set(ids)) == len(ids) == 9


def test_consumers_are_counted_and_listed_by_queue(broker: WebBroker, api: Api) -> None:
    with connect(broker.url("phpmq", "/wanted")) as client:
        messages = client.consume(window=5)
        client.publish(b"x")
        next(iter(messages)).ack()
        detail = eventually(lambda: found if (found := api.get("queues/default/wanted"))["consumers"] else None)
        assert detail["consumers"] == 1
        assert detail["counters"]["delivered"] == 1
        (mine,) = api.all("connections", queue="default/wanted")
        assert mine["protocol"] == "phpmq"
        (wish,) = api.get(f"connections/{mine['id']}")["subscriptions"]
        assert (wish["queue"], wish["window"], wish["dead"]) == ("default/wanted", 5, False)
    eventually(lambda: api.get("queues/default/wanted")["consumers"] == 0)
    answer = api.ask("GET", "/api/v1/connections", queue="default/nothing")
    assert (answer.status, answer.value["field"]) == (404, "query.queue")


def test_a_connection_that_polls_is_a_consumer(broker: WebBroker, api: Api) -> None:
    """Kokaq has no windows: a connection that pops or locks counts as a consumer until it has been idle for a while."""
    api.do("PUT", "queues/default/polled", {})
    with connect(broker.url("kokaq", "/default/polled")) as client:
        assert client.pop() is None
        api.publish("default/polled", "x", "y")
        detail = eventually(lambda: found if (found := api.get("queues/default/polled"))["consumers"] else None)
        assert (detail["consumers"], detail["ready"]) == (1, 2)
        assert "backlog" not in detail["states"]
        (mine,) = api.all("connections", queue="default/polled")
        assert (mine["protocol"], mine["consumers"]) == ("kokaq", 1)
        assert client.lock() is not None
        assert api.get("queues/default/polled")["consumers"] == 1
    eventually(lambda: api.get("queues/default/polled")["consumers"] == 0)
    assert "backlog" in api.get("queues/default/polled")["states"]


def test_an_sspq_worker_is_one_consumer_whether_it_waits_or_works(broker: WebBroker, api: Api) -> None:
    with broker.dial("sspq") as worker:
        worker.send(sspq(RECEIVE))
        eventually(lambda: api.get("queues/default/sspq")["consumers"] == 1)
        api.publish("default/sspq", "x")
        worker.expect(send(b"x", 255))
        eventually(lambda: api.get("queues/default/sspq")["out"] == 1)
        assert api.get("queues/default/sspq")["consumers"] == 1
        (mine,) = api.all("connections", queue="default/sspq")
        assert (mine["protocol"], mine["consumers"], mine["out"]) == ("sspq", 1, 1)
        worker.send(sspq(CONFIRM))
    eventually(lambda: api.get("queues/default/sspq")["consumers"] == 0)


def test_without_readers_and_writers_the_lists_are_empty(api: Api) -> None:
    for path in ("readers", "writers", "leases"):
        assert api.get(path)["items"] == []
    for path in ("readers/nobody", "writers/nobody"):
        assert api.refused("DELETE", path)["code"] == "not-found"
