"""The broker as a whole: overview, health, the stream, metrics, draining, definitions, backups, and its process."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock import compiled
from penstock.admin import admin_requests as requests
from penstock.admin.audit import Audit
from penstock.admin.definitions import Importer
from penstock.admin.gatekeeper import Caller
from penstock.admin.handlers.live import MOST_STREAMS
from penstock.admin.metrics import MOST_SERIES
from penstock.admin.mirror import Mirror
from penstock.admin.problems import ApiProblem, problem
from penstock.admin.resources.common import Change
from penstock.admin.routes import BY_NAME
from penstock.admin.store import StateFile
from penstock.admin.watched_broker import WatchedBroker
from penstock.client import connect
from penstock.companions.rights import Allowed
from penstock.core.policy import QueueRules
from penstock.journal.backup import BackupError, copy_journal, restore_backup
from penstock.server.admin.http_companion import default_backups
from support.brokers import BrokerProcess
from support.commands import COMMAND, environment
from support.web import Api, WebBroker, eventually, path_of


def test_the_overview_reports_the_state_of_the_broker(broker: WebBroker, api: Api, queue: str) -> None:
    api.publish(queue, "x", "y")
    overview = api.get("overview")
    assert overview["ready"]
    assert overview["code"] == compiled.state.value
    assert overview["totals"]["ready"] >= 2
    assert overview["totals"]["oldest"] is not None
    assert queue in overview["busiest"]
    assert overview["listeners"]["http"] == [broker.addresses["http"]]
    assert overview["disk"]["free_bytes"] > 0
    assert eventually(lambda: api.get("overview")["totals"]["rates"]["published"] >= 0)
    assert api.get("history")["items"][-1]["ready"] >= 2


def test_the_commits_are_measured(api: Api, queue: str) -> None:
    for _ in range(5):
        api.publish(queue, "x")
    text = api.ask("GET", "/metrics").body.decode()
    (count,) = re.findall(r"^penstock_commit_seconds_count (\d+)$", text, re.M)
    (syncs,) = re.findall(r"^penstock_sync_seconds_count (\d+)$", text, re.M)
    assert int(count) >= 5
    assert int(syncs) >= 5


def test_health(broker: WebBroker) -> None:
    anonymous = Api(broker.addresses["http"])
    assert anonymous.ask("GET", "/healthz").value["ok"]
    assert anonymous.ask("GET", "/readyz").value == {"ok": True, "role": "serving", "reasons": []}
    assert anonymous.ask("HEAD", "/healthz").body == b""
    assert anonymous.ask("POST", "/healthz").value["code"] == "method-not-allowed"


def test_a_drain_lets_clients_empty_the_queues(broker: WebBroker, api: Api, queue: str) -> None:
    api.publish(queue, "x")
    try:
        assert api.do("PUT", "drain", {})["active"]
        assert api.refused("POST", f"queues/{path_of(queue)}/messages", {"messages": [{"payload": "x"}]})["code"] == (
            "refused"
        )
        ready = Api(broker.addresses["http"]).ask("GET", "/readyz")
        assert ready.status == 503
        assert "operator" in ready.value["reasons"][0]
        with connect(broker.url("kokaq", f"/{queue}")) as client:
            assert client.pop() is not None
        assert api.get("drain")["by"].startswith("first admin")
    finally:
        api.do("DELETE", "drain")
    api.publish(queue, "x")


def test_a_drained_broker_stops_by_itself(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        api = broker.api
        api.do("PUT", "queues/default/last", {})
        api.publish("default/last", "x")
        api.do("PUT", "drain", {"stop_when_empty": True})
        with connect(broker.url("kokaq", "/default/last")) as client:
            assert client.pop() is not None
        assert broker.ended() == 0


def test_a_stop_needs_confirmation(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        assert broker.api.refused("POST", "stop", {"confirm": "please"})["field"] == "body.confirm"
        broker.api.do("POST", "stop", {"confirm": "stop"})
        assert broker.ended() == 0


# Definitions


def test_definitions_configure_another_broker_the_same_way(api: Api, queue: str, tmp_path: Path) -> None:
    api.do("PUT", f"queues/{path_of('défs/a b/c')}", {"rules": {"max_depth": 9, "default_ttl_seconds": 0.5}})
    toml = api.ask("GET", "/api/v1/definitions", format="toml").body
    with WebBroker(tmp_path) as other:
        there = other.api
        headers = {"content-type": "application/toml"}
        dry = there.ask("POST", "/api/v1/definitions?dry_run=true", toml, headers).value
        assert not dry["applied"]
        assert there.get("queues", pattern="défs/*")["items"] == []
        done = there.ask("POST", "/api/v1/definitions", toml, headers).value
        assert done == {**dry, "applied": True}
        mine, theirs = api.get("definitions"), there.get("definitions")
        assert theirs["queues"].items() >= mine["queues"].items()
        again = there.ask("POST", "/api/v1/definitions?dry_run=true", toml, headers).value
        assert again["changes"] == []
        only = {"namespaces": ["default"], "queues": {"default/sspq": {}}}
        removed = there.do("POST", "definitions?remove=true", only)
        assert {"queue", "namespace"} == {each["what"] for each in removed["changes"]}
        assert set(there.get("definitions")["queues"]) == {"default/sspq"}


def test_a_dry_run_adds_nothing_to_the_audit_log(api: Api) -> None:
    definitions: Any = {"queues": {"default/dry": {}}}
    api.do("POST", "definitions?dry_run=true", definitions)
    [entry, *_] = api.get("audit", action="import-definitions")["items"]
    assert (entry["outcome"], entry["after"]) == ("dry-run", None)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    """A broker with room for five queues in two namespaces."""
    limits = {"queues": 5, "namespaces": 2, "name_bytes": 20}
    with WebBroker(tmp_path_factory.mktemp("small"), limits=limits) as found:
        yield found


@pytest.mark.parametrize(
    ("definitions", "remove", "expected"),
    [
        (
            {"queues": {f"default/{n}": {} for n in range(5)}},
            "false",
            "exceed limits.queues, which is 5; nothing was changed",
        ),
        ({"namespaces": ["a", "b"]}, "false", "exceed limits.namespaces, which is 2; nothing was changed"),
        ({"queues": {"default/ok": {}, f"default/{'x' * 21}": {}}}, "false", "a name has 1 to 20 bytes"),
        ({"namespaces": ["ok", "a/b"]}, "false", "a namespace no /"),
        ({"queues": {"default/ok": {}}}, "true", "default/full has messages and can't be deleted; nothing"),
    ],
)
def test_an_import_that_would_be_refused_half_way_changes_nothing(
    small: WebBroker, definitions: Any, remove: str, expected: str
) -> None:
    api = small.api
    if not api.get("queues", pattern="default/full")["items"]:
        api.do("PUT", "queues/default/full", {})
        api.publish("default/full", "x")
    before = api.get("definitions")
    for dry in ("", "&dry_run=true"):
        refusal = api.refused("POST", f"definitions?remove={remove}{dry}", definitions)
        assert expected in refusal["detail"]
    assert api.get("definitions") == before
    assert api.get("audit", action="import-definitions")["items"][0]["outcome"] == "refused"


class _Refusing(WatchedBroker):
    """A broker that refuses the third queue, as if another client had just created it."""

    def __init__(self) -> None:
        super().__init__("")
        self.made: list[str] = []

    async def ask(self, request: Any, kind: Any) -> Any:
        if isinstance(request, requests.CreateQueue):
            if len(self.made) == 2:
                raise problem("conflict", "the queue a/3 already exists")
            self.made.append(request.name)


def test_an_import_that_is_refused_half_way_reports_completed_changes() -> None:
    broker = _Refusing()
    changes = [Change(what="queue", name=f"a/{n}", action="create", after=QueueRules()) for n in range(1, 6)]
    with pytest.raises(ApiProblem) as caught:
        asyncio.run(Importer(broker, Mirror(broker)).apply(changes, "somebody"))
    refusal = caught.value.problem
    assert "2 of 5 changes were made, up to create queue a/2; then create queue a/3 was refused" in refusal.detail
    assert [each["name"] for each in refusal.current["made"]] == ["a/1", "a/2"]
    assert (refusal.current["refused"]["name"], refusal.current["left"]) == ("a/3", 3)
    store = StateFile("")
    Audit(store).record_refusal(BY_NAME["import-definitions"], {}, Caller("x", "", Allowed(open=False)), caught.value)
    [entry] = store.rows("select outcome, after from audit")
    assert entry[0] == "partial"
    assert '"made":2,"of":5' in entry[1]
    store.close()


@pytest.mark.parametrize("body", [b"x = ", b"\xff", b"queues = 1", b'queues."a" = {}'])
def test_bad_definitions_are_refused(api: Api, body: bytes) -> None:
    answer = api.ask("POST", "/api/v1/definitions", body, {"content-type": "application/toml"})
    assert answer.status == 400
    assert answer.value["field"].startswith("body")


# Metrics


OPEN_METRICS = {"accept": "application/openmetrics-text"}


def samples(text: str) -> dict[str, float]:
    """The samples of an OpenMetrics text, whose syntax is checked."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    families: dict[str, str] = {}
    found: dict[str, float] = {}
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in families, "a family comes once"
            families[name] = kind
        elif not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            assert key not in found, key
            found[key] = float(value)
            name = key.partition("{")[0]
            endings = {
                "counter": ["_total"],
                "gauge": [""],
                "histogram": ["_bucket", "_count", "_sum"],
                "info": ["_info"],
            }
            assert any(name == f"{family}{end}" for family, kind in families.items() for end in endings[kind]), line
    return found


