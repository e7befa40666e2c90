"""The place of tables: a local folder, or a prefix of an S3 object store.

A ``Store`` is a value that is sent to executors. Its repr hides secrets, so they do not appear in logs, plans or
Spark's pages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from msgspec import Struct
from msgspec.structs import asdict

from penstock.spark.lake.disk import LakeError, make_folders, sync

#: Options of an object store: their environment variables, and their names in ``deltalake`` and ``pyiceberg``.
OPTIONS = {
    "endpoint": (("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "AWS_ENDPOINT_URL", "s3.endpoint"),
    "region": (("AWS_REGION", "AWS_DEFAULT_REGION"), "AWS_REGION", "s3.region"),
    "key": (("AWS_ACCESS_KEY_ID",), "AWS_ACCESS_KEY_ID", "s3.access-key-id"),
    "secret": (("AWS_SECRET_ACCESS_KEY",), "AWS_SECRET_ACCESS_KEY", "s3.secret-access-key"),
    "session": (("AWS_SESSION_TOKEN",), "AWS_SESSION_TOKEN", "s3.session-token"),
}
#: The default region. Self-hosted servers have no regions, but signatures contain one.
REGION = "us-east-1"
#: Seconds until a connection, or an answer, times out and is retried.
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 30.0
#: Attempts of a request: about ten seconds if it is refused, minutes if it hangs.
ATTEMPTS = 8


class S3Options(Struct, frozen=True):
    """Options of an object store. Empty ones come from the machine's own S3 configuration."""

    endpoint: str = ""
    region: str = ""
    key: str = ""
    secret: str = ""
    session: str = ""

    def __repr__(self) -> str:
        return f"S3Options(endpoint={self.endpoint!r}, region={self.region!r})"


