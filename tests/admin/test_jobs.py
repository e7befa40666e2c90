"""Jobs: redrive, move, delete and purge all, selected or found messages; at a rate, cancelled, resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from penstock.admin.audit import Audit
from penstock.admin.jobs import AT_A_TIME, JobRecord, Jobs
from penstock.admin.store import StateFile
from support.web import Api, WebBroker, eventually, path_of


@pytest.fixture
def dead(broker: WebBroker, api: Api, queue: str) -> str:
    """A queue with dead letters: ten of one sort, five of another."""
    api.publish(queue, *(f"order {number}" for number in range(10)), *(f"bill {number}" for number in range(5)))
    broker.kill_messages(queue)
    assert api.get(f"queues/{path_of(queue)}")["dead_by_reason"] == {"deliveries": 15}
    return queue


def payloads(api: Api, queue: str, state: str) -> list[str]:
    found = api.all(f"queues/{path_of(queue)}/messages", state=state)
    return [each["payload"]["value"] for each in found]


def test_dead_letters_are_grouped_by_reason(api: Api, dead: str) -> None:
    (group,) = api.get("dead", pattern=dead)["items"]
    assert (group["queue"], group["reason"], group["count"]) == (dead, "deliveries", 15)
    assert group["oldest"] is not None
    assert api.get("overview")["dead_by_reason"]["deliveries"] >= 15


def test_all_dead_letters_are_redriven(api: Api, dead: str) -> None:
    job = api.job(api.do("POST", "jobs", {"kind": "redrive", "queue": dead}))
    assert (job["done"], job["skipped"]) == (15, 0)
    assert len(payloads(api, dead, "ready")) == 15
    assert payloads(api, dead, "dead") == []


def test_selected_dead_letters_are_moved_to_another_queue(api: Api, dead: str) -> None:
    target = f"{dead}-target"
    api.do("PUT", f"queues/{path_of(target)}", {})
    ids = [each["id"] for each in api.get(f"queues/{path_of(dead)}/messages", state="dead")["items"]][2:5]
    body = {"kind": "redrive", "queue": dead, "target": target, "ids": [*ids, "0" * 32]}
    job = api.job(api.do("POST", "jobs", body))
    assert (job["done"], job["skipped"], job["total"]) == (3, 1, 4)
    assert payloads(api, target, "ready") == ["order 2", "order 3", "order 4"]
    assert len(payloads(api, dead, "dead")) == 12


def test_a_search_selects_dead_letters(api: Api, dead: str) -> None:
    job = api.job(api.do("POST", "jobs", {"kind": "redrive", "queue": dead, "search": {"text": "bill"}}))
    assert job["done"] == 5
    assert payloads(api, dead, "ready") == [f"bill {number}" for number in range(5)]
    job = api.job(api.do("POST", "jobs", {"kind": "delete", "queue": dead, "search": {"text": "order 1"}}))
    assert job["done"] == 1
    assert len(payloads(api, dead, "dead")) == 9


def test_ready_messages_are_moved_and_stay_after_a_restart(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        api = broker.api
        for name in ("from", "to"):
            api.do("PUT", f"queues/default/{name}", {})
        api.publish("default/from", *(f"m{number}" for number in range(600)), correlation_id="c")
        api.publish("default/from", "later", delay_seconds=1000.0)
        body = {"kind": "move", "queue": "default/from", "state": "ready", "target": "default/to"}
        assert api.job(api.do("POST", "jobs", body))["done"] == 600
        body = {**body, "state": "delayed"}
        assert api.job(api.do("POST", "jobs", body))["done"] == 1
        expected = [*(f"m{number}" for number in range(600)), "later"]
        assert payloads(api, "default/to", "ready") == expected
        broker.kill()
        broker.start()
        api = broker.api
        assert payloads(api, "default/to", "ready") == expected
        source = api.get("queues/default/from")
        assert (source["ready"], source["delayed"], source["counters"]["moved_out"]) == (0, 0, 601)


def test_newer_messages_before_the_old_ones_do_not_stop_a_job(api: Api, queue: str) -> None:
    """A job takes the messages present when it began, even if a full step of newer ones now precedes them."""
    target = f"{queue}-target"
    api.do("PUT", f"queues/{path_of(target)}", {})
    api.publish(queue, *(f"old {number}" for number in range(8)))
    body = {"kind": "move", "queue": queue, "state": "ready", "target": target, "rate": 2}
    job = api.do("POST", "jobs", body)
    eventually(lambda: api.get(f"jobs/{job['id']}")["done"] >= 2)
    api.publish(queue, *(f"new {number}" for number in range(8)), priority=9)
    assert api.job(job)["done"] == 8
    assert payloads(api, target, "ready") == [f"old {number}" for number in range(8)]
    assert len(payloads(api, queue, "ready")) == 8


def test_newer_messages_among_the_old_ones_do_not_stop_a_search(api: Api, queue: str) -> None:
    target = f"{queue}-target"
    api.do("PUT", f"queues/{path_of(target)}", {})
    api.publish(queue, *(f"old {number}" for number in range(4)), priority=5)
    api.publish(queue, *(f"old {number}" for number in range(4, 8)))
    search = {"search": {"published_from": "2020-01-01T00:00:00Z"}}
    job = api.do(
        "POST", "jobs", {"kind": "move", "queue": queue, "state": "ready", "target": target, "rate": 2, **search}
    )
    eventually(lambda: api.get(f"jobs/{job['id']}")["done"] >= 2)
    api.publish(queue, *(f"new {number}" for number in range(8)), priority=5)
    assert api.job(job)["done"] == 8
    assert sorted(payloads(api, target, "ready")) == [f"old {number}" for number in range(8)]


def test_a_cancelled_job_frees_its_slot_however_slow_it_was(api: Api, dead: str) -> None:
    slow = [api.do("POST", "jobs", {"kind": "redrive", "queue": dead, "rate": 0.001}) for _ in range(AT_A_TIME)]
    for job in slow:
        path = f"jobs/{job['id']}"
        eventually(partial(lambda path: api.get(path)["done"], path))
        assert api.do("POST", f"jobs/{job['id']}/cancel")["state"] == "cancelled"
    eventually(lambda: api.ask("POST", f"/api/v1/jobs/{slow[0]['id']}/resume").status == 200)
    api.do("POST", f"jobs/{slow[0]['id']}/cancel")
    api.job(api.do("POST", "jobs", {"kind": "redrive", "queue": dead}))
    assert len(payloads(api, dead, "ready")) == 15


def test_a_job_at_a_rate_is_cancelled_and_resumed(api: Api, dead: str) -> None:
    job = api.do("POST", "jobs", {"kind": "redrive", "queue": dead, "rate": 4})
    eventually(lambda: api.get(f"jobs/{job['id']}")["done"] >= 4)
    cancelled = api.do("POST", f"jobs/{job['id']}/cancel")
    assert cancelled["state"] == "cancelled"
    left = len(payloads(api, dead, "dead"))
    assert 0 < left < 15
    assert api.refused("POST", f"jobs/{job['id']}/cancel")["code"] == "conflict"
    eventually(lambda: api.ask("POST", f"/api/v1/jobs/{job['id']}/resume").status == 200)
    assert api.job(job)["done"] == 15
    assert len(payloads(api, dead, "ready")) == 15


def test_an_interrupted_job_resumes_after_a_restart(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        api = broker.api
        api.do("PUT", "queues/default/cut", {"rules": {"max_deliveries": 1}})
        api.publish("default/cut", *(f"m{number}" for number in range(20)))
        broker.kill_messages("default/cut")
        job = api.do("POST", "jobs", {"kind": "redrive", "queue": "default/cut", "rate": 5})
        eventually(lambda: api.get(f"jobs/{job['id']}")["done"] >= 5)
        broker.kill()
        broker.start()
        api = broker.api
        assert api.get(f"jobs/{job['id']}")["state"] == "interrupted"
        api.do("POST", f"jobs/{job['id']}/resume")
        api.job(job)
        assert sorted(payloads(api, "default/cut", "ready")) == sorted(f"m{number}" for number in range(20))
        assert payloads(api, "default/cut", "dead") == []


def test_a_purge_removes_only_the_selected_states(api: Api, dead: str) -> None:
    api.publish(dead, "ready")
    api.publish(dead, "delayed", delay_seconds=1000.0)
    path = f"queues/{path_of(dead)}/purge"
    assert api.refused("POST", path, {"states": ["ready"], "confirm": "default/other"})["field"] == "body.confirm"
    assert api.job(api.do("POST", path, {"states": ["ready"], "confirm": dead}))["done"] == 1
    assert payloads(api, dead, "delayed") == ["delayed"]
    api.publish(dead, "ready")
    assert api.job(api.do("POST", path, {"states": ["ready", "delayed"], "confirm": dead}))["done"] == 2
    assert len(payloads(api, dead, "dead")) == 15
    job = api.job(api.do("POST", path, {"states": ["dead"], "confirm": dead}))
    assert (job["done"], job["total"]) == (15, 15)
    assert "empty" in api.get(f"queues/{path_of(dead)}")["states"]


def test_jobs_are_listed_newest_first(api: Api, dead: str) -> None:
    ids = [api.do("POST", "jobs", {"kind": "redrive", "queue": dead})["id"] for _ in range(3)]
    listed = [each["id"] for each in api.all("jobs", limit=2)]
    assert listed[:3] == ids[::-1]
    assert api.refused("GET", "jobs/nothing")["code"] == "not-found"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "shred"}, "body.kind"),
        ({"queue": "nothing"}, "body.queue"),
        ({"state": "ready"}, "body.state"),
        ({"kind": "move"}, "body.target"),
        ({"kind": "delete", "target": "default/x"}, "body.target"),
        ({"ids": ["xyz"]}, "body.ids[0]"),
        ({"ids": ["0" * 32], "search": {}}, "body.search"),
        ({"rate": -1}, "body.rate"),
        ({"search": {"reason": "boredom"}}, "body.search.reason"),
    ],
)
def test_contradictory_jobs_are_rejected(api: Api, queue: str, change: dict[str, object], field: str) -> None:
    problem = api.refused("POST", "jobs", {"kind": "redrive", "queue": queue, **change})
    assert (problem["status"], problem["field"]) == (400, field)


def test_a_job_that_meets_an_internal_error_fails_and_reports_it() -> None:
    """It must not stay "running"."""

    async def story() -> None:
        store, faults = StateFile(""), list[BaseException]()

        async def backup(record: JobRecord, pace: Callable[[], Awaitable[None]]) -> None:
            raise ValueError("an unforeseen fault")

        broker, mirror = Mock(), Mock()
        broker.ask = AsyncMock(return_value=Mock(committed=1))
        jobs = Jobs(broker, mirror, Mock(), store, Audit(store), backup, faults.append)
        job = await jobs.add(JobRecord(id="", kind="backup", by="somebody 127.0.0.1", queue=""))
        while jobs.records[job.id].status in ("waiting", "running"):
            await asyncio.sleep(0)
        assert (jobs.records[job.id].status, [str(fault) for fault in faults]) == ("failed", ["an unforeseen fault"])
        store.close()

    asyncio.run(story())