def test_metrics_are_open_metrics(api: Api, queue: str) -> None:
    before = samples(api.ask("GET", "/metrics", headers=OPEN_METRICS).body.decode())
    api.publish(queue, "x", "y", "z")
    answer = api.ask("GET", "/metrics", headers=OPEN_METRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    after = samples(answer.body.decode())
    assert after['penstock_messages{state="ready"}'] - before['penstock_messages{state="ready"}'] == 3
    assert after["penstock_published_messages_total"] - before["penstock_published_messages_total"] == 3
    assert after["penstock_ready"] == 1
    assert after['penstock_commit_seconds_bucket{le="+Inf"}'] == after["penstock_commit_seconds_count"]


def test_metrics_per_queue_are_bounded(api: Api, queue: str) -> None:
    api.publish(queue, "x")
    text = api.ask("GET", "/metrics/per-queue", headers=OPEN_METRICS, queue=queue).body.decode()
    found = samples(text)
    assert found[f'penstock_queue_messages{{queue="{queue}",state="ready"}}'] == 1
    assert not [key for key in found if 'queue="' in key and queue not in key]
    assert api.ask("GET", "/metrics/per-queue").value["field"] == "query.queue"
    odd = 'default/a"b\\c\n'
    api.do("PUT", f"queues/{path_of(odd)}", {})
    assert 'queue="default/a\\"b\\\\c\\n"' in api.ask("GET", "/metrics/per-queue", queue=odd).body.decode()


def test_queues_beyond_the_limit_have_no_series_and_are_counted(tmp_path: Path) -> None:
    """A scrape of too many queues must not fail: the alert would say that the broker is down."""
    queues: dict[str, Any] = {f"many/q{n:04}": {} for n in range(MOST_SERIES + 5)}
    with WebBroker(tmp_path) as broker:
        broker.api.do("POST", "definitions", {"queues": queues})
        answer = broker.api.ask("GET", "/metrics/per-queue", headers=OPEN_METRICS, queue="many/*")
        found = samples(answer.body.decode())
        assert found["penstock_queue_series_omitted"] == 5
        named = [key for key in found if key.startswith("penstock_queue_paused")]
        assert len(named) == MOST_SERIES
        assert named[0] == 'penstock_queue_paused{queue="many/q0000"}'
        assert named[-1] == f'penstock_queue_paused{{queue="many/q{MOST_SERIES - 1:04}"}}'
        few = samples(
            broker.api.ask("GET", "/metrics/per-queue", headers=OPEN_METRICS, queue="many/q000*").body.decode()
        )
        assert few["penstock_queue_series_omitted"] == 0


@pytest.mark.parametrize(
    ("accept", "open_metrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5, text/plain;version=0.0.4;q=0.3, */*;q=0.1", True),
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.2", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x, ;;,=", False),
    ],
)
def test_the_client_chooses_the_format_of_metrics(api: Api, accept: str, open_metrics: bool) -> None:
    for path in ("/metrics", "/metrics/per-queue?queue=*"):
        answer = api.ask("GET", path, headers={"accept": accept} if accept else {})
        media = "application/openmetrics-text; version=1.0.0" if open_metrics else "text/plain; version=0.0.4"
        assert answer.headers["content-type"] == f"{media}; charset=utf-8"
        assert answer.headers["vary"] == "accept"
        assert answer.body.endswith(b"# EOF\n") == open_metrics


