"""The console behind a real reverse proxy that terminates TLS: logins, changes, and rejected requests."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from support.brokers import PATIENCE
from support.browser import started
from support.certificates import Authority, Certificate
from support.nginx import terminating_tls
from support.web import WebBroker

NAME = "mq.example.com"
KEEP_HOST = "proxy_set_header Host $http_host;"
OTHER_HOST = "proxy_set_header Host 127.0.0.1;"
FORWARDED = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
FREE = {"address": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser that resolves the proxy's name to this machine, and a hostile page's name too."""
    expect.set_options(timeout=PATIENCE * 1000)
    with started(f"--host-resolver-rules=MAP {NAME} 127.0.0.1, MAP evil.example 127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("certificates")
    return Authority(folder / "ca").sign_as("proxy", f"/CN={NAME}", f"DNS:{NAME}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    """A broker configured with its public URL and its proxy."""
    http = {**FREE, "public_url": f"https://{NAME}", "proxy_from": ["127.0.0.1"]}
    with WebBroker(tmp_path_factory.mktemp("broker"), http=http) as found:
        yield found


def address_of(broker: WebBroker) -> str:
    return broker.addresses["http"].removeprefix("http://")


def send(
    port: int, method: str, path: str, headers: dict[str, str], body: Any = None, *, tls: bool = True
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of one request."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with closing(HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE) if tls else plain) as connection:
        sent = {"content-type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, json.loads(answer.read())


@pytest.mark.parametrize("directives", [KEEP_HOST, OTHER_HOST], ids=["keeps the host", "rewrites the host"])
def test_a_person_logs_in_and_works(
    browser: Browser, broker: WebBroker, certificate: Certificate, tmp_path: Path, directives: str
) -> None:
    proxy = terminating_tls(tmp_path / "proxy", address_of(broker), certificate, directives + FORWARDED)
    with proxy as port, closing(browser.new_context(ignore_https_errors=True)) as context:
        page = context.new_page()
        page.goto(f"https://{NAME}:{port}/")
        page.get_by_label("Token").fill(broker.api.token)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        [cookie] = context.cookies()
        assert (cookie["secure"], cookie["httpOnly"]) == (True, True)


def test_a_client_that_sends_only_its_origin(broker: WebBroker, certificate: Certificate, tmp_path: Path) -> None:
    """Older browsers send ``Origin`` without ``Sec-Fetch-Site``."""
    login = {"token": broker.api.token}
    with terminating_tls(tmp_path / "proxy", address_of(broker), certificate, OTHER_HOST) as port:
        status, headers, body = send(port, "POST", "/api/v1/session", {"origin": f"https://{NAME}"}, login)
        assert (status, "; Secure" in headers["set-cookie"]) == (200, True), body
        for other in ("https://evil.example", f"http://{NAME}", f"https://{NAME}:444", "null"):
            status, _, body = send(port, "POST", "/api/v1/session", {"origin": other}, login)
            assert (status, body["field"]) == (403, "header.Origin")
            assert "public_url" in body["detail"]


def test_clients_of_a_proxy_have_addresses_of_their_own(
    broker: WebBroker, certificate: Certificate, tmp_path: Path
) -> None:
    """A client cannot forge its address: the last one is what the proxy saw."""
    with terminating_tls(tmp_path / "proxy", address_of(broker), certificate, KEEP_HOST + FORWARDED) as port:
        token = {"authorization": f"Bearer {broker.api.token}", "x-forwarded-for": "10.9.9.9, 192.0.2.7"}
        assert send(port, "PUT", "/api/v1/queues/default/forwarded", token, {})[0] == 201
    [entry] = broker.api.get("audit", target="default/forwarded")["items"]
    assert entry["origin"] == "192.0.2.7"
    # Every connection here comes from 127.0.0.1, a trusted proxy, so the address before it counts.


def test_addresses_are_taken_only_from_proxies(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        broker.api.do("PUT", "queues/default/claimed", {}, {"x-forwarded-for": "192.0.2.7"})
        [entry] = broker.api.get("audit", target="default/claimed")["items"]
        assert entry["origin"] == "127.0.0.1"


def test_logins_of_two_brokers_on_one_host_live_side_by_side(
    browser: Browser, broker: WebBroker, tmp_path: Path
) -> None:
    """Browsers send the cookies of a host to all its ports."""
    with WebBroker(tmp_path) as other, closing(browser.new_context()) as context:
        for each in (broker, other, broker):
            page = context.new_page()
            address = each.addresses["http"]
            page.goto(f"{address}/#/login?token={each.api.token}")
            expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        for each in (broker, other):
            assert context.request.get(f"{each.addresses['http']}/api/v1/session").ok
        assert len(context.cookies()) == 2


# DNS rebinding: a hostile page's own name resolves to the broker's address


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    """A broker that lets its network view everything without a token, and has public metrics."""
    rule = {"network": "127.0.0.0/8", "may": ["view"]}
    http = {**FREE, "public_metrics": True, "host_names": ["mq", NAME]}
    with WebBroker(tmp_path_factory.mktemp("plain"), http=http, access=[rule]) as found:
        yield found


def test_a_name_that_is_not_ours_is_refused(plain: WebBroker) -> None:
    port, path = int(address_of(plain).rpartition(":")[2]), "/api/v1/overview"
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", "::", ""):
        status, _, body = send(port, "GET", path, {"host": host}, tls=False)
        assert (status, body["field"]) == (403, "header.Host"), host
        assert "host_names" in body["detail"]
    for shown in ("Bearer junk", "Bearer", "Bearer ", "", "Basic eDp5"):
        junk = {"host": "evil.example", "authorization": shown}
        assert send(port, "GET", path, junk, tls=False)[0] in (401, 403), shown


def test_known_names_are_accepted(plain: WebBroker) -> None:
    port = int(address_of(plain).rpartition(":")[2])
    for host in ("localhost", "LOCALHOST.", f"a.localhost:{port}", "mq", f"{NAME}:80", "10.1.2.3:1", f"[::1]:{port}"):
        assert plain.api.with_token("").ask("GET", "/api/v1/overview", headers={"host": host}).status == 200, host


def test_any_name_is_accepted_with_a_token_and_for_health_checks(plain: WebBroker) -> None:
    named = {"host": "penstock.svc.cluster.local"}
    assert plain.api.ask("GET", "/api/v1/overview", headers=named).status == 200
    assert plain.api.with_token("").ask("GET", "/readyz", headers=named).status == 200
    problem = plain.api.with_token("").refused("POST", "session", {"token": plain.api.token}, named)
    assert problem["field"] == "header.Host"


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-queue?queue=*"])
def test_public_metrics_are_scraped_by_any_name(plain: WebBroker, path: str) -> None:
    for host in ("penstock.svc.cluster.local", "mq.example:9180", "", "::"):
        assert plain.api.with_token("").ask("GET", path, headers={"host": host}).status == 200, host


def test_a_page_that_is_rebound_to_the_broker_reads_nothing(browser: Browser, plain: WebBroker) -> None:
    """In a real browser: the page's own name now resolves to the broker's address."""
    port = address_of(plain).rpartition(":")[2]
    with closing(browser.new_page()) as page:
        page.goto(f"http://evil.example:{port}/")
        script = "async (path) => { const answer = await fetch(path); return answer.status; }"
        assert page.evaluate(script, "/api/v1/overview") == 403
        assert page.evaluate(script, "/api/v1/queues") == 403
