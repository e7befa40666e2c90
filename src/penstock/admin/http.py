"""Requests and responses of HTTP as the handlers see them, and parsing of paths, queries and bodies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from penstock.admin.gatekeeper import Caller
from penstock.admin.problems import fail
from penstock.admin.routes import DOTS, Route

#: Bytes of a body; a publish has a limit of its own, because it carries payloads.
BODY_BYTES = 4 * 2**20
#: Bytes of a query string.
QUERY_BYTES = 16 * 1024

K = TypeVar("K")


class Request(NamedTuple):
    """A parsed request of a caller who has the right to make it."""

    route: Route
    path_params: dict[str, str]
    query: Any
    body: Any
    headers: dict[str, str]
    caller: Caller
    #: Authenticates the request again, for responses that last long. Raises ApiProblem if the caller lost access.
    current_caller: Callable[[], Awaitable[Caller]]

    @property
    def namespace(self) -> str:
        """The namespace in the path."""
        return self.path_params["namespace"]

    @property
    def queue(self) -> str:
        """The queue in the path, without its namespace."""
        return self.path_params["queue"]

    @property
    def full_name(self) -> str:
        """``namespace/queue`` of the path."""
        return f"{self.namespace}/{self.queue}"

    @property
    def message_id(self) -> bytes:
        """The message ID in the path. Raises ApiProblem."""
        text = self.path_params["id"]
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            raw = b""
        if len(raw) != 16 or len(text) != 32:
            fail("bad-request", f"a message ID has 32 hex digits, not {text[:64]!r}", field="path.id")
        return raw


class Response(NamedTuple):
    """``value`` is sent as JSON, unless there is a ``body`` or a ``stream``. Status 0: the route's own."""

    value: Any = None
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    media: str = "application/json"
    stream: AsyncGenerator[bytes, None] | None = None
    #: For the audit log: whether something was changed, the object, and its state before and after.
    outcome: Literal["done", "dry-run"] = "done"
    target: str = ""
    before: Any = None
    after: Any = None


Handler = Callable[[Request], Awaitable[Response]]
#: By the names of their routes.
Handlers = dict[str, Handler]


def parse_query(raw: bytes, kind: Any) -> Any:
    """The query string as a value of this type. Raises ApiProblem with the invalid parameter."""
    if len(raw) > QUERY_BYTES:
        fail("too-large", f"a query has at most {QUERY_BYTES} bytes, not {len(raw)}", field="query")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except ValueError as error:
        fail("bad-request", f"the query is malformed: {error}", field="query")
    values = dict(pairs)
    if len(values) < len(pairs):
        fail("bad-request", "a parameter is given twice", field="query")
    if kind is None:
        if values:
            fail("bad-request", "this path takes no parameters", field=f"query.{next(iter(values))}")
        return None
    return convert({name: value for name, value in values.items() if value}, kind, "query", strict=False)


def parse_body(data: bytes, kind: Any) -> Any:
    """A JSON body as a value of this type. Raises ApiProblem with the invalid field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise_for(error, "body")


def convert(values: Any, kind: type[K], where: str, *, strict: bool = True) -> K:
    """Plain values as a value of this type. Raises ApiProblem with the invalid one."""
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise_for(error, where)


def raise_for(error: Exception, where: str) -> NoReturn:
    """Raise a problem for an error of msgspec, such as "Expected `int`, got `str` - at `$.rules.max_depth`"."""
    text, _, place = str(error).partition(" - at `$")
    field = where + place.rstrip("`")
    if "unknown field `" in text or "missing required field `" in text:
        field = f"{field}.{text.partition('field `')[2].rstrip('`')}"
    fail("bad-request", text or "it is malformed", field=field)


def match_path(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    """The parameters of a path; None if it does not match."""
    if len(pattern) != len(parts):
        return None
    params: dict[str, str] = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            params[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return params


def split_path(raw: bytes) -> list[str]:
    """The parts of a path, decoded after splitting, as a name may contain a slash. Raises ApiProblem."""
    try:
        return [DOTS.get(part) or unquote(part, errors="strict") for part in raw.decode("ascii").split("/")]
    except UnicodeDecodeError:
        fail("bad-request", "the path is not percent-encoded UTF-8", field="path")
