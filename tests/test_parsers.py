"""Every parser of input from peers or operators has a bound, and an attack that exceeds it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as types
import pytest

from penstock.admin.routes import ROUTES
from support.parsers import ATTACKS, OURS

PACKAGE = Path(__file__).parents[1] / "src" / "penstock"
#: Calls that parse text or bytes of any size.
PARSERS = {
    "tomllib.loads", "tomllib.load", "json.loads", "json.load", "msgspec.json.decode", "msgspec.msgpack.decode",
    "msgspec.json.Decoder", "msgspec.msgpack.Decoder", "csv.reader", "csv.DictReader", "parse_qsl", "parse_qs",
    "urlsplit", "urlparse", "parse_schema", "pickle.loads", "pickle.load", "ElementTree.fromstring", "literal_eval",
    "yaml.safe_load", "schemaless_reader",
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_a_bound_is_kept(name: str) -> None:
    tests = Path(__file__).parent
    paths = os.pathsep.join([str(tests), str(PACKAGE.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "support.parsers", name],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def parsers_in(source: str) -> Iterator[str]:
    """The parsers that a module calls."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            name = ast.unparse(function)
            if name in PARSERS:
                yield name


def parsing_modules() -> set[str]:
    return {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if any(parsers_in(path.read_text()))}


def test_every_parser_is_in_the_table() -> None:
    attacked = {place for place, _ in ATTACKS.values()}
    assert sorted(parsing_modules() - attacked - OURS.keys()) == []


def test_the_table_has_nothing_else() -> None:
    assert sorted(OURS.keys() - parsing_modules()) == []
    assert all((PACKAGE / place).exists() for place, _ in ATTACKS.values())
    assert not OURS.keys() & {place for place, _ in ATTACKS.values()}


def unbounded(kind: types.Type, place: str, seen: set[type]) -> Iterator[str]:
    """Fields of a request that may be as long as its body."""
    match kind:
        case types.StructType(cls=cls, fields=fields):
            if cls not in seen:
                seen.add(cls)
                for field in fields:
                    yield from unbounded(field.type, f"{place}.{field.name}", seen)
        case types.UnionType(types=several):
            for each in several:
                yield from unbounded(each, place, seen)
        case types.ListType(item_type=item, max_length=most):
            if most is None:
                yield place
            yield from unbounded(item, f"{place}[]", seen)
        case types.DictType(key_type=key, value_type=value, max_length=most):
            if most is None:
                yield place
            yield from unbounded(key, f"{place} (keys)", seen)
            yield from unbounded(value, f"{place} (values)", seen)
        case types.StrType(max_length=None, pattern=None) | types.BytesType(max_length=None) | types.AnyType():
            yield place


def test_every_field_of_a_request_is_bounded() -> None:
    """Only payloads may be as long as the payload limit, because they are stored unparsed."""
    unbounded_fields = {
        place
        for route in ROUTES
        for kind in (route.body, route.query)
        if kind is not None
        for place in unbounded(types.type_info(kind), route.name, set())
    }
    assert unbounded_fields == set()


def test_the_tests_themselves() -> None:
    class Bad(msgspec.Struct):
        text: str
        many: list[int]
        anything: Any

    names = set(unbounded(types.type_info(Bad), "bad", set()))
    assert names == {"bad.text", "bad.many", "bad.anything"}
    source = "import json\ndef f(x):\n    return json.loads(x)\nD = msgspec.json.Decoder(int)\n"
    assert set(parsers_in(source)) == {"json.loads", "msgspec.json.Decoder"}
