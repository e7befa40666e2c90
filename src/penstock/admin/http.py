"""Requests and answers of HTTP, as the handlers see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from penstock.admin.access import Caller
from penstock.admin.problems import fail
from penstock.admin.routes import DOTS, Route

#: Bytes of a body, but where payloads come in: those of a publish may be as large as payloads are, in hex.
BODY_BYTES = 4 * 2**20
#: Bytes of what stands behind the question mark.
QUERY_BYTES = 16 * 1024

K = TypeVar("K")


class Request(NamedTuple):
    """A request that was understood, of a caller who may make it."""

    route: Route
    #: What stands in the places of the path.
    places: dict[str, str]
    query: Any
    body: Any
    headers: dict[str, str]
    caller: Caller
    #: Who shows the same now: for answers that go on for long. Raises ApiProblem for who may not ask any more.
    caller_now: Callable[[], Awaitable[Caller]]

    @property
    def namespace(self) -> str:
        """Of the path."""
        return self.places["namespace"]

    @property
    def queue(self) -> str:
        """Of the path, without its namespace."""
        return self.places["queue"]

    @property
    def full_name(self) -> str:
        """Of the queue of the path."""
        return f"{self.namespace}/{self.queue}"

    @property
    def message_id(self) -> bytes:
        """Of the path. Raises ApiProblem."""
        text = self.places["id"]
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            raw = b""
        if len(raw) != 16 or len(text) != 32:
            fail("bad-request", f"an ID of a message has 32 hex digits, not {text[:64]!r}", field="path.id")
        return raw


class Answer(NamedTuple):
    """What goes out. ``value`` is encoded as JSON, unless there is a ``body`` or a ``stream``."""

    value: Any = None
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    media: str = "application/json"
    stream: AsyncGenerator[bytes, None] | None = None
    #: For the audit log: whether something was changed, what it was about, and how that was before and is after.
    outcome: Literal["done", "dry-run"] = "done"
    target: str = ""
    before: Any = None
    after: Any = None


def decoded_query(raw: bytes, kind: Any) -> Any:
    """The parameters as their type wants them. Raises ApiProblem with the parameter that is wrong."""
    if len(raw) > QUERY_BYTES:
        fail("too-large", f"the query has {QUERY_BYTES} bytes at most, not {len(raw)}", field="query")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except ValueError as error:
        fail("bad-request", f"the query can not be read: {error}", field="query")
    values = dict(pairs)
    if len(values) < len(pairs):
        fail("bad-request", "a parameter is given twice", field="query")
    if kind is None:
        if values:
            fail("bad-request", "this path takes no parameters", field=f"query.{next(iter(values))}")
        return None
    given = {name: value for name, value in values.items() if value != ""}
    return converted(given, kind, "query", strict=False)


def decoded_body(data: bytes, kind: Any) -> Any:
    """The body as its type wants it. Raises ApiProblem with the field that is wrong."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise_for(error, "body")


def converted(values: Any, kind: type[K], where: str, *, strict: bool = True) -> K:
    """Values as a type. Raises ApiProblem with the one that is wrong."""
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise_for(error, where)


def raise_for(error: Exception, where: str) -> NoReturn:
    """Raise the problem for what msgspec says: "Expected `int`, got `str` - at `$.rules.max_depth`"."""
    text, _, place = str(error).partition(" - at `$")
    field = where + place.rstrip("`")
    if "unknown field `" in text or "missing required field `" in text:
        field = f"{field}.{text.partition('field `')[2].rstrip('`')}"
    fail("bad-request", text or "it can not be read", field=field)


def matched(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    """What stands in the places of a path, None if it is another path."""
    if len(pattern) != len(parts):
        return None
    places: dict[str, str] = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            places[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return places


def split_path(raw: bytes) -> list[str]:
    """The parts of a path, decoded one by one: a name may have a slash. Raises ApiProblem."""
    try:
        return [DOTS.get(part) or unquote(part, errors="strict") for part in raw.decode("ascii").split("/")]
    except UnicodeDecodeError:
        fail("bad-request", "the path is percent-encoded UTF-8", field="path")
