"""Screenshots of every page in light, dark and on a phone, of a real broker under traffic: scripts/pictures.

They are for review, and shown in docs/. Colours are reduced to 256, which keeps a picture to tens of kilobytes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser

from penstock.client import aio
from support.brokers import BrokerProcess, wait_for
from support.browser import started
from support.console import Api
from support.flights import Flight

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light", "device_scale_factor": 2},
}
#: For each queue, how many messages wait, and how many are published and consumed per second.
QUEUES = {
    "default/orders": (1_800, 90),
    "default/payments": (120, 40),
    "default/shipments": (14, 25),
    "mail/outgoing": (9_200, 0),
    "mail/bounces": (37, 0),
    "billing/invoices": (0, 0),
    "billing/reminders": (640, 0),
    "media/thumbnails": (2_450, 0),
    "search/reindex": (3, 0),
    "users/signup": (0, 0),
}
SECONDS_OF_TRAFFIC = 45
#: How many of the most frequent colours are kept in any case, and how far further ones must be from all that are kept.
GROUNDS, APART = 24, 120
#: A text that is on each page once it is complete.
SHOWN = {
    "login": "Where do I get a token?",
    "overview": "Listens on",
    "queues": "mail/outgoing",
    "queue": "Deliveries",
    "message": "customer",
    "dead": "Inspect",
    "life": "Became a dead letter",
    "connections": "No locks",
    "pipelines": "Forget…",
    "sql": "rows in",
    "admin": "Revoke",
}


def order(number: int) -> str:
    lines = [{"sku": f"A-{number % 40 + 10}", "quantity": number % 3 + 1, "price": "19.90"}]
    return json.dumps({"order": 100_000 + number, "customer": {"id": f"c-{number * 7919 % 9973}", "country": "CH"},
                       "lines": lines, "express": number % 4 == 0, "note": None})  # fmt: skip


def fill(api: Api) -> None:
    for name, (waiting, _) in QUEUES.items():
        namespace, _, queue = name.partition("/")
        api.make(namespace, queue)
        for start in range(0, waiting, 1000):
            payloads = [order(number) for number in range(start, min(start + 1000, waiting))]
            api.publish(namespace, queue, *payloads)
    for queue, number in {"outgoing": 60, "bounces": 9}.items():
        api.publish("mail", queue, *[order(n) for n in range(number)], ttl_seconds=0.001)
    api.publish("billing", "invoices", *[order(n) for n in range(25)], delay_seconds=3600)
    api.call("POST", "queues", "billing", "reminders", "pause")
    api.token_for("grafana", "view")
    body = {"name": "spark-eu", "may": ["read", "consume", "publish"], "where": ["default/*", "mail"]}
    api.call("POST", "tokens", body=body)
    wait_for(lambda: api.queue("mail", "bounces")["dead"] == 9, "the messages did not expire")


def report_readers(address: str, token: str) -> None:
    """Report the progress of two readers, as Spark's streaming queries do; one lags far behind."""
    with Flight(address, token=token) as flight:
        flight.act("progress", reader="archive", queue="mail/outgoing", position=9_000)
        flight.act("progress", reader="insight", queue="default/orders", position=200)


class Traffic(threading.Thread):
    """PHPMQ clients that publish and consume until stopped."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.stopped = threading.Event()

    def run(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        busy = [(name.partition("/")[2], rate) for name, (_, rate) in QUEUES.items() if rate]
        tasks = [self._publish(*each) for each in busy] + [self._work(queue) for queue, _ in busy for _ in range(2)]
        await asyncio.gather(*tasks)

    async def _publish(self, queue: str, rate: int) -> None:
        chance = random.Random(queue)
        async with aio.connect(f"phpmq://{self._address}/{queue}") as client:
            while not self.stopped.is_set():
                await client.publish_many([order(n) for n in range(chance.randrange(rate // 5, rate // 3))])
                await asyncio.sleep(0.25)

    async def _work(self, queue: str) -> None:
        chance = random.Random(queue)
        async with aio.connect(f"phpmq://{self._address}/{queue}") as client:
            while not self.stopped.is_set():
                async for message in client.consume(window=20, idle=1):
                    fate = chance.random()
                    await (message.reject() if fate < 0.002 else message.ack())
                    await asyncio.sleep(0.03)
                    if self.stopped.is_set():
                        return


def pages(api: Api) -> dict[str, str]:
    """Names of pictures, and the addresses of what they show."""
    dead = api.messages("mail", "outgoing", "dead", limit=1)[0]["id"]
    found = {
        "login": "",
        "overview": "#/overview",
        "queues": "#/queues?sort=ready&order=descending",
        "queue": "#/queue/default/orders",
        "message": f"#/queue/mail/outgoing?state=dead&message={dead}",
        "dead": "#/dead",
        "life": f"#/message/mail/outgoing/{dead}",
        "connections": "#/connections",
        "pipelines": "#/pipelines",
        "sql": "#/sql",
        "admin": "#/admin/tokens",
    }
    if api.status("sql", "tables") == 404:  # a broker without SQL
        del found["sql"]
    return found


def take(browser: Browser, api: Api, look: str) -> None:
    context = browser.new_context(**LOOKS[look])
    page = context.new_page()
    for name, address in pages(api).items():
        if name == "overview":
            context.request.post(
                f"{api.origin}/api/v1/session", data={"token": api.token}, headers={"Origin": api.origin}
            )
        page.goto("about:blank")
        page.goto(f"{api.origin}/{address}")
        if name == "sql":
            page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_text(SHOWN[name]).first.wait_for(state="attached")
        page.wait_for_timeout(4000 if name == "overview" else 800)
        save_reduced(page.screenshot(), PICTURES / f"console-{name}-{look}.png")
    context.close()


def save_reduced(png: bytes, path: Path) -> None:
    """Save a screenshot, reduced to at most 256 of its most frequent distinguishable colours."""
    picture = Image.open(BytesIO(png)).convert("RGB")
    chosen: list[tuple[int, int, int]] = []
    counted: Any = picture.getcolors(2**24)
    for _, colour in sorted(counted, reverse=True):
        if len(chosen) < GROUNDS or all(distance(colour, each) >= APART for each in chosen):
            chosen.append(colour)
        if len(chosen) == 256:
            break
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in chosen for part in colour])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


def distance(one: tuple[int, int, int], other: tuple[int, int, int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "admin-token"
        free = {"address": "127.0.0.1:0"}
        options: dict[str, Any] = {"http": free, "flight": free, "admin_token_file": str(token)}
        with BrokerProcess(Path(folder), **options) as broker, started() as browser:
            api = Api(f"http://{broker.address('http').rpartition('/')[2]}", token.read_text().strip())
            fill(api)
            report_readers(broker.addresses["flight"], api.token_for("spark", "read"))
            traffic = Traffic(broker.address("phpmq"))
            traffic.start()
            time.sleep(SECONDS_OF_TRAFFIC)
            for look in LOOKS:
                take(browser, api, look)
            traffic.stopped.set()
            traffic.join(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
