"""Pipelines, from their files in the lake: the last batch, and the insight report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from penstock.admin.http import Request, Response
from penstock.admin.pages import slice_page
from penstock.admin.problems import fail
from penstock.admin.resources.common import Page
from penstock.admin.resources.peers import Pipeline
from penstock.admin.routes import API
from penstock.admin.times import to_datetime

#: The folder of a lake for the pipelines' own files, and the file about the last batch.
HIDDEN, LEDGER = "_penstock", "ledger.json"
REPORT = Path("insight", "report.html")
#: The report's own policy lists its inline scripts by hash. The sandbox gives it no origin, so that it can't send
#: requests here with the viewer's cookie.
REPORT_POLICY = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


class _Ledger(msgspec.Struct):
    """The fields of a ledger that are shown; see ``spark/lake/batches.py``."""

    batch: int
    done: bool
    state: dict[str, Any]


class PipelineHandlers:
    """Handles requests about pipelines. Without a lake there are none."""

    def __init__(self, lake: str) -> None:
        self._lake = Path(lake) if lake else None

    async def pipelines(self, request: Request) -> Response:
        """By name."""
        found = await asyncio.to_thread(self.found)
        shown, following = slice_page(found, request.query, lambda each: (each.name,), tuple[str])
        return Response(Page[Pipeline](items=shown, next=following, total=len(found)))

    def found(self) -> list[Pipeline]:
        """All of them, by name."""
        ledgers = sorted(self._lake.glob(f"{HIDDEN}/*/{LEDGER}")) if self._lake is not None else []
        return [found for ledger in ledgers if (found := self._pipeline(ledger)) is not None]

    def _pipeline(self, ledger: Path) -> Pipeline | None:
        try:
            last = msgspec.json.decode(ledger.read_bytes(), type=_Ledger)
            at = to_datetime(int(ledger.stat().st_mtime * 1e6))
        except (OSError, msgspec.MsgspecError):
            return None
        name = ledger.parent.name
        assert self._lake is not None
        report = name == "insight" and (self._lake / REPORT).is_file()
        return Pipeline(
            name=name,
            kind=name.partition("-")[0],
            batch=last.batch,
            finished_at=at if last.done else None,
            rows=_number(last.state.get("rows")),
            quarantined=_number(last.state.get("quarantined")),
            report=f"{API}/pipelines/{name}/report" if report else "",
        )

    async def report(self, request: Request) -> Response:
        """The current insight report."""
        path = self._lake / REPORT if self._lake is not None and request.path_params["name"] == "insight" else None
        try:
            body = await asyncio.to_thread(path.read_bytes) if path is not None else None
        except OSError:
            body = None
        if body is None:
            fail("not-found", "this pipeline has no report", field="path.name")
        headers = (("content-security-policy", REPORT_POLICY),)
        return Response(body=body, media="text/html; charset=utf-8", headers=headers)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
