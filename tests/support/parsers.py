"""Every parser of what a peer or an operator sends, with its bound: the table for ``tests/test_parsers.py``.

``python -m support.parsers NAME`` runs one attack in a process of its own, so that an unbounded parser hits the limits
of that process, not those of the machine.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

#: Limits of a child: memory beyond the loaded modules, and CPU seconds.
MEMORY, SECONDS = 2**30, 60


class Attack(NamedTuple):
    """``make`` an input of a given size and ``parse`` it: accepted up to ``bound``, refused beyond."""

    bound: int
    make: Callable[[int], Any]
    parse: Callable[[Any], object]
    #: False: the input is never accepted, but must be refused quickly at any size.
    taken: bool = True
    #: Multiples of the bound that are also tried.
    times: int = 10


# Attacks import locally, so that a child loads only the parser that it attacks.


def _toml(make: Callable[[int], str], bound: str, times: int = 10) -> Callable[[], Attack]:
    def attack() -> Attack:
        from penstock.companions import bounded_toml

        return Attack(getattr(bounded_toml, bound), make, bounded_toml.parse, times=times)

    return attack


def _query() -> Attack:
    from penstock.admin.http import QUERY_BYTES, parse_query

    def parse(raw: bytes) -> object:
        return parse_query(raw, None)

    return Attack(QUERY_BYTES, lambda size: b"&".join([b"a=1"] * (size // 4)), parse, taken=False)


def _bodies() -> Attack:
    from penstock.admin.http import parse_body
    from penstock.admin.problems import ApiProblem
    from penstock.admin.routes import ROUTES

    def parse(data: bytes) -> None:
        for route in ROUTES:
            if route.body is not None:
                fields = b",".join(b'"%b":%b' % (name.encode(), data) for name in route.body.__struct_fields__)
                for text in (data, b"{%b}" % fields):
                    try:
                        parse_body(text, route.body)
                    except ApiProblem:
                        continue
                    raise AssertionError(f"{route.name} takes {text[:20]!r}")
        raise ValueError("refused by all")

    return Attack(100_000, lambda depth: b"[" * depth + b"]" * depth, parse, taken=False)


def _cursor() -> Attack:
    import base64

    from penstock.admin.pages import decode_cursor

    def parse(text: str) -> object:
        return decode_cursor(text, tuple[int, ...])

    return Attack(2_000, lambda depth: base64.urlsafe_b64encode(b"\x91" * depth).decode(), parse, taken=False)


def _payload(start: str, end: str) -> Callable[[], Attack]:
    def attack() -> Attack:
        from penstock.admin.payloads import render

        def parse(data: bytes) -> None:
            if render(data, len(data), None).encoding != "json":
                raise ValueError("no JSON that could be shown")

        return Attack(100, lambda depth: (start * depth + "1" + end * depth).encode(), parse, times=10_000)

    return attack


def _origin() -> Attack:
    from penstock.admin.origins import Origin

    def parse(text: str) -> None:
        if Origin.parse(text) is None:
            raise ValueError("no origin")

    return Attack(1_000, lambda size: "http://[" + "1:" * size, parse, taken=False)


def _login() -> Attack:
    from penstock.admin.http import parse_body
    from penstock.admin.resources.access import Login

    def parse(data: bytes) -> object:
        return parse_body(data, Login)

    return Attack(1_000, lambda size: json.dumps({"token": "x" * size}).encode(), parse)


def _sql() -> Attack:
    from penstock.admin.http import parse_body
    from penstock.admin.resources.sql import SQL_BYTES, SqlQuery

    def parse(data: bytes) -> object:
        return parse_body(data, SqlQuery)

    return Attack(SQL_BYTES, lambda size: json.dumps({"query": "(" * size}).encode(), parse)


def _sql_depth() -> Attack:
    """Nested parentheses: DuckDB's own bound, for a text that is short enough."""
    from penstock.sql.database import database, explained, run

    def parse(text: str) -> None:
        with database(64 * 2**20) as connection, explained(text, {}):
            list(run(connection, text, {}))

    return Attack(100, lambda depth: f"select {'(' * depth}1{')' * depth} as a", parse, times=400)


