"""A real Chromium for the console's tests.

``CHROMIUM=/path`` names one; otherwise one of the usual names on the PATH is used, or Playwright's download. Without
any, tests fail and say how to install one. ``python -m support.browser`` installs one: Debian's package for root,
Playwright's download for other users.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, sync_playwright

from support import debian

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
HOW = "install one (Debian: apt-get install chromium), or name one: CHROMIUM=/path/to/chromium"


def named() -> str | None:
    """The browser from ``CHROMIUM`` or the PATH."""
    if given := os.environ.get("CHROMIUM"):
        return given
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def executable(playwright: Playwright) -> str:
    """The browser to use. Fails without one, because a skipped test proves nothing."""
    if (path := named()) is not None:
        return path
    fetched = playwright.chromium.executable_path
    if not Path(fetched).exists():
        pytest.fail(f"the console's tests need a Chromium: {HOW}", pytrace=False)
    return fetched


@contextmanager
def started(*arguments: str) -> Iterator[Browser]:
    """A headless browser with additional arguments. Root, as in containers, runs it without a sandbox."""
    with sync_playwright() as playwright:
        options = [*arguments, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=executable(playwright), args=options)
        yield browser
        browser.close()


class Watch:
    """Collects what went wrong on a context's pages: console errors, exceptions, requests to other hosts."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.wrong: list[str] = []
        #: Parts of messages that a test provokes on purpose.
        self.expected: list[str] = []
        self._host = urlsplit(origin).netloc
        context.on("page", self._watch)
        context.on("request", self._request)

    def _watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"exception: {error}"))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https", "ws", "wss") and address.netloc != self._host:
            self.wrong.append(f"request to {request.url}")

    def check(self) -> None:
        """Fail on any unexpected problem."""
        left = [each for each in self.wrong if not any(part in each for part in self.expected)]
        if left:
            pytest.fail("on the page:\n" + "\n".join(left))


def install() -> int:
    """Install a browser if there is none. Returns the exit code."""
    if named():
        return 0
    if not debian.install("chromium", "the tests of the console"):
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    with sync_playwright() as playwright:
        there = named() or Path(playwright.chromium.executable_path).exists()
    if not there:
        print(f"set-up: no Chromium, so the console's tests will fail: {HOW}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(install())
