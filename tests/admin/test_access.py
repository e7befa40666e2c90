"""Access to the HTTP API: every route by every role, tokens, logins, origins, and the limit on failed logins."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import stat
import sys
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.admin import audit
from penstock.admin import gatekeeper as gatekeeper_module
from penstock.admin.audit import Audit
from penstock.admin.gatekeeper import FAILURE_SECONDS, FAILURES, LOGINS_OF_TOKEN, Caller, Gatekeeper, digest_of
from penstock.admin.http import Response
from penstock.admin.problems import problem
from penstock.admin.routes import BY_NAME, ROUTES, Route
from penstock.admin.store import StateFile
from penstock.companions.rights import Allowed, AskRights
from support.certificates import Authority
from support.terminal import Terminal
from support.web import Answer, Api, WebBroker, eventually

ID = "0" * 32
#: A valid request body for each route that takes one.
BODIES: dict[str, Any] = {
    "login": {"token": "unknown"},
    "create-queue": {},
    "configure-queue": {},
    "purge-queue": {"states": ["ready"], "confirm": "x"},
    "publish": {"messages": [{"payload": "x"}]},
    "create-job": {"kind": "redrive", "queue": "here/one"},
    "create-backup": {"name": "matrix"},
    "begin-drain": {},
    "stop": {},  # not confirmed: the 400 comes after the check of rights
    "import-definitions": {},
    "create-token": {"name": "matrix", "may": ["view"]},
    "sql": {"query": "select 1"},
    "sql-export": {"query": "select 1", "format": "csv"},
    "save-query": {"query": "select 1"},
}
PLACES = {"id": ID, "name": "nobody", "namespace": "here", "queue": "one"}
ORDER = ("view", "operate", "admin")


def path_for(route: Route, **places: str) -> str:
    return route.path.format(**{**PLACES, **places})


def ask(api: Api, route: Route, **places: str) -> Answer:
    query: dict[str, Any] = {"queue": "*"} if route.name == "metrics-per-queue" else {}
    if route.name == "stream":
        query = {"every": 100}  # out of range, so that the request passes the check of rights and ends
    return api.ask(route.method, path_for(route, **places), BODIES.get(route.name), **query)


@pytest.fixture(scope="module")
def callers(broker: WebBroker) -> dict[str, Api]:
    """Clients with each role everywhere, only in ``here`` or only in ``elsewhere``; and an anonymous one."""
    admin = broker.api
    admin.do("PUT", "queues/here/one", {})
    clients = {"anonymous": Api(admin.address)}
    for role in ORDER:
        clients[role] = admin.token_for(role, [role], ["*"])
        clients[f"{role} here"] = admin.token_for(f"{role} here", [role], ["here/*"])
        clients[f"{role} elsewhere"] = admin.token_for(f"{role} elsewhere", [role], ["elsewhere/*"])
    clients["publisher"] = admin.token_for("publisher", ["publish", "consume", "administer", "read"], ["*"])
    return clients


def expected(route: Route, caller: str) -> bool:
    """Whether the route table lets this caller in."""
    if route.scope == "open":
        return True
    if caller == "anonymous":
        return False
    if route.scope == "known":
        return True
    if caller == "publisher":
        return False
    role, _, where = caller.partition(" ")
    assert route.needs is not None
    if ORDER.index(role) < ORDER.index(route.needs):
        return False
    if not where:
        return True
    if route.scope in ("queue", "namespace", "body"):
        return where == "here"
    return route.scope == "some"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_by_every_caller(broker: WebBroker, callers: dict[str, Api], route: Route) -> None:
    for name, api in callers.items():
        if route.name == "login" and name != "anonymous":
            continue
        answer = ask(api, route)
        if route.name == "login":
            assert answer.value["field"] == "body.token"
            continue
        let_in = answer.status not in (401, 403)
        assert let_in == expected(route, name), (route.name, name, answer)
        assert answer.status < 500 or answer.value["code"] in ("refused", "away"), (name, answer)
        if name == "anonymous" and not let_in:
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
    if route.name == "begin-drain":
        broker.api.do("DELETE", "drain")


def test_lists_contain_only_what_the_caller_may_see(api: Api, callers: dict[str, Api]) -> None:
    for name in ("here/one", "elsewhere/two"):
        api.ask("PUT", f"/api/v1/queues/{name}", {})
    here = callers["view here"]
    assert [each["name"] for each in here.get("queues")["items"]] == ["here/one"]
    assert [each["name"] for each in here.get("namespaces")["items"]] == ["here"]
    seen = here.get("overview")
    assert (seen["totals"]["queues"], seen["totals"]["namespaces"]) == (1, 1)
    whole = callers["view"].get("overview")
    own = {"name", "listeners", "connections", "connections_by_protocol", "readers", "memory_bytes", "disk"}
    assert not any(seen[each] for each in own), "what only a view of all queues shows elsewhere"
    assert whole["name"]
    assert whole["listeners"]
    assert whole["totals"]["namespaces"] > 1
    hidden = here.refused("GET", "queues/elsewhere/two")
    assert hidden == here.refused("GET", "queues/elsewhere/nothing")
    assert hidden["code"] == "denied"


def test_a_job_needs_the_right_for_both_queues(api: Api, callers: dict[str, Api]) -> None:
    body = {"kind": "move", "state": "ready", "queue": "here/one", "target": "elsewhere/two"}
    problem = callers["operate here"].refused("POST", "jobs", body)
    assert (problem["code"], problem["field"]) == ("denied", "body.target")


# Tokens


def test_the_first_token_is_for_its_user_alone(broker: WebBroker) -> None:
    file = broker.folder / "admin-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = (broker.data / "tokens.json").read_text()
    assert stat.S_IMODE((broker.data / "tokens.json").stat().st_mode) == 0o600
    assert broker.api.token not in kept
    assert broker.api.token not in broker.log.read_text()


def test_without_a_terminal_the_first_token_is_in_the_data_folder_and_not_in_the_log(tmp_path: Path) -> None:
    with WebBroker(tmp_path, admin_token_file="") as broker:
        file = broker.data / "admin-token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        (line,) = [line for line in broker.log.read_text().splitlines() if "the first admin token" in line]
        assert json.loads(line)["file"] == str(file)
        assert Api(broker.addresses["http"], token).get("session")["role"] == "admin"
        file.unlink()
        broker.stop()
        broker.start()
        assert not file.exists()
        assert Api(broker.addresses["http"], token).get("session")["role"] == "admin"
        assert token not in broker.log.read_text()


def test_on_a_terminal_the_first_token_is_shown_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    off = [f"--{name}=off" for name in ("phpmq", "sspq", "kokaq", "flight")]
    command = [sys.executable, "-m", "penstock", "serve", f"--data={data}", "--http=127.0.0.1:0", *off]
    with Terminal(command) as terminal:
        terminal.wait_for("the first admin token, shown this once: pk_")
        terminal.wait_for("\n")
        assert not (data / "admin-token").exists()


def test_an_ephemeral_broker_that_cannot_show_a_first_token_creates_none(tmp_path: Path) -> None:
    with WebBroker(tmp_path, admin_token_file="", ephemeral=True) as broker:
        assert "--admin-token-file" in broker.log.read_text()
        assert "pk_" not in broker.log.read_text()
        assert Api(broker.addresses["http"]).ask("GET", "/readyz").status == 200


def test_a_first_token_that_cannot_be_shown_is_not_created(tmp_path: Path) -> None:
    """The next start creates it; otherwise no one could ever log in."""
    file = tmp_path / "folder" / "token"
    broker = WebBroker(tmp_path, admin_token_file=str(file))
    with pytest.raises(AssertionError, match=r"--admin-token-file .*/token cannot be written: No such file"):
        broker.start()
    file.parent.mkdir()
    with broker:
        assert Api(broker.addresses["http"], file.read_text().strip()).get("session")["role"] == "admin"
    assert [each.name for each in file.parent.iterdir()] == ["token"]


def test_a_start_that_fails_does_not_use_up_the_first_token(tmp_path: Path) -> None:
    """The token is shown once, and the operator who repairs the configuration still needs it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = WebBroker(tmp_path, admin_token_file="", http=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(AssertionError, match="the broker ended at once"):
            broker.start()
        assert not (broker.data / "admin-token").exists()
        assert not (broker.data / "tokens.json").exists()


def test_a_token_is_created_listed_and_revoked(api: Api) -> None:
    made = api.do("POST", "tokens", {"name": "ci", "may": ["operate", "read"], "where": ["a/*", "b/c"]})
    other = api.with_token(made["token"])
    assert other.get("session")["identity"] == "ci"
    assert made["token"] not in str(api.get("tokens"))
    api.do("DELETE", f"tokens/{made['summary']['id']}")
    assert other.refused("GET", "session")["code"] == "unauthenticated"
    assert api.refused("DELETE", f"tokens/{made['summary']['id']}")["code"] == "not-found"


def test_an_expired_token_is_rejected(api: Api) -> None:
    made = api.do("POST", "tokens", {"name": "short", "may": ["view"], "expires_in_seconds": 0.001})
    assert api.with_token(made["token"]).refused("GET", "session")["code"] == "unauthenticated"
    assert [each["expired"] for each in api.get("tokens")["items"] if each["name"] == "short"] == [True]


def test_the_last_admin_token_cannot_be_revoked(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        (only,) = broker.api.get("tokens")["items"]
        assert "last admin token" in broker.api.refused("DELETE", f"tokens/{only['id']}")["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "", "may": ["view"]}, "body.name"),
        ({"name": "x", "may": []}, "body.may"),
        ({"name": "x", "may": ["everything"]}, "body.may[0]"),
        ({"name": "x", "may": ["view"], "where": []}, "body.where"),
        ({"name": "x", "may": ["view"], "expires_in_seconds": 0}, "body.expires_in_seconds"),
    ],
)
def test_bad_token_requests_are_rejected(api: Api, body: Any, field: str) -> None:
    assert api.refused("POST", "tokens", body)["field"] == field


# Logins


def log_in(api: Api, headers: dict[str, str] | None = None) -> Answer:
    return Api(api.address).ask("POST", "/api/v1/session", {"token": api.token}, headers)


def test_a_login_is_a_cookie_that_scripts_and_other_pages_do_not_get(api: Api) -> None:
    answer = log_in(api)
    assert answer.status == 200
    cookie, *rules = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(rules)
    page = Api(api.address, headers={"cookie": cookie})
    assert page.get("session")["role"] == "admin"
    assert page.get("session")["expires_at"] is not None
    page.do("PUT", "queues/default/cookie", {}, {"origin": api.address})
    out = page.ask("DELETE", "/api/v1/session")
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert page.refused("GET", "session")["code"] == "unauthenticated"


def test_a_login_outlives_a_restart_and_a_revoked_token_does_not(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        made = broker.api.do("POST", "tokens", {"name": "page", "may": ["view"]})
        cookie = log_in(broker.api.with_token(made["token"])).headers["set-cookie"].partition(";")[0]
        kept = b"".join(path.read_bytes() for path in broker.data.glob("admin.sqlite*"))
        assert cookie.partition("=")[2].encode() not in kept
        assert made["token"].encode() not in kept
        broker.kill()
        broker.start()
        page = Api(broker.addresses["http"], headers={"cookie": cookie})
        assert page.get("session")["identity"] == "page"
        broker.api.do("DELETE", f"tokens/{made['summary']['id']}")
        assert page.refused("GET", "session")["code"] == "unauthenticated"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=["origin", "null", "malformed", "fetch"],
)
def test_pages_of_other_origins_change_nothing(api: Api, headers: dict[str, str]) -> None:
    cookie = log_in(api).headers["set-cookie"].partition(";")[0]
    page = Api(api.address, headers={"cookie": cookie, **headers})
    assert page.refused("PUT", "queues/default/evil", {})["code"] == "denied"
    assert api.refused("GET", "queues/default/evil")["code"] == "not-found"
    assert log_in(api, headers).status == 403


def test_failed_logins_are_limited(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        guesser = Api(broker.addresses["http"])
        codes = [guesser.refused("POST", "session", {"token": f"guess {n}"})["code"] for n in range(FAILURES + 2)]
        assert codes == FAILURES * ["unauthenticated"] + 2 * ["too-many"]
        answer = guesser.with_token("pk_guess").ask("GET", "/api/v1/session")
        assert answer.value["code"] == "too-many"
        seconds = int(answer.headers["retry-after"])
        assert 40 < seconds <= FAILURE_SECONDS + 1
        assert answer.value["detail"].endswith(f"wait {seconds} seconds")
        # Valid tokens are still accepted: clients behind one proxy share its address.
        assert log_in(broker.api).status == 200
        assert broker.api.get("session")["role"] == "admin"


def test_logins_with_one_token_end_no_logins_with_other_tokens(api: Api, callers: dict[str, Api]) -> None:
    def session(login: Answer) -> int:
        cookie = login.headers["set-cookie"].partition(";")[0]
        return Api(api.address, headers={"cookie": cookie}).ask("GET", "/api/v1/session").status

    admin, first = log_in(api), log_in(callers["view"])
    logins = [log_in(callers["view"]) for _ in range(LOGINS_OF_TOKEN)]
    assert session(admin) == 200
    assert [session(each) for each in (first, logins[0], logins[-1])] == [401, 200, 200]


async def _allow_everyone(request: AskRights) -> Allowed:
    return Allowed(open=True, identity=request.token)


def test_the_token_with_most_logins_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatekeeper_module, "MOST_LOGINS", 6)

    async def story() -> None:
        store = StateFile("")
        gatekeeper = Gatekeeper(_allow_everyone, store)
        cookies = [(await gatekeeper.log_in("", token))[0] for token in "abcccccdd"]
        kept = [bool(store.rows("select 1 from logins where cookie = ?", (digest_of(each),))) for each in cookies]
        assert "".join(token for token, there in zip("abcccccdd", kept, strict=True) if there) == "abccdd"
        store.close()

    asyncio.run(story())


def test_answers_have_strict_headers(api: Api) -> None:
    for path in ("/", "/api/v1/overview", "/api/v1/nothing", "/healthz"):
        headers = api.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


# The audit log


def test_every_change_is_in_the_audit_log(api: Api, queue: str, callers: dict[str, Api]) -> None:
    path = f"queues/{queue}"
    version = api.get(path)["version"]
    api.do("PATCH", path, {"max_depth": 3}, {"If-Match": version})
    api.refused("PATCH", path, {"max_depth": 4}, {"If-Match": version})
    callers["view"].refused("POST", f"{path}/pause")
    entries = api.get("audit", target=queue)["items"]
    assert [(each["action"], each["outcome"], each["who"]) for each in entries[:4]] == [
        ("pause-queue", "refused", "view"),
        ("configure-queue", "refused", "first admin"),
        ("configure-queue", "done", "first admin"),
        ("create-queue", "done", "first admin"),
    ]
    done = entries[2]
    assert (done["before"]["max_depth"], done["after"]["max_depth"]) == (0, 3)
    assert done["origin"] == "127.0.0.1"
    assert [each["number"] for each in api.all("audit", target=queue, limit=1)] == [
        each["number"] for each in api.get("audit", target=queue)["items"]
    ]
    assert api.get("audit", who="view", target=queue)["items"] == entries[:1]
    assert api.get("audit", since=done["at"], until=entries[1]["at"], target=queue)["items"] == [done]


def test_actors_of_one_name_are_distinguished_by_their_tokens(api: Api, queue: str) -> None:
    tokens = [api.do("POST", "tokens", {"name": "twin", "may": ["operate"]}) for _ in range(2)]
    for each in tokens:
        api.with_token(each["token"]).do("POST", f"queues/{queue}/pause")
    ids = [each["summary"]["id"] for each in tokens]
    entries = api.get("audit", target=queue, action="pause-queue")["items"]
    assert [(entry["who"], entry["token"]) for entry in entries] == [("twin", ids[1]), ("twin", ids[0])]
    assert api.get("audit", token=ids[0])["items"] == entries[1:]
    job = api.with_token(tokens[0]["token"]).do(
        "POST", f"queues/{queue}/purge", {"states": ["ready"], "confirm": queue}
    )
    assert ids[0] in api.job(job)["by"]
    [ended] = eventually(lambda: api.get("audit", token=ids[0], action="purge-job")["items"])
    assert (ended["who"], ended["origin"]) == ("twin", "127.0.0.1")
    rows = api.do("POST", "sql", {"query": f"select count(*) from audit where token = '{ids[0]}'"})["rows"]
    assert rows == [[3]]


def test_a_token_of_the_configuration_is_identified_by_its_hash(tmp_path: Path) -> None:
    digest = digest_of("a token of the configuration")
    with WebBroker(tmp_path, access=[{"token_sha256": digest, "may": ["view"]}]) as broker:
        broker.api.with_token("a token of the configuration").refused("PUT", "queues/default/x", {})
        [entry] = broker.api.get("audit", outcome="refused")["items"]
        assert (entry["who"], entry["token"]) == (f"token {digest[:16]}", f"sha256:{digest[:16]}")


def test_requests_that_change_nothing_drop_no_audit_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_ENTRIES", 10)
    monkeypatch.setattr(audit, "LOOK_EVERY", 5)
    store = StateFile("")
    log, route = Audit(store), BY_NAME["pause-queue"]
    caller = Caller("viewer", "", Allowed(open=False))
    log.record_change(route, {}, caller, Response(target="kept"))
    for number in range(100):
        log.record_refusal(route, {"queue": str(number)}, caller, problem("denied", "no"))
        log.record_login(caller)
    targets = [entry["target"] for entry in log.rows()]
    assert targets[0] == "kept"
    assert 10 <= len(targets) <= 16
    numbers = [entry["number"] for entry in log.rows()]
    assert Audit(store)._number == numbers[-1] == 201
    store.close()


def test_over_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    certificate = Authority(tmp_path / "ca").sign("localhost")
    http = {"address": "127.0.0.1:0", "tls_certificate": str(certificate.path), "tls_key": str(certificate.key)}
    with WebBroker(tmp_path, http=http) as broker:
        address = broker.addresses["http"]
        assert address.startswith("https://")
        host = urlsplit(address).netloc
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with closing(HTTPSConnection(host, context=context, timeout=20)) as connection:
            token = (tmp_path / "admin-token").read_text().strip()
            headers = {"content-type": "application/json", "origin": address}
            connection.request("POST", "/api/v1/session", json.dumps({"token": token}), headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            assert "; Secure" in (answer.headers["set-cookie"] or "")
            connection.request("POST", "/api/v1/session", "{}", {**headers, "origin": f"http://{host}"})
            assert connection.getresponse().status == 403
