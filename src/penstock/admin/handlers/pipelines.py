"""Pipelines, from what they leave in the lake: their last batch, and the insight report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.admin.http import Answer, Request
from penstock.admin.pages import cursor_of, page, values_of
from penstock.admin.problems import fail
from penstock.admin.resources.common import Page
from penstock.admin.resources.peers import Pipeline
from penstock.admin.routes import API
from penstock.admin.times import moment

#: The folder of a lake that has the pipelines' own files, and the file that tells of the last batch.
HIDDEN, LEDGER = "_penstock", "ledger.json"
REPORT = Path("insight", "report.html")
#: The report is a page by itself, with scripts that its own policy names by their hashes. Here it has no origin: it can
#: not ask us for anything in the name of who looks at it.
REPORT_POLICY = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


class _Ledger(msgspec.Struct):
    """What is read of a ledger; see ``spark/lake/batches.py``."""

    batch: int
    done: bool
    state: dict[str, Any]


class PipelineHandlers:
    """Handles what is about pipelines. Without a lake there are none."""

    def __init__(self, lake: str) -> None:
        self._lake = Path(lake) if lake else None
        self.handlers: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "pipelines": self.pipelines,
            "report": self.report,
        }

    async def pipelines(self, request: Request) -> Answer:
        """By name."""
        found = await asyncio.to_thread(self.found)
        after: tuple[str] | None = values_of(request.query.cursor, tuple[str])
        rest = [each for each in found if after is None or each.name > after[0]]
        limit = request.query.limit
        return Answer(page(rest[: limit + 1], limit, lambda each: cursor_of(each.name), Page[Pipeline], len(found)))

    def found(self) -> list[Pipeline]:
        """All of them, by name."""
        ledgers = sorted(self._lake.glob(f"{HIDDEN}/*/{LEDGER}")) if self._lake is not None else []
        return [found for ledger in ledgers if (found := self._pipeline(ledger)) is not None]

    def _pipeline(self, ledger: Path) -> Pipeline | None:
        try:
            told = msgspec.json.decode(ledger.read_bytes(), type=_Ledger)
            at = moment(int(ledger.stat().st_mtime * 1e6))
        except (OSError, msgspec.MsgspecError):
            return None
        name = ledger.parent.name
        assert self._lake is not None
        report = name == "insight" and (self._lake / REPORT).is_file()
        return Pipeline(
            name=name,
            kind=name.partition("-")[0],
            batch=told.batch,
            finished_at=at if told.done else None,
            rows=_number(told.state.get("rows")),
            quarantined=_number(told.state.get("quarantined")),
            report=f"{API}/pipelines/{name}/report" if report else "",
        )

    async def report(self, request: Request) -> Answer:
        """The insight report as it is now."""
        path = self._lake / REPORT if self._lake is not None and request.places["name"] == "insight" else None
        try:
            body = await asyncio.to_thread(path.read_bytes) if path is not None else None
        except OSError:
            body = None
        if body is None:
            fail("not-found", "there is no report of such a pipeline", field="path.name")
        headers = (("content-security-policy", REPORT_POLICY),)
        return Answer(body=body, media="text/html; charset=utf-8", headers=headers)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
