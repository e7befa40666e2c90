"""The HTTP API for the console's tests: sets a broker's state, and reads it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from playwright.sync_api import Page

from penstock.admin.routes import path_part
from support.brokers import PATIENCE

#: Opens a page of the console in a browser context of its own; see the fixture ``visit``.
Visit = Callable[..., Page]


class Api:
    """Calls with a token. Raises HTTPError for problem responses."""

    def __init__(self, origin: str, token: str) -> None:
        self.origin = origin
        self.token = token

    def call(self, method: str, *parts: str, body: Any = None, **query: Any) -> Any:
        address = f"{self.origin}/api/v1/{'/'.join(map(path_part, parts))}"
        if query:
            address += f"?{urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with urlopen(Request(address, data, headers, method=method), timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def get(self, *parts: str, **query: Any) -> Any:
        return self.call("GET", *parts, **query)

    def status(self, *parts: str) -> int:
        """The status of a GET."""
        try:
            self.get(*parts)
        except HTTPError as error:
            return error.code
        return 200

    def make(self, namespace: str, queue: str, **rules: Any) -> None:
        self.call("PUT", "queues", namespace, queue, body={"rules": rules})

    def publish(self, namespace: str, queue: str, *payloads: str, **fields: Any) -> list[str]:
        messages = [{"payload": payload, **fields} for payload in payloads]
        ids: list[str] = self.call("POST", "queues", namespace, queue, "messages", body={"messages": messages})["ids"]
        return ids

    def queue(self, namespace: str, queue: str) -> Any:
        return self.get("queues", namespace, queue)

    def messages(self, namespace: str, queue: str, state: str = "ready", **query: Any) -> list[Any]:
        items: list[Any] = self.get("queues", namespace, queue, "messages", state=state, **query)["items"]
        return items

    def token_for(self, name: str, *may: str) -> str:
        token: str = self.call("POST", "tokens", body={"name": name, "may": list(may)})["token"]
        return token
