"""How the text of an option is read. Each raises ValueError, with what would be right."""

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
    """A text that is not shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


class SecretPairs(tuple[tuple[str, str], ...]):
    """Names and values, some of which may be secret: they are not shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}=***' for name, _ in self)})"


def text(given: str) -> str:
    """Anything but nothing."""
    if not given.strip():
        raise ValueError("it is empty")
    return given.strip()


def name(given: str) -> str:
    """A name for a reader or a writer: what a log and a console can show as it is."""
    found = text(given)
    if len(found) > 200 or not found.isprintable():
        raise ValueError("a name has at most 200 characters, all of them printable")
    return found


def choice(*words: str) -> Callable[[str], str]:
    """One of some words."""

    def read(given: str) -> str:
        found = given.strip().lower()
        if found not in words:
            raise ValueError(f"choose one of {', '.join(words)}, not {given!r}")
        return found

    return read


def folder(given: str) -> str:
    """A folder on a disk, as an absolute path, or one in an object store, as in s3://bucket/lake."""
    found = text(given)
    if found.startswith("s3://"):
        return found.rstrip("/")
    if "://" in found.removeprefix("file://"):
        raise ValueError(f"a folder, or one in an object store as in s3://bucket/lake, is expected, not {given!r}")
    return str(Path(found.removeprefix("file://")).absolute())


def table(given: str) -> str:
    """The name of a table."""
    found = text(given)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]*", found):
        raise ValueError(f"a table's name has letters, digits and _, not {given!r}")
    return found


def boolean(given: str) -> bool:
    """True or false."""
    return choice("true", "false")(given) == "true"


def positive(given: str) -> int:
    """A whole number from 1 on."""
    found = not_negative(given)
    if not found:
        raise ValueError("it must be at least 1")
    return found


def not_negative(given: str) -> int:
    """A whole number from 0 on."""
    if not re.fullmatch(r"\d{1,18}", given.strip(), re.ASCII):
        raise ValueError(f"a whole number is expected, not {given!r}")
    return int(given)


def position(given: str) -> int | str:
    """A position: earliest, latest, or a number from 1 on."""
    word = given.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if re.fullmatch(r"\d{1,18}", word, re.ASCII) and int(word):
        return int(word)
    raise ValueError(f"a position is earliest, latest, or a number from 1 on, not {given!r}")


def timestamp(given: str) -> int:
    """Microseconds since 1970, of ISO 8601 (UTC if it does not say otherwise) or of milliseconds since 1970."""
    word = given.strip()
    if re.fullmatch(r"\d{1,15}", word, re.ASCII) and len(word) != 8:
        return int(word) * 1_000
    try:
        found = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError(
            f"a time is as in 2026-01-31T12:00:00Z (ISO 8601), or milliseconds since 1970, not {given!r}"
        ) from None
    return microseconds(found)


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970, without the rounding of floats."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def duration(given: str) -> int:
    """Microseconds, of a number with a unit."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", given.strip().lower(), re.ASCII)
    unit = match[2] if match else ""
    unit = unit if unit in _UNITS else _LONG_UNITS.get(unit.removesuffix("s"), "")
    if match is None or not unit:
        raise ValueError(f"a duration is a number with ms, s, m, h or d, as in 30s or 24h, not {given!r}")
    found = round(float(match[1]) * _UNITS[unit])
    if not 0 < found < 2**62:
        raise ValueError(f"a duration must be longer than nothing and shorter than forever, not {given!r}")
    return found


def size(given: str) -> int:
    """Bytes, of a number that may have a unit, as Spark reads it: 64m is 64 MiB."""
    match = re.fullmatch(r"(\d{1,15})\s*([kmgt]?)(i?b)?", given.strip().lower(), re.ASCII)
    if match is None or not int(match[1]):
        raise ValueError(f"a size is a number of bytes, or one with k, m or g, as in 64m, not {given!r}")
    return int(match[1]) * _SIZES[match[2]]


def pairs(given: str) -> SecretPairs:
    """Names with values, as in ``name=value,name=value``. The text is not repeated: it may have a secret in it."""
    found = [each.strip().partition("=") for each in given.split(",")]
    if not all(name and sign and value for name, sign, value in found):
        raise ValueError("names with values and commas between them are expected, as in region=eu-central-1,key=…")
    return SecretPairs((name.strip(), value.strip()) for name, _, value in found)


def names(given: str) -> tuple[str, ...]:
    """Names with commas between them."""
    found = tuple(each.strip() for each in given.split(","))
    if "" in found:
        raise ValueError(f"names with commas between them are expected, not {given!r}")
    doubled = {each for each in found if found.count(each) > 1}
    if doubled:
        raise ValueError(f"{', '.join(sorted(doubled))} is there twice")
    return found


def queue(given: str) -> str:
    """namespace/queue; a name alone is in the namespace ``default``, where PHPMQ's queues are as well."""
    namespace, slash, found = text(given).partition("/")
    if not slash:
        namespace, found = DEFAULT_NAMESPACE, namespace
    if not namespace or not found:
        raise ValueError(f"a queue is named namespace/queue, as in default/jobs, not {given!r}")
    return f"{namespace}/{found}"


def pattern(given: str) -> str:
    """A pattern of namespace and queue. Both parts must be there, as one alone could be meant either way."""
    namespaces, _, queues = text(given).partition("/")
    if not namespaces or not queues:
        raise ValueError(f"a pattern has two parts, namespace/queue, as in default/orders-* or */*, not {given!r}")
    return f"{namespaces}/{queues}"


def endpoint(given: str) -> str:
    """The address of a Flight endpoint, or those of several brokers of which one serves, with commas between them."""
    found = [_endpoint(each) for each in given.split(",")]
    if len(set(found)) < len(found):
        raise ValueError("one of the endpoints stands there twice")
    if len({each.partition("://")[0] == "grpc+tls" for each in found}) > 1:
        raise ValueError("either all endpoints have TLS (grpc+tls://) or none: a token must not go to one without")
    return ",".join(found)


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


#: The text that was given is not repeated: somebody may have put a password into it.
_NO_ENDPOINT = (
    "an endpoint is as in grpc://broker:8815 or, with TLS, grpc+tls://broker:8815; several have commas between them"
)


def file(given: str) -> str:
    """The content of a PEM file, or the PEM text itself. Files are read on the driver, so executors need none."""
    if "-----BEGIN" in given:
        return given
    try:
        found = Path(given).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no PEM"
        raise ValueError(f"the file {given!r} can't be read on the driver: {reason}") from None
    if "-----BEGIN" not in found:
        raise ValueError(f"the file {given!r} is no PEM")
    return found


def secret_file(given: str) -> Secret:
    """Like ``file``, and not shown."""
    return Secret(file(given))