def test_the_build_and_the_processes_are_measured(broker: WebBroker, api: Api) -> None:
    found = samples(api.ask("GET", "/metrics", headers=OPEN_METRICS).body.decode())
    [build] = [key for key in found if key.startswith("penstock_build_info")]
    assert f'code="{compiled.state.value}"' in build
    assert f'version="{version("penstock")}"' in build
    assert broker.process is not None
    own = Path(f"/proc/{broker.process.pid}")
    for process in ("broker", "http"):
        label = f'{{process="{process}"}}'
        assert found[f"process_cpu_seconds_total{label}"] > 0
        assert found[f"process_resident_memory_bytes{label}"] > 2**20
        assert 3 < found[f"process_open_fds{label}"] <= found[f"process_max_fds{label}"]
        assert abs(found[f"process_start_time_seconds{label}"] - own.stat().st_ctime) < 3600
    assert abs(found['process_open_fds{process="broker"}'] - len(list((own / "fd").iterdir()))) < 20


def test_metrics_can_be_public(tmp_path: Path) -> None:
    with WebBroker(tmp_path, http={"address": "127.0.0.1:0", "public_metrics": True}) as broker:
        anonymous = Api(broker.addresses["http"])
        assert samples(anonymous.ask("GET", "/metrics", headers=OPEN_METRICS).body.decode())["penstock_queues"] == 1
        assert anonymous.ask("GET", "/metrics/per-queue", queue="*").status == 200
        assert anonymous.ask("GET", "/api/v1/overview").status == 401


