"""Payloads to values: valid ones, reasons for invalid ones, and schemas that are inferred and grow."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.pipelines.archive import avro, payloads
from penstock.spark.pipelines.archive.payload_formats import FORMATS, check_schema
from penstock.spark.pipelines.archive.payloads import Decoding, decode, inferred, pack, unpack

ORDER = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.float64()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("ok", pa.bool_()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("who", pa.struct([pa.field("name", pa.string())])),
        pa.field("small", pa.int32()),
    ]
)


def one(payload: bytes, decoding: Decoding) -> tuple[Any, Any]:
    values, reasons = decode([payload], decoding)
    return (None if values is None else values.to_pylist()[0]), reasons.to_pylist()[0]


def test_every_format_has_a_reader() -> None:
    assert payloads._FORMATS.keys() == FORMATS.keys()


def test_valid_json() -> None:
    payload = {
        "id": 7, "amount": 2, "price": "12.30", "at": "2026-01-02T03:04:05Z", "day": "2026-01-02", "ok": True,
        "raw": "AAEC", "tags": ["a", None], "who": {"name": "x", "unknown": 1}, "extra": [],
    }  # fmt: skip
    value, reason = one(json.dumps(payload).encode(), Decoding("json", pack(ORDER)))
    assert reason is None
    assert value == {
        "id": 7, "amount": 2.0, "price": Decimal("12.30"), "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2), "ok": True, "raw": b"\0\1\2", "tags": ["a", None], "who": {"name": "x"}, "small": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "value is an array, not an object"),
        (b"{}", "value.id is missing"),
        (b'{"id": "7"}', "value.id is '7', not a whole number"),
        (b'{"id": 7.5}', "value.id is 7.5, not a whole number"),
        (b'{"id": true}', "value.id is True, not a whole number"),
        (b'{"id": 99999999999999999999}', "value.id is 99999999999999999999, which does not fit int64"),
        (b'{"id": 7, "small": 3000000000}', "value.small is 3000000000, which does not fit int32"),
        (b'{"id": 7, "amount": "x"}', "value.amount is 'x', not a number"),
        (b'{"id": 7, "price": 1.234}', "value.price is 1.234, which does not fit decimal128(9, 2)"),
        (b'{"id": 7, "at": "soon"}', "value.at is 'soon', not a time (ISO 8601)"),
        (b'{"id": 7, "raw": "?"}', "value.raw is '?', not base64"),
        (b'{"id": 7, "tags": [1]}', "value.tags[] is 1, not a string"),
        (b'{"id": 7, "who": []}', "value.who is an array, not an object"),
    ],
)
def test_invalid_json_has_a_reason(payload: bytes, reason: str) -> None:
    value, found = one(payload, Decoding("json", pack(ORDER)))
    assert value is None
    assert found is not None
    assert found.startswith(reason)


def test_deeply_nested_json_is_rejected_without_a_crash() -> None:
    assert one(b"[" * 1_000_000, Decoding("json"))[1] is not None


def test_csv() -> None:
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("ok", pa.bool_())])
    decoding = Decoding("csv", pack(kind))
    assert one(b'7,"a, ""b""",TRUE\r\n', decoding) == ({"id": 7, "name": 'a, "b"', "ok": True}, None)
    assert one(b"7,,", decoding) == ({"id": 7, "name": None, "ok": None}, None)
    assert one(b",x,true", decoding) == (None, "value.id is missing")
    assert one(b"x,x,true", decoding)[1] == "value.id is 'x', not a number"
    assert one(b"7,x", decoding)[1] == "2 fields, where the schema has one line of 3 fields"
    assert one(b"7,x,true\n8,y,true", decoding)[1] == "2 lines, where the schema has one line of 3 fields"
    assert one(b'7,"x', decoding)[1] == "not CSV: unexpected end of data"


def test_text_and_raw() -> None:
    assert one("süß".encode(), Decoding("text")) == ("süß", None)
    assert one(b"a\xff", Decoding("text")) == (None, "not UTF-8, at byte 1")
    assert one(b"a\xff", Decoding()) == (None, None)


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "notes", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 2}},
        {"name": "x", "type": "double"},
    ],
}


