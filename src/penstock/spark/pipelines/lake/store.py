"""Where tables are: a local folder, or a prefix of an object store that speaks S3.

A ``Store`` is a value that travels to executors. What is secret in it is shown nowhere: not when it is printed, and so
not in logs, plans or Spark's pages.
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

from penstock.spark.pipelines.lake.batches import LakeError, make_folders, sync

#: Options of an object store: the variables that stand in for them, and what ``deltalake`` and ``pyiceberg`` call them.
OPTIONS = {
    "endpoint": (("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "AWS_ENDPOINT_URL", "s3.endpoint"),
    "region": (("AWS_REGION", "AWS_DEFAULT_REGION"), "AWS_REGION", "s3.region"),
    "key": (("AWS_ACCESS_KEY_ID",), "AWS_ACCESS_KEY_ID", "s3.access-key-id"),
    "secret": (("AWS_SECRET_ACCESS_KEY",), "AWS_SECRET_ACCESS_KEY", "s3.secret-access-key"),
    "session": (("AWS_SESSION_TOKEN",), "AWS_SESSION_TOKEN", "s3.session-token"),
}
#: Where nothing is said. Servers of one's own have no regions, but signatures have one.
REGION = "us-east-1"
#: Seconds until a connection, and an answer, are given up and tried again.
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 30.0
#: How often a request is tried before it counts as failed: some ten seconds if it is refused, minutes if it hangs.
ATTEMPTS = 8


class S3Options(Struct, frozen=True):
    """How to reach an object store. What is empty is left to the machine, as with other programs for S3."""

    endpoint: str = ""
    region: str = ""
    key: str = ""
    secret: str = ""
    session: str = ""

    def __repr__(self) -> str:
        return f"S3Options(endpoint={self.endpoint!r}, region={self.region!r})"


def s3_options(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> S3Options:
    """From options, or else from the environment. ``@FILE`` as a value is what the file has."""
    variables = os.environ if environment is None else environment
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise LakeError(f"there is no store option {unknown[0]!r}: choose from {', '.join(OPTIONS)}")
    found = {}
    for name, (places, *_) in OPTIONS.items():
        value = given.get(name) or next((variables[each] for each in places if variables.get(each)), "")
        found[name] = from_file(f"the store's {name}", value)
    options = S3Options(**found)
    if bool(options.key) != bool(options.secret):
        there, missing = ("key", "secret") if options.key else ("secret", "key")
        raise LakeError(f"the store has a {there} but no {missing}: give both (--store {missing}=…), or neither")
    if options.endpoint and urlsplit(options.endpoint).scheme not in ("http", "https"):
        raise LakeError(f"the store's endpoint is a URL like https://s3.example.com, not {options.endpoint!r}")
    return options


def from_file(what: str, value: str) -> str:
    """A value, or what the file has that ``@FILE`` names: in a list of processes, only the name is seen."""
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
        #: As ``filesystem`` wants it.
        self.base = bare

    def __repr__(self) -> str:
        return f"Store({self.uri()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.uri(), self.options)

    def uri(self, path: str = "") -> str:
        """As a person, and other libraries, would write it."""
        return f"s3://{self.full(path)}" if self.remote else self.full(path)

    def full(self, path: str = "") -> str:
        """As ``filesystem`` wants it."""
        return f"{self.base}/{path}" if path else self.base

    def relative(self, path: str) -> str:
        """The other way round; of a URI too."""
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
        """The same in the words of ``deltalake``."""
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
        """The same in the words of ``pyiceberg``."""
        if not self.remote:
            return {}
        waits = {"s3.connect-timeout": str(CONNECT_SECONDS), "s3.request-timeout": str(ANSWER_SECONDS)}
        return {**self._named(2), **waits, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}

    def _named(self, library: int) -> dict[str, str]:
        """Options that have a value, by the names that a library has for them: its place in ``OPTIONS``."""
        known = {**asdict(self.options), "region": self.options.region or REGION}
        return {names[library]: known[name] for name, names in OPTIONS.items() if known[name]}  # type: ignore[misc]

    def files(self, path: str, ending: str = "") -> Iterator[pafs.FileInfo]:
        """All files below a folder whose names end like this, with sizes and times; none if it is not there."""
        selector = pafs.FileSelector(self.full(path), recursive=True, allow_not_found=True)
        for found in self.filesystem.get_file_info(selector):
            if found.type == pafs.FileType.File and found.path.endswith(ending):
                yield found

    def has_files(self, path: str, ending: str = "") -> bool:
        """Whether there are any."""
        return next(self.files(path, ending), None) is not None

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self.filesystem.get_file_info(self.full(path)).type != pafs.FileType.NotFound)

    def move(self, path: str, to: str) -> None:
        """In one step, if the file is still there. What the new place had is replaced."""
        if not self.exists(path):
            return
        if not self.remote:
            make_folders(Path(self.full(to)).parent)
        self.filesystem.move(self.full(path), self.full(to))
        if not self.remote:
            sync(Path(self.full(to)).parent)

    def remove(self, path: str) -> None:
        """Remove a file or folder. It is no error if there is none."""
        kind = self.filesystem.get_file_info(self.full(path)).type
        with suppress(FileNotFoundError):  # a removal of which the answer was lost is repeated
            if kind == pafs.FileType.File:
                self.filesystem.delete_file(self.full(path))
            elif kind == pafs.FileType.Directory:
                self.filesystem.delete_dir(self.full(path))

    def create(self, path: str) -> BinaryIO:
        """A new file, to be written from the beginning to the end. It is there when it is closed, or not at all."""
        if self.remote:
            stream: BinaryIO = self.filesystem.open_output_stream(self.full(path))
            return stream
        target = Path(self.full(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("wb")

    def settle(self, file: BinaryIO) -> None:
        """Have what was written on disk, before the file is closed."""
        if not self.remote:
            file.flush()
            os.fsync(file.fileno())

    def check(self) -> None:
        """That files can be written and removed there, told before anything is begun."""
        probe = f"_penstock/probe-{os.getpid()}"
        try:
            with self.create(probe) as file:
                file.write(b"may be removed")
            self.remove(probe)
        except OSError as error:
            raise LakeError(f"the lake {self.uri()} can't be written to: {reason_of(error)}") from None


#: What some libraries put around words for terminals.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m↳?")


def reason_of(error: BaseException) -> str:
    """What a library says of a failure, on one line and in short."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(_COLOURS.sub("", str(error)).split())
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"  # the cause is in the end
