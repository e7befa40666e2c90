"""docs/client.md and the code agree on the abilities of each protocol, the errors and the options."""

from __future__ import annotations

import re
from pathlib import Path

from penstock import client
from penstock.client.protocol import OPERATIONS, client_protocol
from penstock.client.urls import _READERS
from penstock.protocols import BUILT_IN

PHPMQ, PHPMQ_PLAIN, SSPQ, KOKAQ = "PHPMQ", "PHPMQ (dialects 32 and 36)", "SSPQ", "Kokaq"
PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_abilities() -> None:
    shown: dict[str, tuple[str, ...]] = {}
    for what, *cells in rows("What each protocol can do"):
        can = {name: cell for name, cell in zip((PHPMQ, SSPQ, KOKAQ), cells, strict=True) if cell != "–"}
        protocols = tuple(name for name in (PHPMQ, PHPMQ_PLAIN, SSPQ, KOKAQ) if name in can)
        if can.get(PHPMQ) == "yes":
            protocols = (PHPMQ, PHPMQ_PLAIN, *protocols[1:])
        for name in re.findall(r"`(\w+)`", what) or [what]:
            shown[name] = protocols
    abilities = [each for protocol in BUILT_IN for each in client_protocol(protocol.name).abilities]
    expected = {name: tuple(each.title for each in abilities if name in each.operations) for name in OPERATIONS}
    assert shown == expected


def test_errors() -> None:
    errors = {name for name in client.__all__ if isinstance(getattr(client, name), type)}
    errors = {name for name in errors if issubclass(getattr(client, name), client.ClientError)}
    assert {row[0].strip("`") for row in rows("Errors")} == errors - {"ClientError"}


def test_options() -> None:
    table = PAGE.split("an argument overrides the URL:")[1].split("\n## ")[0]
    assert set(_READERS) <= set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
