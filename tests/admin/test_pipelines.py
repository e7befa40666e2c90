"""Pipelines, reported from the files that they leave in the lake."""

from __future__ import annotations

import json
from pathlib import Path

from support.web import WebBroker


def test_pipelines_report_their_last_batch_and_the_report_is_sandboxed(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for name, batch, done in (("archive", 7, True), ("insight", 3, False)):
        folder = lake / "_penstock" / name
        folder.mkdir(parents=True)
        ledger = {"query": "q", "batch": batch, "moves": [], "position": 1, "done": done, "state": {"rows": 40}}
        (folder / "ledger.json").write_text(json.dumps(ledger))
    (lake / "_penstock" / "broken").mkdir()
    (lake / "_penstock" / "broken" / "ledger.json").write_text("{")
    (lake / "insight").mkdir()
    (lake / "insight" / "report.html").write_text("<!doctype html>")
    with WebBroker(tmp_path, http={"address": "127.0.0.1:0", "lake": str(lake)}) as broker:
        archive, insight = broker.api.get("pipelines")["items"]
        assert (archive["name"], archive["batch"], archive["report"]) == ("archive", 7, "")
        assert archive["finished_at"] is not None
        assert (insight["name"], insight["finished_at"]) == ("insight", None)
        assert (archive["rows"], archive["quarantined"]) == (40, None)
        text = broker.api.ask("GET", "/metrics").body.decode()
        assert 'penstock_pipeline_rows_total{pipeline="archive"} 40' in text
        page = broker.api.ask("GET", insight["report"])
        assert page.body == b"<!doctype html>"
        assert page.headers["content-security-policy"].startswith("sandbox allow-scripts;")
        assert "allow-same-origin" not in page.headers["content-security-policy"]
        assert broker.api.refused("GET", "pipelines/..%2F..%2Fx/report")["code"] == "not-found"
