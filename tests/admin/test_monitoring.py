"""The dashboard and the alert rules, checked against the exported metrics and with a real Prometheus."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.prometheus import Prometheus, promtool, running
from support.web import WebBroker, eventually

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((PACKAGING / "grafana" / "penstock.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OPEN_METRICS = {"accept": "application/openmetrics-text"}
SUFFIXES = {"gauge": ("",), "info": ("_info",), "counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    """With a queue, a message and a pipeline, so that all families have samples."""
    folder = Path(tmp_path_factory.mktemp("broker"))
    ledger = folder / "lake" / "_penstock" / "archive" / "ledger.json"
    ledger.parent.mkdir(parents=True)
    state = {"rows": 40, "quarantined": 2}
    ledger.write_text(json.dumps({"query": "q", "batch": 1, "moves": [], "position": 1, "done": True, "state": state}))
    http = {"address": "127.0.0.1:0", "lake": str(folder / "lake")}
    with WebBroker(folder, http=http) as found:
        found.api.do("PUT", "queues/default/one", {})
        found.api.publish("default/one", "x")
        yield found


def families(broker: WebBroker) -> dict[str, str]:
    """The type of each metric family."""
    texts = [
        broker.api.ask("GET", "/metrics", headers=OPEN_METRICS).body.decode(),
        broker.api.ask("GET", "/metrics/per-queue", headers=OPEN_METRICS, queue="*").body.decode(),
    ]
    return {name: kind for text in texts for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)}


def names(broker: WebBroker) -> set[str]:
    """The names of all series."""
    return {name + suffix for name, kind in families(broker).items() for suffix in SUFFIXES[kind]}


def expressions() -> list[str]:
    """All expressions of the rules and the dashboard."""
    rules = re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.MULTILINE)
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    return [*rules, *variables, *(target["expr"] for panel in PANELS for target in panel["targets"])]


def filled(expression: str) -> str:
    """The expression with the variables that Grafana replaces."""
    return expression.replace("$job", "penstock").replace("$instance", ".*").replace("$__rate_interval", "5m")


def test_only_existing_metrics_are_used(broker: WebBroker) -> None:
    known = names(broker)
    for expression in expressions():
        used = set(re.findall(r"\bpenstock_\w+", expression))
        assert used or "up{" in expression
        assert used <= known, (expression, used - known)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-queue?queue=*"])
def test_promtool_accepts_the_metrics(broker: WebBroker, path: str) -> None:
    promtool("check", "metrics", stdin=broker.api.ask("GET", path).body)


def test_the_dashboard_is_well_formed() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    places = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places), "two panels overlap"
    assert all(x < 24 for x, _ in places)
    for panel in PANELS:
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    cases = (Path(__file__).parent / "alerts.yml").read_text()
    alerts = re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)
    assert len(alerts) == len(re.findall("expr:", RULES.read_text()))
    assert [alert for alert in alerts if f'alertname="{alert}"' not in cases] == []
    file = tmp_path / "alerts.yml"
    file.write_text(cases.replace("RULES", str(RULES)))
    promtool("test", "rules", str(file))


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def configuration(broker: WebBroker, folder: Path) -> Path:
    """The example configuration, for this broker."""
    (folder / "alerts.yml").write_text(RULES.read_text())
    (folder / "token").write_text(broker.api.token_for("prometheus", ["view"], ["*"]).token)
    text = (PACKAGING / "prometheus" / "prometheus.yml").read_text()
    where = broker.addresses["http"].removeprefix("http://")
    text = text.replace("127.0.0.1:9180", where).replace("/etc/prometheus/penstock.token", str(folder / "token"))
    file = folder / "prometheus.yml"
    file.write_text(re.sub(r"scrape_interval: \d+s", "scrape_interval: 1s", text))
    return file


def scraped(server: Prometheus) -> Any:
    targets = server.ask("targets")["activeTargets"]
    wrong = [target["lastError"] for target in targets if target["lastError"]]
    assert not wrong, wrong
    return len(targets) == 2 and all(target["health"] == "up" for target in targets)


def test_a_real_prometheus_scrapes_and_answers_every_panel(broker: WebBroker, tmp_path: Path) -> None:
    file = configuration(broker, tmp_path)
    promtool("check", "config", str(file))
    with running(file, free_address()) as server:
        eventually(lambda: scraped(server), 60)
        [ready] = eventually(lambda: server.query('penstock_ready{job="penstock"}'), 60)
        assert ready["value"][1] == "1"
        [queue] = eventually(lambda: server.query('penstock_queue_messages{queue="default/one", state="ready"}'), 60)
        assert (queue["value"][1], queue["metric"]["job"]) == ("1", "penstock-queues")
        known = {each["metric"]["__name__"] for each in server.query('{__name__=~"(penstock|process)_.+"}')}
        kinds = families(broker)
        assert {f"{name}{SUFFIXES[kind][0]}" for name, kind in kinds.items()} - known <= {
            # These have a series per connection, reader, dead letter or error, of which there are none.
            *(name for name in kinds if name.startswith("penstock_reader_")),
            "penstock_connections",
            "penstock_dead_letters",
            "penstock_queue_dead_letters",
            "penstock_protocol_errors_total",
        }
        for expression in expressions():
            if not expression.startswith("label_values("):
                answer = server.query(filled(expression))
                assert answer or "penstock_queue_messages" not in expression, expression
        rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
        assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