def s3_options(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> S3Options:
    """From options, or else from the environment. ``@FILE`` as a value is replaced by the file's content."""
    variables = os.environ if environment is None else environment
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise LakeError(f"there is no store option {unknown[0]!r}: choose from {', '.join(OPTIONS)}")
    values = {}
    for name, (places, *_) in OPTIONS.items():
        value = given.get(name) or next((variables[each] for each in places if variables.get(each)), "")
        values[name] = from_file(f"the store's {name}", value)
    options = S3Options(**values)
    if bool(options.key) != bool(options.secret):
        there, missing = ("key", "secret") if options.key else ("secret", "key")
        raise LakeError(f"the store has a {there} but no {missing}: give both (--store {missing}=…), or neither")
    if options.endpoint and urlsplit(options.endpoint).scheme not in ("http", "https"):
        raise LakeError(f"the store's endpoint is a URL like https://s3.example.com, not {options.endpoint!r}")
    return options


def from_file(what: str, value: str) -> str:
    """A value, or the content of ``@FILE``, so that a secret does not appear in the list of processes."""
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise LakeError(f"{what} can't be read from {value[1:]}: {error.strerror}") from None


class Store:
    """A place for tables. Paths are relative to it."""

    def __init__(self, place: str | Path, options: S3Options | None = None) -> None:
        text = str(place).removeprefix("file://")
        scheme = urlsplit(text).scheme if "://" in text else ""
        if scheme not in ("", "s3"):
            raise LakeError(f"{place}: a lake is a local folder or s3://BUCKET/PATH, not {scheme}://…")
        self.remote = scheme == "s3"
        self.options = options or S3Options()
        bare = text.removeprefix("s3://").strip("/") if self.remote else str(Path(text).absolute())
        if not bare:
            raise LakeError(f"{place}: which bucket? A lake in an object store is s3://BUCKET/PATH")
        #: The root for ``filesystem``.
        self.base = bare

    def __repr__(self) -> str:
        return f"Store({self.uri()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.uri(), self.options)

    def uri(self, path: str = "") -> str:
        """The URI of a path, for people and other libraries."""
        return f"s3://{self.full(path)}" if self.remote else self.full(path)

    def full(self, path: str = "") -> str:
        """A path for ``filesystem``."""
        return f"{self.base}/{path}" if path else self.base

    def relative(self, path: str) -> str:
        """The inverse of ``full`` and of ``uri``."""
        bare = path.removeprefix("s3://").removeprefix("file://")
        return bare.removeprefix(f"{self.base}/")

    @cached_property
    def filesystem(self) -> pafs.FileSystem:
        """Arrow's."""
        if not self.remote:
            return pafs.LocalFileSystem()
        options = self.options
        where = urlsplit(options.endpoint)
        known = {"access_key": options.key, "secret_key": options.secret, "session_token": options.session}
        return pafs.S3FileSystem(
            **{name: value for name, value in known.items() if value},
            **({"endpoint_override": where.netloc, "scheme": where.scheme} if options.endpoint else {}),
            region=options.region or REGION,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=ANSWER_SECONDS,
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        )

    def delta_options(self) -> dict[str, str]:
        """The options for ``deltalake``."""
        if not self.remote:
            return {}
        plain = {"AWS_ALLOW_HTTP": "true"} if self.options.endpoint.startswith("http://") else {}
        waits = {
            "connect_timeout": f"{CONNECT_SECONDS}s",
            "timeout": f"{ANSWER_SECONDS}s",
            "max_retries": str(ATTEMPTS),
        }
        return {**self._named(1), **plain, **waits, "AWS_CONDITIONAL_PUT": "etag"}

    def iceberg_options(self) -> dict[str, str]:
        """The options for ``pyiceberg``."""
        if not self.remote:
            return {}
        waits = {"s3.connect-timeout": str(CONNECT_SECONDS), "s3.request-timeout": str(ANSWER_SECONDS)}
        return {**self._named(2), **waits, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}

    def _named(self, library: int) -> dict[str, str]:
        """Non-empty options under a library's names; ``library`` is its index in ``OPTIONS``."""
        known = {**asdict(self.options), "region": self.options.region or REGION}
        return {names[library]: known[name] for name, names in OPTIONS.items() if known[name]}  # type: ignore[misc]

    def files(self, path: str, ending: str = "") -> Iterator[pafs.FileInfo]:
        """All files below a folder with this ending, with sizes and times; none if the folder does not exist."""
        selector = pafs.FileSelector(self.full(path), recursive=True, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type == pafs.FileType.File and info.path.endswith(ending):
                yield info

    def has_files(self, path: str, ending: str = "") -> bool:
        """Whether there are any files below a folder with this ending."""
        return next(self.files(path, ending), None) is not None

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self.filesystem.get_file_info(self.full(path)).type != pafs.FileType.NotFound)

    def move(self, path: str, to: str) -> None:
        """Move a file atomically, if it is still there. Replaces an existing file."""
        if not self.exists(path):
            return
        if not self.remote:
            make_folders(Path(self.full(to)).parent)
        self.filesystem.move(self.full(path), self.full(to))
        if not self.remote:
            sync(Path(self.full(to)).parent)

    def remove(self, path: str) -> None:
        """Remove a file or folder, if it exists."""
        kind = self.filesystem.get_file_info(self.full(path)).type
        with suppress(FileNotFoundError):  # a removal is retried if its answer was lost
            if kind == pafs.FileType.File:
                self.filesystem.delete_file(self.full(path))
            elif kind == pafs.FileType.Directory:
                self.filesystem.delete_dir(self.full(path))

    def create(self, path: str) -> BinaryIO:
        """A new file for sequential writing. It appears when it is closed, or not at all."""
        if self.remote:
            stream: BinaryIO = self.filesystem.open_output_stream(self.full(path))
            return stream
        target = Path(self.full(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("wb")

    def sync(self, file: BinaryIO) -> None:
        """Sync what was written to disk, before the file is closed."""
        if not self.remote:
            file.flush()
            os.fsync(file.fileno())

    def check(self) -> None:
        """Raise early if files can't be written and removed there."""
        probe = f"_penstock/probe-{os.getpid()}"
        try:
            with self.create(probe) as file:
                file.write(b"may be removed")
            self.remove(probe)
        except OSError as error:
            raise LakeError(f"the lake {self.uri()} can't be written to: {reason_of(error)}") from None


#: Terminal escapes in the errors of some libraries.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m↳?")


def reason_of(error: BaseException) -> str:
    """A library's error, shortened to one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(_COLOURS.sub("", str(error)).split())
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"  # the cause is at the end
