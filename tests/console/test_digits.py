"""The console shows and sends payloads unchanged: every byte, and every digit of every number."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from support.brokers import PATIENCE
from support.console import Api, Visit

CONSOLE = Path(__file__).parents[2] / "src" / "penstock" / "admin" / "console"
#: JSON that parsers alter: numbers beyond 2^53, digits of fractions, exponents, duplicate names, order, escapes.
EXACT = (
    '{"id": 1234567890123456789, "huge": [-98765432109876543210987654321], "price": 1.10, "power": 1e2,'
    ' "long": 3.14159265358979323846, "zero": -0.0, "a": 1, "a": 2, "10": "a", "9": "\\u00e9é", "__proto__": 0}'
)
LARGEST = 2**63 - 1


def payload_of(api: Api, namespace: str, queue: str, message: str) -> bytes:
    """The payload, byte for byte."""
    address = f"{api.origin}/api/v1/queues/{namespace}/{queue}/messages/{message}/payload"
    with urlopen(Request(address, headers={"Authorization": f"Bearer {api.token}"}), timeout=PATIENCE) as answer:
        found: bytes = answer.read()
        return found


def test_every_digit_of_a_payload_is_shown(visit: Visit, api: Api) -> None:
    api.make("exact", "shown")
    [message] = api.publish("exact", "shown", EXACT)
    page = visit("#/queue/exact/shown")
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name=f"Message {message}"))
    expect(row).to_contain_text(EXACT[:150])
    page.get_by_role("button", name=f"Message {message}").click()
    payload = page.get_by_role("region", name="Payload")
    for shown in ("1234567890123456789", "1.10", "1e2", "3.14159265358979323846", "-0.0", '"\\u00e9é"'):
        expect(payload).to_contain_text(shown)
    expect(payload.locator(".json-leaf").filter(has_text="98765432109876543210987654321")).to_be_visible()
    expect(payload.locator(".json-key")).to_have_text(
        ["id", "huge", "0", "price", "power", "long", "zero", "a", "a", "10", "9", "__proto__"]
    )


@pytest.mark.parametrize("kind", ["Text", "JSON (validated, sent unchanged)"])
def test_a_copy_has_every_byte_and_the_priority(visit: Visit, api: Api, kind: str) -> None:
    queue = re.sub(r"\W", "", kind)
    api.make("exact", queue)
    [message] = api.publish("exact", queue, EXACT, priority=LARGEST)
    page = visit(f"#/queue/exact/{queue}?message={message}")
    page.get_by_role("button", name="Edit a copy").click()
    page.get_by_label("Payload encoding").select_option(kind)
    expect(page.get_by_label("Payload", exact=True)).to_have_value(EXACT)
    page.get_by_label("Correlation ID").fill("copy")
    page.get_by_label("Delete the original message").check()
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(page.get_by_text("deleted the original")).to_be_visible()
    [copy] = api.messages("exact", queue)
    assert (copy["correlation_id"], copy["priority"]) == ("copy", LARGEST)
    assert payload_of(api, "exact", queue, copy["id"]) == EXACT.encode()


@pytest.mark.parametrize("payload", [b'{"a":\r\n1}', b"a\rb", b"\xff\x00", b"\xef\xbb\xbf{}", "\u202e\0".encode()])
def test_a_copy_of_bytes_that_a_text_field_would_change(visit: Visit, api: Api, payload: bytes) -> None:
    queue = payload.hex()
    api.make("exact", queue)
    [message] = api.publish("exact", queue, base64.b64encode(payload).decode(), encoding="base64")
    page = visit(f"#/queue/exact/{queue}?message={message}")
    page.get_by_role("button", name="Edit a copy").click()
    field = page.get_by_label("Payload", exact=True)
    field.press("End")
    field.press_sequentially("  ")  # The typed text is deleted again; everything else must be unchanged.
    field.press("Backspace")
    field.press("Backspace")
    page.get_by_label("Delete the original message").check()
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(page.get_by_text("deleted the original")).to_be_visible()
    [copy] = api.messages("exact", queue)
    assert payload_of(api, "exact", queue, copy["id"]) == payload


def test_invalid_json_is_not_sent_as_json(visit: Visit, api: Api) -> None:
    api.make("exact", "checked")
    page = visit("#/queue/exact/checked")
    page.get_by_role("button", name="Publish").click()
    page.get_by_label("Payload encoding").select_option("JSON (validated, sent unchanged)")
    for text in ("{'a': 1}", "[1,]", '{"a" 1}', "01", '["\\x"]', '"\n"', "[1] 2", "", "nul", '{"a": 1'):
        page.get_by_label("Payload", exact=True).fill(text)
        page.get_by_role("dialog").get_by_role("button", name="Publish").click()
        expect(page.get_by_text("This is not valid JSON").first).to_be_visible()
    assert api.queue("exact", "checked")["ready"] == 0


def test_large_numbers_of_the_api_are_exact(visit: Visit, api: Api) -> None:
    api.make("exact", "rules", max_depth=LARGEST, max_bytes=LARGEST - 1)
    page = visit("#/queue/exact/rules/rules")
    expect(page.get_by_label("Maximum messages")).to_have_value(str(LARGEST))
    page.get_by_label("Maximum bytes").fill(str(LARGEST - 2))
    page.get_by_label("Maximum deliveries").fill("9007199254740993")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Changed the configuration")).to_be_visible()
    rules = api.queue("exact", "rules")["rules"]
    assert (rules["max_depth"], rules["max_bytes"]) == (LARGEST, LARGEST - 2)
    assert rules["max_deliveries"] == 9007199254740993
    page.goto(page.url.partition("#")[0] + "#/admin/audit?target=exact/rules&action=configure-queue")
    page.get_by_role("rowheader").get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text(f'"max_bytes": {LARGEST - 2}')
    expect(page.get_by_role("dialog")).to_contain_text('"max_deliveries": 9007199254740993')


def test_numbers_of_sql_are_exact(visit: Visit) -> None:
    page = visit("#/sql")
    page.get_by_label("Query").fill(
        "select 1234567890123456789 as b, 170141183460469231731687303715884105727::hugeint as h, 2.50::decimal(9, 2) d,"
        " 1234567890123456789::double as f, [9007199254740993] as l, 1234567 as i, 0.1 as s, 1e300::double as e"
    )
    page.get_by_label("Query").press("Control+Enter")
    cells = page.get_by_role("table", name="Result").get_by_role("cell")
    expect(cells).to_have_text(
        ["1234567890123456789", "170141183460469231731687303715884105727", "2.50", "1.2345678901234568e+18",
         '["9007199254740993"]', "1,234,567", "0.1", "1e+300"]
    )  # fmt: skip


GOOD = (
    "null", " [ ] ", "{ }", "-0", "[[[1]]]", '[1,-2.5e-3,true,false,null,"a\\"\\u00e9\\n"]', '{"a":{"b":[{}]},"":1}',
    '"\u2028"',
)  # fmt: skip
BAD = (
    "", " ", "[", "{", "[1", "[1,]", '{"a"}', '{"a":}', "{a:1}", "01", "1.", ".5", "+1", "1e", "--1", "nul", "True",
    "'a'", '"a', '"\\x"', '"\\u12"', '"\t"', "[1]2", "[1 2]", '{"a":1,}', "NaN", "\u00a01"
)  # fmt: skip
#: Returns the texts for which our reader and writer differ from the browser's own, where that one loses nothing.
COMPARE = """async ({ good, bad }) => {
  const { readJson, writeJson, jsonPieces } = await import("/lib/json.js");
  const tried = (what, text) => { try { return [what(text)]; } catch (error) { return error.name; } };
  const wrong = [];
  for (const text of good) {
    const value = JSON.parse(text);
    for (const indent of ["", "  "])
      if (writeJson(readJson(text), indent) !== JSON.stringify(value, null, indent)) wrong.push(text);
  }
  for (const text of bad) {
    const names = [tried(readJson, text), tried(JSON.parse, text)];
    if (names.some((name) => name !== "SyntaxError") || jsonPieces(text) !== undefined) wrong.push(text);
  }
  const large = '{"a":9007199254740993,"b":[-9007199254740993,9007199254740991],"c":1.5}';
  if (writeJson(readJson(large)) !== large) wrong.push(large);
  if (writeJson({ a: undefined, b: [undefined] }) !== '{"b":[null]}') wrong.push("undefined");
  if (jsonPieces("[".repeat(1e6)) !== undefined) wrong.push("deep");
  if (!Object.hasOwn(readJson('{"__proto__":1}'), "__proto__")) wrong.push("__proto__");
  return wrong;
}"""


def test_our_json_equals_the_browsers(visit: Visit) -> None:
    assert visit("#/queues").evaluate(COMPARE, {"good": GOOD, "bad": BAD}) == []


#: How often each file may use the browser's own parser.
PARSERS = {
    "lib/json.js": 1,  # one string, without its escapes
    "lib/store.js": 1,  # values that the console itself stored in this browser
    "theme.js": 1,  # the same
}


def test_no_other_code_parses_json() -> None:
    """The browser's parser alters numbers, so neither payloads nor the API's answers go through it."""
    found = {}
    for path in sorted(CONSOLE.rglob("*.js")):
        parsers = re.findall(r"JSON\.parse|\.json\(\)", path.read_text())
        if parsers:
            found[path.relative_to(CONSOLE).as_posix()] = len(parsers)
    assert found == PARSERS


def test_only_code_that_shows_payloads_parses_them() -> None:
    """Code that publishes messages never uses the reader, so it sends payloads as they were typed."""
    users = {
        path.relative_to(CONSOLE).as_posix(): set(re.findall(r"\b(readJson|jsonPieces)\b", path.read_text()))
        for path in CONSOLE.rglob("*.js")
    }
    assert {name for name, used in users.items() if "readJson" in used} == {"lib/json.js", "lib/api.js", "lib/live.js"}
    assert {name for name, used in users.items() if "jsonPieces" in used} == {
        "lib/json.js", "parts/payload.js", "parts/publish.js"
    }  # fmt: skip
