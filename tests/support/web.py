"""A client of the HTTP API for tests: one request, one answer, nothing hidden."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from penstock.client import connect
from support.brokers import BrokerProcess

PATIENCE = 20.0


class Answer(NamedTuple):
    """A response. ``value`` is its JSON, if any."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


class Api:
    """Sends requests, with or without a token."""

    def __init__(self, address: str, token: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.address = address
        self.token = token
        self.headers = dict(headers or {})

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Answer:
        """One request. ``body`` is JSON, unless it is bytes."""
        where = urlsplit(self.address)
        if query:
            path += "?" + urlencode({name: value for name, value in query.items() if value is not None})
        sent = {"host": where.netloc, **self.headers}
        if self.token:
            sent["authorization"] = f"Bearer {self.token}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        if data is not None:
            sent["content-type"] = "application/json"
        sent |= dict(headers or {})
        with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)) as connection:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read())

    def get(self, path: str, **query: Any) -> Any:
        """The JSON of a GET that succeeds."""
        answer = self.ask("GET", f"/api/v1/{path}", **query)
        assert answer.status == 200, answer
        return answer.value

    def do(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON of a request that succeeds."""
        answer = self.ask(method, f"/api/v1/{path}", body, headers)
        assert 200 <= answer.status < 300, answer
        return answer.value

    def refused(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The problem of a request that fails."""
        answer = self.ask(method, f"/api/v1/{path}", body, headers)
        assert answer.status >= 400, answer
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.value
        assert problem["status"] == answer.status
        assert problem["type"] == f"/problems/{problem['code']}"
        return problem

    def all(self, path: str, **query: Any) -> list[Any]:
        """The items of all pages."""
        items: list[Any] = []
        cursor = None
        while True:
            page = self.get(path, cursor=cursor, **query)
            items += page["items"]
            cursor = page["next"]
            if cursor is None:
                return items

    def with_token(self, token: str) -> Api:
        """The same API with another token."""
        return Api(self.address, token, self.headers)

    def token_for(self, name: str, may: list[str], where: list[str], **more: Any) -> Api:
        """The API with a new token that has these rights."""
        made = self.do("POST", "tokens", {"name": name, "may": may, "where": where, **more})
        return self.with_token(made["token"])

    def publish(self, queue: str, *payloads: str, **how: Any) -> list[str]:
        """Publish texts. Returns their IDs."""
        messages = [{"payload": payload, **how} for payload in payloads]
        ids: list[str] = self.do("POST", f"queues/{path_of(queue)}/messages", {"messages": messages})["ids"]
        return ids

    def job(self, job: Any, *states: str) -> Any:
        """A job once it is in one of these states (default: done)."""
        wanted = states or ("done",)
        return eventually(lambda: found if (found := self.get(f"jobs/{job['id']}"))["state"] in wanted else None)


def path_of(queue: str) -> str:
    """namespace/queue as the part of a path."""
    namespace, _, name = queue.partition("/")
    return f"{quote(namespace, safe='')}/{quote(name, safe='')}"


def eventually(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Poll until the result is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return result


class WebBroker(BrokerProcess):
    """A real broker with HTTP on a free port, and its first admin token in a file."""

    def __init__(self, folder: Path, tables: str = "", **options: Any) -> None:
        http = options.pop("http", "127.0.0.1:0")
        file = str(folder / "admin-token")
        super().__init__(folder, tables, **{"http": http, "admin_token_file": file, **options})

    @property
    def api(self) -> Api:
        """The API with the first admin token."""
        return Api(self.addresses["http"], (self.folder / "admin-token").read_text().strip())

    def kill_messages(self, queue: str) -> None:
        """Deliver and return all ready messages of a queue, whose limit of one delivery makes them dead letters."""
        with connect(self.url("kokaq", f"/{queue}")) as client:
            while (message := client.lock()) is not None:
                message.release()
        eventually(lambda: self.api.get(f"queues/{path_of(queue)}")["ready"] == 0)
