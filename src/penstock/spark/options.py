"""The options of ``format("penstock")``: one table, and the settings made from it.

Names are case-insensitive, as in Spark. Everything is checked on the driver: an option that is unknown, that belongs to
another use, that contradicts another one, or whose value is invalid ends the query at once, and the error lists the
valid ones. docs/spark.md shows the same table; a test compares the two.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from enum import Flag, auto
from typing import Any, NamedTuple

import msgspec

from penstock.spark import values
from penstock.spark.errors import BadOption
from penstock.spark.values import Secret, SecretPairs

DEFAULT_ENDPOINT = "grpc://127.0.0.1:8815"
DEFAULT_LEASE_TIMEOUT = 24 * 3600 * 1_000_000
#: How long a running query waits for a broker that is away or has no room for messages.
DEFAULT_PATIENCE = 300 * 1_000_000


class Use(Flag):
    """The uses of the data source."""

    BATCH = auto()
    STREAM = auto()
    CONSUME = auto()
    WRITE = auto()
    STREAM_WRITE = auto()
    READING = BATCH | STREAM | CONSUME
    STREAMS = STREAM | CONSUME
    WRITING = WRITE | STREAM_WRITE
    ALL = READING | WRITING


class Option(NamedTuple):
    """One option: its name, its field, its parser, and its uses."""

    name: str
    field: str
    read: Callable[[str], Any]
    use: Use


OPTIONS = (
    Option("endpoint", "endpoint", values.endpoint, Use.ALL),
    Option("token", "token", Secret, Use.ALL),
    Option("tlsCa", "tls_ca", values.file, Use.ALL),
    Option("tlsCertificate", "tls_certificate", values.file, Use.ALL),
    Option("tlsKey", "tls_key", values.secret_file, Use.ALL),
    Option("tlsServerName", "tls_server_name", values.text, Use.ALL),
    Option("patience", "patience", values.duration, Use.ALL),
    Option("queue", "queue", values.queue, Use.ALL),
    Option("queuePattern", "pattern", values.pattern, Use.READING),
    Option("view", "view", values.choice("messages", "events", "live"), Use.BATCH | Use.STREAM),
    Option("columns", "columns", values.names, Use.READING),
    Option("startingPosition", "starting_position", values.position, Use.BATCH | Use.STREAM),
    Option("endingPosition", "ending_position", values.position, Use.BATCH),
    Option("startingTimestamp", "starting_timestamp", values.timestamp, Use.BATCH | Use.STREAM),
    Option("endingTimestamp", "ending_timestamp", values.timestamp, Use.BATCH),
    Option("minPartitions", "min_partitions", values.positive, Use.READING),
    Option("archive", "archive", values.folder, Use.BATCH | Use.STREAM),
    Option("archiveTable", "archive_table", values.table, Use.BATCH | Use.STREAM),
    Option("archiveStore", "archive_store", values.pairs, Use.BATCH | Use.STREAM),
    Option("archiveCatalogue", "archive_catalogue", values.pairs, Use.BATCH | Use.STREAM),
    Option("shortCircuit", "short_circuit", values.boolean, Use.BATCH | Use.STREAM),
    Option("failOnDataLoss", "fail_on_data_loss", values.boolean, Use.BATCH | Use.STREAM),
    Option("pushFilters", "push_filters", values.boolean, Use.BATCH),
    Option("mode", "mode", values.choice("read", "consume"), Use.READING),
    Option("maxMessagesPerTrigger", "max_messages", values.positive, Use.STREAMS),
    Option("maxBytesPerTrigger", "max_bytes", values.size, Use.STREAMS),
    Option("readerName", "reader", values.name, Use.STREAMS),
    Option("pinRetention", "pin", values.boolean, Use.STREAM),
    Option("leaseTimeout", "lease_timeout", values.duration, Use.CONSUME),
    Option("createQueues", "create_queues", values.boolean, Use.WRITING),
    Option("checkRepeats", "check_repeats", values.boolean, Use.WRITING),
    Option("writerName", "writer", values.name, Use.WRITE),
    Option("epoch", "epoch", values.not_negative, Use.WRITE),
)
_BY_NAME = {option.name.lower(): option for option in OPTIONS}

#: Options that Spark passes on and that mean nothing here.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})

_WORDS = {
    Use.BATCH: "batch reads",
    Use.STREAM: "streaming reads",
    Use.CONSUME: "streaming reads with mode=consume",
    Use.WRITE: "batch writes",
    Use.STREAM_WRITE: "streaming writes",
}


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options. Sent to executors; its repr shows no secret."""

    endpoint: str = DEFAULT_ENDPOINT
    token: Secret = Secret()
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: Secret = Secret()
    tls_server_name: str = ""
    patience: int = DEFAULT_PATIENCE
    queue: str = ""
    pattern: str = ""
    view: str = "messages"
    columns: tuple[str, ...] = ()
    starting_position: int | str = "earliest"
    ending_position: int | str = "latest"
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    min_partitions: int = 1
    archive: str = ""
    archive_table: str = "messages"
    archive_store: SecretPairs = SecretPairs()
    archive_catalogue: SecretPairs = SecretPairs()
    short_circuit: bool = True
    fail_on_data_loss: bool = True
    push_filters: bool = False
    mode: str = "read"
    max_messages: int = 0
    max_bytes: int = 0
    reader: str = ""
    pin: bool = False
    lease_timeout: int = DEFAULT_LEASE_TIMEOUT
    create_queues: bool = False
    check_repeats: bool = True
    writer: str = ""
    epoch: int | None = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The brokers' endpoints, of which one serves at a time."""
        return tuple(self.endpoint.split(","))

    @property
    def where(self) -> str:
        """The subject of the read, for display."""
        return self.queue or self.pattern or "all queues"