def zigzag(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_avro() -> None:
    decoding = Decoding("avro", json.dumps(AVRO).encode())
    decoding.reader()
    payload = b"".join(
        [
            zigzag(-300), zigzag(1), zigzag(2), b"hi", zigzag(1), zigzag(1), zigzag(1), b"t", zigzag(0),
            zigzag(-1), zigzag(4), zigzag(1), b"k", zigzag(5), zigzag(0), zigzag(1000), zigzag(2), b"\x04\xd2",
            b"\xab\xcd", struct.pack("<d", 1.5),
        ]
    )  # fmt: skip
    expected = {
        "id": -300, "name": "hi", "kind": "B", "tags": ["t"], "notes": [("k", 5)],
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "price": Decimal("12.34"), "hash": b"\xab\xcd", "x": 1.5,
    }  # fmt: skip
    assert one(payload, decoding) == (expected, None)
    mark = avro.parse(json.dumps(AVRO)).fingerprint
    assert one(b"\xc3\x01" + mark + payload, decoding) == (expected, None)
    known = mark.hex()
    assert one(b"\xc3\x01" + bytes(8) + payload, decoding)[1] == (
        f"the Avro value was written with another schema: its fingerprint is {'0' * 16}, that of the schema {known}"
    )
    assert one(payload + b"!", decoding)[1] == f"1 byte(s) are left over behind the Avro value, at byte {len(payload)}"
    for end in range(len(payload)):
        assert one(payload[:end], decoding)[1] is not None


#: From Avro's own test data (share/test/data/schema-tests.txt).
FINGERPRINTS = {
    '"null"': 7195948357588979594,
    '{"type": "boolean"}': -6970731678124411036,
    '"int"': 8247732601305521295,
    '{"type": "fixed", "name": "foo", "size": 15}': 1756455273707447556,
    '{"type": "record", "name": "foo", "fields": [{"name": "f1", "type": "boolean"}]}': 7843277075252814651,
}


@pytest.mark.parametrize(("schema", "number"), FINGERPRINTS.items())
def test_fingerprints_equal_avros(schema: str, number: int) -> None:
    assert avro.parse(schema).fingerprint == number.to_bytes(8, "little", signed=True)


def test_the_fingerprint_uses_full_names_and_omits_ignored_fields() -> None:
    inner = {"type": "enum", "name": "K", "symbols": ["A"], "doc": "x", "aliases": ["L"]}
    fields = [
        {"name": "one", "type": [{"type": "null"}, inner], "default": None},
        {"name": "two", "type": {"type": "map", "values": "K"}},
        {"name": "three", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "four", "type": {"type": "array", "items": {"type": "fixed", "size": 2, "name": "other.F"}}},
    ]
    schema = {"fields": fields, "namespace": "shop", "name": "Order", "type": "record"}
    canonical = (
        '{"name":"shop.Order","type":"record","fields":['
        '{"name":"one","type":["null",{"name":"shop.K","type":"enum","symbols":["A"]}]},'
        '{"name":"two","type":{"type":"map","values":"shop.K"}},{"name":"three","type":"long"},'
        '{"name":"four","type":{"type":"array","items":{"name":"other.F","type":"fixed","size":2}}}]}'
    )
    assert avro.parse(json.dumps(schema)).fingerprint == avro.parse(canonical).fingerprint
    assert avro.parse(canonical).fingerprint != avro.parse(canonical.replace("shop.K", "other.K")).fingerprint


def test_names_are_resolved_within_their_namespace() -> None:
    inner = {"type": "fixed", "name": "H", "size": 2}
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": "H"}, {"name": "c", "type": "shop.H"}]
    schema = {"type": "record", "name": "shop.R", "fields": fields}
    assert one(b"aabbcc", Decoding("avro", json.dumps(schema).encode()))[0] == {"a": b"aa", "b": b"bb", "c": b"cc"}


def test_a_bare_avro_value_may_begin_like_single_object_encoding() -> None:
    assert zigzag(-98) == b"\xc3\x01"
    assert one(zigzag(-98), Decoding("avro", b'"int"')) == (-98, None)
    pair = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "bytes"}]}
    payload = zigzag(-98) + zigzag(20) + b"12345678901234567890"
    assert one(payload, Decoding("avro", json.dumps(pair).encode())) == ({"a": -98, "b": payload[3:]}, None)


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ('"int"', zigzag(2**31)),
        ('"long"', b"\xff" * 9 + b"\x7f"),
        ('{"type": "int", "logicalType": "date"}', zigzag(2**31 - 1)),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 2}', zigzag(2) + b"\x7f\xff"),
        ('{"type": "array", "items": "null"}', zigzag(4) * 4 + zigzag(0)),
        ('{"type": "array", "items": "null"}', zigzag(2**40) + zigzag(0)),
        ('["null", "int"]', zigzag(-1) + zigzag(3)),
        ('{"type": "enum", "name": "E", "symbols": ["A", "B"]}', zigzag(-1)),
        ('"boolean"', b"\x05"),
    ],
)
def test_avro_values_that_no_column_holds(schema: str, payload: bytes) -> None:
    """They are reported one by one, because a value that Arrow rejects would stop the rest."""
    value, reason = one(payload, Decoding("avro", schema.encode()))
    assert value is None
    assert reason is not None


