"""Parsers for the text of options. Each raises ValueError that says what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_PORT = 8815
DEFAULT_NAMESPACE = "default"

_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_LONG_UNITS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}
_SIZES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SCHEMES = ("grpc", "grpc+tcp", "grpc+tls")


class Secret(str):
    """A text that its repr hides."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


class SecretPairs(tuple[tuple[str, str], ...]):
    """Names and values, some of them secret: the repr hides the values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}=***' for name, _ in self)})"


def text(given: str) -> str:
    """Any text but an empty one."""
    if not given.strip():
        raise ValueError("it is empty")
    return given.strip()


def name(given: str) -> str:
    """A name of a reader or a writer, printable in logs and consoles."""
    value = text(given)
    if len(value) > 200 or not value.isprintable():
        raise ValueError("a name has at most 200 characters, all of them printable")
    return value


def choice(*words: str) -> Callable[[str], str]:
    """One of some words."""

    def read(given: str) -> str:
        word = given.strip().lower()
        if word not in words:
            raise ValueError(f"choose one of {', '.join(words)}, not {given!r}")
        return word

    return read


def folder(given: str) -> str:
    """A folder on a disk, as an absolute path, or one in an object store, as in s3://bucket/lake."""
    place = text(given)
    if place.startswith("s3://"):
        return place.rstrip("/")
    if "://" in place.removeprefix("file://"):
        raise ValueError(f"a folder, or one in an object store as in s3://bucket/lake, is expected, not {given!r}")
    return str(Path(place.removeprefix("file://")).absolute())


def table(given: str) -> str:
    """The name of a table."""
    value = text(given)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]*", value):
        raise ValueError(f"a table's name has letters, digits and _, not {given!r}")
    return value


def boolean(given: str) -> bool:
    """True or false."""
    return choice("true", "false")(given) == "true"


def positive(given: str) -> int:
    """A whole number of at least 1."""
    number = not_negative(given)
    if not number:
        raise ValueError("it must be at least 1")
    return number


def not_negative(given: str) -> int:
    """A whole number of at least 0."""
    if not re.fullmatch(r"\d{1,18}", given.strip(), re.ASCII):
        raise ValueError(f"a whole number is expected, not {given!r}")
    return int(given)


def position(given: str) -> int | str:
    """A position: earliest, latest, or a number of at least 1."""
    word = given.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if re.fullmatch(r"\d{1,18}", word, re.ASCII) and int(word):
        return int(word)
    raise ValueError(f"a position is earliest, latest, or a number from 1 on, not {given!r}")


def timestamp(given: str) -> int:
    """Microseconds since 1970, from ISO 8601 (UTC by default) or from milliseconds since 1970."""
    word = given.strip()
    if re.fullmatch(r"\d{1,15}", word, re.ASCII) and len(word) != 8:
        return int(word) * 1_000
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError(
            f"a time is as in 2026-01-31T12:00:00Z (ISO 8601), or milliseconds since 1970, not {given!r}"
        ) from None
    return microseconds(moment)


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970, without the rounding of floats."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def duration(given: str) -> int:
    """Microseconds, from a number with a unit."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", given.strip().lower(), re.ASCII)
    unit = match[2] if match else ""
    unit = unit if unit in _UNITS else _LONG_UNITS.get(unit.removesuffix("s"), "")
    if match is None or not unit:
        raise ValueError(f"a duration is a number with ms, s, m, h or d, as in 30s or 24h, not {given!r}")
    duration = round(float(match[1]) * _UNITS[unit])
    if not 0 < duration < 2**62:
        raise ValueError(f"a duration must be positive, and below 146,000 years, not {given!r}")
    return duration


def size(given: str) -> int:
    """Bytes, from a number with an optional unit as in Spark: 64m is 64 MiB."""
    match = re.fullmatch(r"(\d{1,15})\s*([kmgt]?)(i?b)?", given.strip().lower(), re.ASCII)
    if match is None or not int(match[1]):
        raise ValueError(f"a size is a number of bytes, or one with k, m or g, as in 64m, not {given!r}")
    return int(match[1]) * _SIZES[match[2]]


def pairs(given: str) -> SecretPairs:
    """Pairs, as in ``name=value,name=value``. Errors do not repeat the text: it may contain a secret."""
    parts = [each.strip().partition("=") for each in given.split(",")]
    if not all(name and sign and value for name, sign, value in parts):
        raise ValueError("comma-separated NAME=VALUE pairs are expected, as in region=eu-central-1,key=…")
    return SecretPairs((name.strip(), value.strip()) for name, _, value in parts)


def names(given: str) -> tuple[str, ...]:
    """Comma-separated names."""
    values = tuple(each.strip() for each in given.split(","))
    if "" in values:
        raise ValueError(f"comma-separated names are expected, not {given!r}")
    doubled = {each for each in values if values.count(each) > 1}
    if doubled:
        raise ValueError(f"{', '.join(sorted(doubled))} is repeated")
    return values


def queue(given: str) -> str:
    """namespace/queue; a name alone is in the namespace ``default``, where PHPMQ's queues are too."""
    namespace, slash, name = text(given).partition("/")
    if not slash:
        namespace, name = DEFAULT_NAMESPACE, namespace
    if not namespace or not name:
        raise ValueError(f"a queue is named namespace/queue, as in default/jobs, not {given!r}")
    return f"{namespace}/{name}"


def pattern(given: str) -> str:
    """A pattern of namespace and queue. Both parts are required, since one alone would be ambiguous."""
    namespaces, _, queues = text(given).partition("/")
    if not namespaces or not queues:
        raise ValueError(f"a pattern has two parts, namespace/queue, as in default/orders-* or */*, not {given!r}")
    return f"{namespaces}/{queues}"


def endpoint(given: str) -> str:
    """The address of a Flight endpoint, or comma-separated addresses of brokers of which one serves."""
    endpoints = [_endpoint(each) for each in given.split(",")]
    if len(set(endpoints)) < len(endpoints):
        raise ValueError("an endpoint is repeated")
    if len({each.partition("://")[0] == "grpc+tls" for each in endpoints}) > 1:
        raise ValueError("either all endpoints have TLS (grpc+tls://) or none: a token must not go to one without")
    return ",".join(endpoints)


def _endpoint(given: str) -> str:
    try:
        split = urlsplit(given.strip())
        port = split.port or DEFAULT_PORT
    except ValueError:
        raise ValueError(_NO_ENDPOINT) from None
    if split.scheme not in _SCHEMES or not split.hostname or split.username is not None or split.path.strip("/"):
        raise ValueError(_NO_ENDPOINT)
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    return f"{split.scheme}://{host}:{port}"


#: The error does not repeat the text, which may contain a password.
_NO_ENDPOINT = (
    "an endpoint is as in grpc://broker:8815 or, with TLS, grpc+tls://broker:8815; several are separated by commas"
)


def file(given: str) -> str:
    """The content of a PEM file, or the PEM text itself. Read on the driver, so that executors need no file."""
    if "-----BEGIN" in given:
        return given
    try:
        content = Path(given).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise ValueError(f"the file {given!r} can't be read on the driver: {reason}") from None
    if "-----BEGIN" not in content:
        raise ValueError(f"the file {given!r} is not PEM")
    return content


def secret_file(given: str) -> Secret:
    """Like ``file``, but its repr hides it."""
    return Secret(file(given))