# Its socket


@pytest.mark.parametrize("what", ["a file", "a link", "a broker"])
def test_a_file_at_the_path_of_the_socket_is_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        if what == "a file":
            path.write_text("precious")
        elif what == "a link":
            path.symlink_to(tmp_path / "precious")
        else:
            listening.bind(str(path))
            listening.listen()
        broker = WebBroker(tmp_path, http=f"unix:{path}")
        with pytest.raises(AssertionError, match=r"is not a socket|another process already listens"):
            broker.start()
        assert broker.ended() != 0
        assert os.path.lexists(path)


def test_the_socket_is_for_its_user_and_group_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))  # as a crash would leave it
    with WebBroker(tmp_path, http=f"unix:{path}") as broker:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        broker.stop()
    assert not path.exists()


def test_definitions_that_are_nested_too_deeply_are_rejected(api: Api) -> None:
    problem = api.refused("POST", "definitions", b"a=" + b"[" * 20_000, {"content-type": "application/toml"})
    assert (problem["code"], problem["field"]) == ("bad-request", "body")


# The stream


def events(api: Api, **query: Any) -> Generator[tuple[str, Any], None, None]:
    where = urlsplit(api.address)
    path = "/api/v1/stream?" + "&".join(f"{name}={value}" for name, value in query.items())
    with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)) as connection:
        shown = {"authorization": f"Bearer {api.token}"} if api.token else {}
        connection.request("GET", path, headers={**api.headers, **shown})
        answer = connection.getresponse()
        assert answer.headers["content-type"] == "text/event-stream"
        name = ""
        while line := answer.readline():
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                yield name, json.loads(text[6:])


def test_the_stream_reports_changes(api: Api, queue: str) -> None:
    latest: dict[str, Any] = {}
    published = False
    for name, value in events(api, queue=queue, every=0.5):
        latest[name] = value
        if not published:
            api.publish(queue, "x")
            published = True
        if name == "queue" and value["ready"] == 1:
            break
    assert {"overview", "queue"} <= latest.keys()


def test_the_stream_needs_the_right_to_view(api: Api, queue: str) -> None:
    blind = api.token_for("blind", ["view"], ["elsewhere/*"])
    assert blind.ask("GET", "/api/v1/stream", queue=queue).value["field"] == "query.queue"
    assert api.ask("GET", "/api/v1/stream", every=0).value["field"] == "query.every"


def test_streams_end_when_their_clients_disconnect(api: Api) -> None:
    """Otherwise a console that is opened often enough could open no more streams."""
    for _ in range(MOST_STREAMS + 10):
        with closing(events(api, every=60)) as found:
            assert next(found)[0] == "overview"
    assert api.ask("HEAD", "/api/v1/stream").status == 200


def test_a_stream_ends_when_its_token_is_revoked(api: Api) -> None:
    made = api.do("POST", "tokens", {"name": "leaver", "may": ["view"], "where": ["*"]})
    found = events(api.with_token(made["token"]), every=0.5)
    assert next(found)[0] == "overview"
    api.do("DELETE", f"tokens/{made['summary']['id']}")
    assert len(list(found)) < 10


def test_a_stream_ends_with_its_login(api: Api) -> None:
    cookie = api.ask("POST", "/api/v1/session", {"token": api.token}).headers["set-cookie"].partition(";")[0]
    browser = Api(api.address, headers={"cookie": cookie})
    found = events(browser, every=0.5)
    assert next(found)[0] == "overview"
    browser.do("DELETE", "session")
    assert len(list(found)) < 10


# Backups