def _ticket(make: Callable[[int], bytes], bound: int = 0) -> Callable[[], Attack]:
    def attack() -> Attack:
        from penstock.flight import calls, flight_server

        def parse(data: bytes) -> None:
            try:
                flight_server._decoded(data, calls.Read)
            finally:
                flight_server._action("status", data)

        return Attack(bound or flight_server.REQUEST_BYTES, make, parse, taken=not bound, times=4)

    return attack


def _flight_pattern() -> Attack:
    from penstock.companions.rights import Allowed
    from penstock.flight.access import Caller, Peer, queue_filter
    from penstock.flight.calls import Pick
    from penstock.patterns import MOST_CHARACTERS

    caller = Caller(Peer("unix", "", "", ""), Allowed(open=True))
    return Attack(MOST_CHARACTERS, lambda size: Pick(pattern="*" * size), lambda p: queue_filter(p, caller, "read"))


def _rule_pattern() -> Attack:
    from penstock.patterns import MOST_CHARACTERS
    from penstock.server.options.broker_options import AccessRule

    return Attack(MOST_CHARACTERS, lambda size: ["*" * size], lambda where: AccessRule(may=["read"], where=where))


def _avro(make: Callable[[int], str], bound: str | int, times: int = 10) -> Callable[[], Attack]:
    def attack() -> Attack:
        from penstock.spark.pipelines.archive import avro

        return Attack(bound if isinstance(bound, int) else getattr(avro, bound), make, avro.parse, times=times)

    return attack


def _avro_schema_of(size: int) -> str:
    return json.dumps({"type": "int", "doc": "x" * (size - len(json.dumps({"type": "int", "doc": ""})))})


def _avro_multiplied(columns: int) -> str:
    """Records of ten fields, each of the previous record type, until there are more columns."""
    schema: Any = {"type": "record", "name": "r0", "fields": [{"name": "a", "type": "int"}]}
    size = 2
    for number in range(1, 100):
        size = 1 + 10 * size
        if size > columns:
            break
        others = [{"name": f"f{each}", "type": f"r{number - 1}"} for each in range(9)]
        schema = {"type": "record", "name": f"r{number}", "fields": [{"name": "f", "type": schema}, *others]}
    return json.dumps(schema)


def _avro_value() -> Attack:
    """Arrays of nulls in an array: a few bytes produce as many items."""
    from penstock.spark.pipelines.archive import avro

    nulls = {"type": "array", "items": "null"}
    schema = avro.parse(json.dumps({"type": "array", "items": nulls}))

    def number(value: int) -> bytes:
        value <<= 1
        data = bytearray()
        while value > 0x7F:
            data.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*data, value])

    def make(size: int) -> bytes:
        inner = number(size) + b"\0"
        return number(size) + inner * size + b"\0"

    return Attack(1_000, make, lambda data: avro.decode(schema, data), taken=False, times=100)


def _json_payload() -> Attack:
    from penstock.spark.pipelines.archive.payloads import _json_reader

    return Attack(100, lambda depth: b'{"a":' * depth + b"1" + b"}" * depth, _json_reader(None), times=10_000)


def _csv_payload() -> Attack:
    import csv

    import pyarrow as pa

    from penstock.spark.pipelines.archive.payloads import _csv_reader

    read = _csv_reader(pa.struct([pa.field("a", pa.string())]))
    return Attack(csv.field_size_limit(), lambda size: b"x" * size, read)


def _proxy_header() -> Attack:
    from penstock.server.network import proxy_protocol

    def make(size: int) -> bytes:
        return proxy_protocol.SIGNATURE + bytes([0x21, 0x11]) + size.to_bytes(2, "big")

    return Attack(proxy_protocol.MOST, make, proxy_protocol.length_of)


