"""The report of ``insight`` in a real Chromium: it draws with the same charts as the console."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from support.browser import Watch
from support.insight import many, render


def test_pages_are_shown_one_at_a_time_and_drawn_when_shown(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render(many(20)))
    context = chromium.new_context()
    watch, page = Watch(context, "file://"), context.new_page()
    page.goto(f"file://{tmp_path}/report.html")
    expect(page.get_by_role("heading", name="Top talkers")).to_be_visible()
    expect(page.locator("canvas")).to_have_count(0)
    page.get_by_role("link", name="default/q <3>").click()
    expect(page.get_by_role("heading", name="default/q <3>")).to_be_visible()
    expect(page.get_by_role("heading", name="Top talkers")).to_be_hidden()
    expect(page.locator("canvas")).to_have_count(2)
    page.get_by_role("link", name="All queues").click()
    expect(page.get_by_role("heading", name="default/q <3>")).to_be_hidden()
    context.close()
    watch.check()