def parse(options: Mapping[str, str], use: Use) -> SourceSettings:
    """Parse the options of a use; for several uses, those of any of them. Raises BadOption."""
    given: dict[str, str] = {}
    for name, text in options.items():
        if name.lower() not in _SPARKS_OWN:
            given[_known(name, use).name] = text
    if given.get("mode", "read").strip().lower() == "consume" and use & Use.READING:
        use = _consuming(use)
    else:
        use &= ~Use.CONSUME
    for name in given:
        _belongs(_BY_NAME[name.lower()], use)
    fields = {_BY_NAME[name.lower()].field: _value(_BY_NAME[name.lower()], text) for name, text in given.items()}
    _check(given, fields)
    if fields.get("archive", "").startswith("s3://"):
        fields["archive_store"] = _read_files("archiveStore", fields.get("archive_store", SecretPairs()))
    if "archive_catalogue" in fields:
        fields["archive_catalogue"] = _read_files("archiveCatalogue", fields["archive_catalogue"])
    return SourceSettings(**fields)


def _read_files(name: str, given: SecretPairs) -> SecretPairs:
    """The options of the archive, with files and variables read on the driver: executors have others."""
    from penstock.spark.lake.disk import LakeError  # noqa: PLC0415 - only what is needed
    from penstock.spark.lake.store import from_file, s3_options  # noqa: PLC0415

    try:
        if name == "archiveStore":
            values = msgspec.structs.asdict(s3_options(dict(given)))
        else:
            values = {key: from_file(f"the catalogue's {key}", value) for key, value in given}
    except LakeError as error:
        raise BadOption(f"option {name}: {error}") from None
    return SecretPairs((key, value) for key, value in values.items() if value)


def _known(name: str, use: Use) -> Option:
    option = _BY_NAME.get(name.lower())
    if option is not None:
        return option
    if name.lower() == "path":
        raise BadOption("penstock has no paths: name the queue with option 'queue', and give load() or save() no path")
    close = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
    hint = f" Did you mean {_BY_NAME[close[0]].name}?" if close else ""
    raise BadOption(f"penstock has no option {name!r}.{hint} {_valid(use)}")