def _frame(name: str) -> Callable[[], Attack]:
    def attack() -> Attack:
        from support import raw
        from support.protocols import CODECS

        make: Callable[[int], bytes] = {
            "sspq": lambda size: raw.send(b"x" * size),
            "phpmq": lambda size: raw.publish("q", b"x" * size),
            "kokaq": lambda size: raw.kokaq(raw.PUSH, "default/q", b"x" * size),
        }[name]

        def parse(data: bytes) -> None:
            decoder = CODECS[name].decoder("client", {"max_payload": 100})
            # Not the whole body: a frame that is too long is refused before its end arrives.
            decoder.feed(data[: len(data) // 2 + 40])
            if decoder.error is not None:
                raise decoder.error

        return Attack(100, make, parse)

    return attack


def _finishes(make: Callable[[int], Any], parse: Callable[[], Callable[[Any], object]]) -> Callable[[], Attack]:
    """For inputs bounded only by the command line or the configuration: parsing takes linear time, refused or not."""

    def attack() -> Attack:
        do = parse()

        def tried(given: Any) -> None:
            do(given)
            raise ValueError("taken as it is")

        return Attack(100_000, make, tried, taken=False)

    return attack


def _client_url() -> Callable[[Any], object]:
    from penstock.client.urls import parse

    return parse


def _journal_url() -> Callable[[Any], object]:
    from penstock.journal.postgresql.address import parse_address

    return parse_address


def _web_address() -> Callable[[Any], object]:
    from penstock.server.options.broker_options import _is_web_address

    return _is_web_address


def _spark_endpoint() -> Callable[[Any], object]:
    from penstock.spark.values import endpoint

    return endpoint


def _nested(start: str, end: str) -> Callable[[int], str]:
    return lambda depth: f"a = {start * depth}{end * depth}"


#: Attacks by name, with the module that each attacks.
ATTACKS: dict[str, tuple[str, Callable[[], Attack]]] = {
    "TOML, bytes": ("companions/bounded_toml.py", _toml(lambda size: "#" * size, "TEXT_BYTES")),
    "TOML, key": ("companions/bounded_toml.py", _toml(lambda parts: ".".join("a" * parts) + " = 1", "DEPTH", 10_000)),
    "TOML, table": ("companions/bounded_toml.py", _toml(lambda parts: f"[{'.'.join('a' * parts)}]", "DEPTH", 10_000)),
    "TOML, arrays": ("companions/bounded_toml.py", _toml(_nested("[", "]"), "DEPTH", 10_000)),
    "TOML, tables": (
        "companions/bounded_toml.py",
        _toml(lambda depth: "a = " + "{a=" * depth + "1" + "}" * depth, "DEPTH", 10_000),
    ),
    "TOML, keys": (
        "companions/bounded_toml.py",
        _toml(lambda count: "".join(f"{number:x}=1\n" for number in range(count)), "PARTS", 2),
    ),
    "HTTP query": ("admin/http.py", _query),
    "HTTP bodies": ("admin/http.py", _bodies),
    "HTTP login": ("admin/http.py", _login),
    "HTTP cursor": ("admin/pages.py", _cursor),
    "HTTP origin": ("admin/origins.py", _origin),
    "JSON payload, arrays": ("admin/payloads.py", _payload("[", "]")),
    "JSON payload, objects": ("admin/payloads.py", _payload('{"a":', "}")),
    "SQL, bytes": ("admin/http.py", _sql),
    "SQL, depth": ("sql/database.py", _sql_depth),
    "Flight ticket, bytes": ("flight/flight_server.py", _ticket(lambda size: b"{}" + b" " * (size - 2))),
    "Flight ticket, depth": ("flight/flight_server.py", _ticket(lambda depth: b'{"a":' * depth, 100_000)),
    "Flight pattern": ("flight/access.py", _flight_pattern),
    "access rule, pattern": ("server/options/broker_options.py", _rule_pattern),
    "web address": ("server/options/broker_options.py", _finishes(lambda size: "http://" + "a." * size, _web_address)),
    "journal URL": (
        "journal/postgresql/address.py",
        _finishes(lambda size: "postgresql://h/d?" + "a=1&" * size, _journal_url),
    ),
    "client URL": ("client/urls.py", _finishes(lambda size: "phpmq://h/q?" + "a=1&" * size, _client_url)),
    "Spark endpoint": ("spark/values.py", _finishes(lambda size: "grpc://" + "a," * size, _spark_endpoint)),
    "Avro schema, bytes": (
        "spark/pipelines/archive/avro.py",
        _avro(_avro_schema_of, "SCHEMA_CHARACTERS"),
    ),
    "Avro schema, depth": (
        "spark/pipelines/archive/avro.py",
        _avro(lambda depth: '{"type":"array","items":' * depth + '"int"' + "}" * depth, 20, 1_000),
    ),
    "Avro schema, columns": ("spark/pipelines/archive/avro.py", _avro(_avro_multiplied, "MOST_COLUMNS", 10**5)),
    "Avro value": ("spark/pipelines/archive/avro.py", _avro_value),
    "JSON of an archive": ("spark/pipelines/archive/payloads.py", _json_payload),
    "CSV of an archive": ("spark/pipelines/archive/payloads.py", _csv_payload),
    "PROXY header": ("server/network/proxy_protocol.py", _proxy_header),
    "SSPQ frame": ("wire/sspq/decode.py", _frame("sspq")),
    "PHPMQ frame": ("wire/phpmq/decode.py", _frame("phpmq")),
    "Kokaq frame": ("wire/kokaq/decode.py", _frame("kokaq")),
}

#: Modules that parse only our own output, or input from a host that the user chose, with the reason.
OURS: dict[str, str] = {
    **dict.fromkeys(
        (
            "admin/handlers/sql.py",
            "demo/driver.py",
            "demo/pipelines.py",
            "companions/startup.py",
            "companions/framing.py",
            "journal/memory.py",
            "server/companions/request_table.py",
            "server/companions/companion_process.py",
            "sql/pool.py",
            "sql/worker.py",
        ),
        "what the broker and its own processes tell each other, over pipes and sockets that others can't reach",
    ),
    **dict.fromkeys(
        (
            "admin/audit.py",
            "admin/jobs.py",
            "demo/broker.py",
            "server/admin/tokens.py",
            "server/registry/readers.py",
        ),
        "records of our own in the data folder, written by us",
    ),
    **dict.fromkeys(
        (
            "core/recovery/meta.py",
            "core/recovery/table.py",
            "flight/live.py",
            "journal/files/folder.py",
            "journal/format/catalogue.py",
            "journal/format/checkpoint.py",
            "server/engine/engine.py",
        ),
        "parts of the journal, behind its checksums",
    ),
    **dict.fromkeys(
        (
            "journal/backup.py",
            "journal/postgresql/incarnations.py",
            "journal/postgresql/journal.py",
            "journal/postgresql/known_commits.py",
            "journal/postgresql/transfer.py",
        ),
        "rows of our own in the journal's database, and a backup's own manifest",
    ),
    **dict.fromkeys(
        (
            "cli/api.py",
            "cli/definitions.py",
            "cli/message_search.py",
            "demo/agreement.py",
            "spark/endpoint.py",
        ),
        "answers of the broker that the user has named",
    ),
    **dict.fromkeys(
        ("demo/traffic.py",),
        "messages that the demo has published itself",
    ),
    **dict.fromkeys(
        ("admin/traces.py",),
        "an option that the broker has checked: see server/options/broker_options.py",
    ),
    **dict.fromkeys(
        (
            "admin/handlers/pipelines.py",
            "spark/lake/coverage.py",
            "spark/pipelines/insight/main.py",
            "spark/pipelines/insight/messages.py",
            "spark/pipelines/insight/partials.py",
            "spark/lake/batches.py",
            "spark/lake/delta.py",
            "spark/lake/files.py",
            "spark/lake/iceberg.py",
            "spark/lake/rewriting.py",
            "spark/lake/store.py",
            "spark/pipelines/replay.py",
            "spark/pipelines/run.py",
        ),
        "notes of a pipeline in its lake, its checkpoint or its state, and options of its command line",
    ),
}


def refused(attack: Attack, size: int) -> str:
    """The error for an input of this size; empty if it is accepted."""
    given = attack.make(size)
    try:
        attack.parse(given)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200] or "refused"
    return ""


def main(name: str) -> None:
    """Run one attack in this process, within limits."""
    attack = ATTACKS[name][1]()
    with open("/proc/self/statm", "rb") as file:
        data = int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (data + MEMORY, data + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    sizes = (attack.bound, attack.bound + 1, attack.bound * attack.times)
    errors = [refused(attack, size) for size in sizes]
    assert not any(size > other for size, other in pairwise(sizes))
    assert bool(errors[0]) != attack.taken, f"at the bound: {errors[0] or 'taken'}"
    assert errors[2], f"{attack.times} times the bound is taken"
    print(json.dumps(errors))


if __name__ == "__main__":
    main(sys.argv[1])