@given(st.binary(max_size=60))
def test_any_bytes_are_an_avro_value_or_have_a_reason(payload: bytes) -> None:
    value, reason = one(payload, Decoding("avro", json.dumps(AVRO).encode()))
    assert (value is None) is (reason is not None)


NO_SCHEMAS = [
    "{", '"strange"', '["int", "string"]', "7", "null", "{}", "[]", '["null"]', '{"type": "record", "name": "R"}',
    '{"type": "array"}', '{"type": "map"}', '{"type": "enum", "name": "E"}', '{"type": "fixed", "name": "F"}',
    '{"type": "fixed", "name": "F", "size": "x"}', '{"type": "record", "name": "R", "fields": [7]}',
    '{"type": "bytes", "logicalType": "decimal"}', '{"type": "bytes", "logicalType": "decimal", "precision": 99}',
    '{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}',
    '{"type": {"type": "int"}}', '{"type": "array", "items": ' * 500 + '"int"' + "}" * 500,
    *(f'{{"type": "{name}"}}' for name in dir(avro.Parser) if not name.startswith("__")),
    *(f'{{"type": "{name.lstrip("_")}"}}' for name in dir(avro.Parser) if not name.startswith("__")),
]  # fmt: skip


@pytest.mark.parametrize("schema", NO_SCHEMAS)
def test_invalid_avro_schemas(schema: str) -> None:
    with pytest.raises(ValueError, match=r"Avro|union"):
        Decoding("avro", schema.encode()).reader()


def test_contradictory_formats() -> None:
    with pytest.raises(ValueError, match="choose one of raw, text, json, csv, avro"):
        check_schema("xml", "")
    with pytest.raises(ValueError, match="format csv needs a schema"):
        check_schema("csv", "")


def test_a_schema_is_inferred_and_grows_only_by_fields() -> None:
    first = inferred([b'{"a": 1, "b": null, "c": [], "d": {"e": "x"}}', b"nonsense", b'{"a": 1.5}', b"[7]"], None)
    assert first == pa.struct([("a", pa.float64()), ("d", pa.struct([("e", pa.string())]))])
    second = inferred([b'{"a": "now text", "b": true, "c": [1], "d": {"f": 2}}'], first)
    assert second == pa.struct(
        [
            ("a", pa.float64()),
            ("d", pa.struct([("e", pa.string()), ("f", pa.int64())])),
            ("b", pa.bool_()),
            ("c", pa.list_(pa.int64())),
        ]
    )
    whole = inferred([b'{"n": 1}'], None)
    assert inferred([b'{"n": 1.5}'], whole) == whole  # the column is in files already, so 1.5 goes to the quarantine
    assert inferred([b"7", b"{}"], None) is None
    assert unpack(pack(second)) == second


@pytest.mark.parametrize(
    "payload",
    [
        b'{"t": "9999-12-31T23:59:59-23:00"}',
        b'{"t": "0001-01-01T00:00:00+23:00"}',
        b'{"d": 1%s}' % (b"0" * 400),
        b'{"c": 1%s}' % (b"0" * 5000),
        b'{"n": 1%s}' % (b"0" * 5000),
    ],
)
def test_no_payload_stops_a_pipeline(payload: bytes) -> None:
    names = {"t": pa.timestamp("us", tz="UTC"), "d": pa.float64(), "c": pa.decimal128(5, 2), "n": pa.int64()}
    value, reason = decode([payload, b'{"n": 1}'], Decoding("json", pack(pa.struct(list(names.items())))))
    assert value is not None
    assert (value.null_count, reason.null_count) == (1, 1)
    assert len(reason[0].as_py()) < 200
    inferred([payload], None)


def test_columns_that_no_table_can_have_are_not_inferred() -> None:
    deep = b'{"a": %s1%s}' % (b"[" * 300, b"]" * 300)
    deeper = b'{"a":' * 900 + b"1" + b"}" * 900
    assert inferred([deep, deeper, b'{"n": 1}'], None) == pa.struct([("n", pa.int64())])
    # To most readers of tables, names that differ by case alone are the same.
    assert inferred([b'{"id": 1, "ID": "x"}', b'{"Id": 2.5}'], None) == pa.struct([("id", pa.int64())])
    known = pa.struct([("id", pa.int64())])
    assert inferred([b'{"ID": "x"}'], known) == known
    assert inferred([b'{"": 1, "n": 1}'], None) == pa.struct([("n", pa.int64())])