def _valid(use: Use) -> str:
    names = sorted(option.name for option in OPTIONS if option.use & use)
    return f"Valid here: {', '.join(names)}"


def _belongs(option: Option, use: Use) -> None:
    if not option.use & use:
        fit = " and ".join(words for each, words in _WORDS.items() if each in option.use)
        here = " and ".join(words for each, words in _WORDS.items() if each in use)
        raise BadOption(f"option {option.name} is for {fit}, and not for {here}. {_valid(use)}")


def _value(option: Option, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise BadOption(f"option {option.name}: {error}") from None


def _check(given: Mapping[str, str], fields: Mapping[str, Any]) -> None:
    """Check options that depend on each other."""
    for one, other in (
        ("queue", "queuePattern"),
        ("startingPosition", "startingTimestamp"),
        ("endingPosition", "endingTimestamp"),
    ):
        if one in given and other in given:
            raise BadOption(f"options {one} and {other} contradict each other: give one of them")
    _check_range(given, fields)
    _check_tls(given, fields)
    if fields.get("view") == "live":
        for name in given:
            if name.startswith(("starting", "ending")):
                raise BadOption(
                    f"option {name}: view live shows the current content of queues, which has no positions to begin at"
                )
    _check_archive(given, fields)
    if fields.get("pin") and "readerName" not in given:
        raise BadOption("option pinRetention needs a readerName: operators must see which reader holds history back")
    if fields.get("mode") == "consume":
        _check_consume(given)
    if ("writerName" in given) != ("epoch" in given):
        raise BadOption("options writerName and epoch belong together: they name the write that may be repeated")


def _check_archive(given: Mapping[str, str], fields: Mapping[str, Any]) -> None:
    if "archive" not in given:
        for name in given:
            if name.startswith("archive"):
                raise BadOption(f"option {name} needs option archive: the folder of the lake")
    elif "archiveStore" in given and not fields["archive"].startswith("s3://"):
        raise BadOption("option archiveStore is for an archive in an object store, as in s3://bucket/lake")
    elif (view := fields.get("view", "messages")) != "messages":
        raise BadOption(f"option archive: an archive contains published messages (view messages), not {view}")


def _check_range(given: Mapping[str, str], fields: Mapping[str, Any]) -> None:
    start, stop = fields.get("starting_position"), fields.get("ending_position")
    if start == "latest" and "endingPosition" in given and stop != "latest":
        raise BadOption("options startingPosition=latest and endingPosition contradict each other")
    if isinstance(start, int) and isinstance(stop, int) and start > stop:
        raise BadOption(f"option startingPosition ({start}) is behind endingPosition ({stop})")
    begin, end = fields.get("starting_timestamp"), fields.get("ending_timestamp")
    if begin is not None and end is not None and begin > end:
        raise BadOption("option startingTimestamp is later than endingTimestamp")


def _check_tls(given: Mapping[str, str], fields: Mapping[str, Any]) -> None:
    if not fields.get("endpoint", DEFAULT_ENDPOINT).startswith("grpc+tls:"):
        for name in given:
            if name.startswith("tls"):
                raise BadOption(f"option {name} needs an endpoint with TLS, as in grpc+tls://broker:8815")
    if ("tlsCertificate" in given) != ("tlsKey" in given):
        raise BadOption("options tlsCertificate and tlsKey belong together")


def _consuming(use: Use) -> Use:
    if Use.STREAM not in use:
        raise BadOption(
            "mode=consume is for streams: a batch has no checkpoint of what was processed. "
            "Use spark.readStream, with trigger(availableNow=True) to stop at the end"
        )
    return Use.CONSUME


def _check_consume(given: Mapping[str, str]) -> None:
    if "readerName" not in given:
        raise BadOption("mode=consume needs a readerName: its leases are kept under that name")
    if "queue" not in given and "queuePattern" not in given:
        raise BadOption("mode=consume needs a queue or a queuePattern: it takes messages away from other consumers")