def test_backups_are_beside_the_data_unless_that_folder_is_read_only(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    assert default_backups(str(data)) == f"{data}-backups"
    (tmp_path / "new").write_text("")  # a folder that can't be written, for root as well
    assert default_backups(str(data)) == f"{data}/backups"


def test_a_backup_under_load_has_every_confirmed_message(tmp_path: Path) -> None:
    confirmed: list[str] = []
    stop = threading.Event()
    (tmp_path / "a").mkdir()
    with WebBroker(tmp_path / "a") as broker:
        api = broker.api
        api.do("PUT", "queues/default/load", {})

        def load() -> None:
            with connect(broker.url("kokaq", "/default/load")) as client:
                while not stop.is_set():
                    text = f"m{len(confirmed)}"
                    client.publish(text.encode())
                    confirmed.append(text)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            eventually(lambda: len(confirmed) > 200)
            before = len(confirmed)
            job = api.job(api.do("POST", "backups", {"name": "one"}))
            eventually(lambda: len(confirmed) > before + 100)
        finally:
            stop.set()
            thread.join()
        (backup,) = api.get("backups")["items"]
        assert job["detail"] == backup["folder"] == f"{broker.data}-backups/one"
        assert api.refused("POST", "backups", {"name": "one"})["field"] == "body.name"
        assert api.refused("POST", "backups", {"name": "../x"})["field"] == "body.name"
        token = api.token
    restored = tmp_path / "b"
    restored.mkdir()
    with pytest.raises(BackupError, match="not a backup"):
        restore_backup(str(tmp_path), str(restored / "data"))
    restore_backup(backup["folder"], str(restored / "data"))
    with WebBroker(restored) as other:
        there = Api(other.addresses["http"], token)  # tokens are part of it
        restored = there.get("queues/default/load")
        assert before <= restored["ready"] <= len(confirmed)
        page = there.all("queues/default/load/messages", limit=1000)
        assert [each["payload"]["value"] for each in page] == confirmed[: len(page)]


def test_a_cancelled_copy_leaves_nothing_behind(broker: WebBroker, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="cancelled"):
        copy_journal(str(broker.data), str(tmp_path / "copy"), lambda size: False)
    assert list(tmp_path.iterdir()) == []


# The process


def test_a_killed_process_is_restarted(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
        (child,) = [int(each) for each in children]
        os.kill(child, signal.SIGKILL)
        eventually(lambda: broker.events("the HTTP process is ready"))
        assert broker.api.get("overview")["ready"]


def test_an_address_in_use_is_reported(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = WebBroker(tmp_path, http=address)
        broker.begin()
        assert broker.ended() == 3
    assert f"http cannot listen on {address}: Address already in use" in broker.log.read_text()


def test_an_ephemeral_broker_serves_http(tmp_path: Path) -> None:
    with WebBroker(tmp_path, ephemeral=True) as broker:
        api = broker.api
        api.do("PUT", "queues/default/short", {})
        api.publish("default/short", "x")
        assert api.get("overview")["ephemeral"]
        assert api.get("queues/default/short")["ready"] == 1
        (message,) = api.get("queues/default/short/messages")["items"]
        assert message["payload"]["value"] == "x"
        assert api.get("journal")["kind"] == "memory"
        assert api.refused("POST", "backups", {})["code"] == "refused"


def test_http_can_be_turned_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, http="off") as broker:
        assert "http" not in broker.addresses


def test_other_paths_are_not_found(api: Api) -> None:
    for path in ("/nothing", "/api/v1", "/api/v1/", "/api/v2/queues", "//", "/api/v1/queues/default", "/%ff"):
        assert api.ask("GET", path).status in (400, 404)


def test_bodies_are_bounded(api: Api) -> None:
    problem = api.refused("POST", "jobs", b"x" * (5 * 2**20))
    assert problem["code"] == "too-large"


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--http=127.0.0.1:0"], 3)], ids=["left out", "requested"])
def test_missing_uvicorn_is_reported_in_one_line(tmp_path: Path, flags: list[str], code: int) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['uvicorn'] = None\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    env = {name: value for name, value in environment(PYTHONPATH=path).items() if name != "PENSTOCK_HTTP"}
    ready = tmp_path / "ready.json"
    command = [*COMMAND, "serve", f"--data={tmp_path}/data", f"--ready-file={ready}", "--phpmq=127.0.0.1:0"]
    command += ["--sspq=off", "--kokaq=off", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        eventually(lambda: ready.exists() or process.poll() is not None)
        process.terminate()
        log = process.communicate(timeout=20)[1]
    assert process.returncode == code
    assert len([line for line in log.splitlines() if "pip install 'penstock[http]'" in line]) == 1
