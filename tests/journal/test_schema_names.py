"""Schemas may have any name: it is quoted in every statement and in every URL in the output."""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.demo.postgresql import Server
from penstock.journal import open_journal
from penstock.journal.errors import LogError
from penstock.journal.postgresql.address import parse_address
from support.commands import penstock_here
from support.owned_databases import add, journal_at, owning, payloads

NAMES = [
    "it's",
    "a$$b",
    "$penstock$",
    "100%",
    "%(head)s %s",
    "{schema}",
    'a"b',
    "back\\slash'",
    "a;--",
    "ä 日本",
    "a+b &c",
]


def url_of(database: str, name: str) -> str:
    return f"{database}?schema={quote(name, safe='')}"


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_may_have_any_name(tmp_path: Path, database: str, name: str) -> None:
    url = url_of(database, name)
    with owning(url) as owned:
        standby = journal_at(url).stand_by()
        for letter in b"abcd":
            add(owned.log, bytes([letter]), roll=letter % 2 == 0)
        add(owned.log, b"e")
        owned.values.put("name", b"value")
        owned.values.set_aside("name")
        owned.checkpoints.write(owned.log.end, b"state", {})
        assert len(list(standby.catch_up())) == 5
        standby.close()
        owned.log.trim(3)
        assert payloads(owned.log) == [b"b", b"c", b"d", b"e"]
    with closing(journal_at(url).follow()) as follower:
        assert follower.tail().committed == 6
    tools = open_journal(url).tools()
    assert tools.info().extents
    copied = penstock_here("journal", "copy", url, str(tmp_path / "copy"))
    assert copied.code == 0, copied.err
    back = penstock_here("journal", "copy", str(tmp_path / "copy"), url_of(database, f"{name}2"))
    assert back.code == 0, back.err


@pytest.mark.parametrize("name", NAMES)
def test_printed_urls_can_be_pasted_into_a_shell(postgres: Server, name: str) -> None:
    with pytest.raises(LogError) as refused:
        open_journal(url_of(postgres.url(), name)).tools().info()
    command = str(refused.value).partition("penstock journal init ")[2].partition(" makes one")[0]
    [shown] = shlex.split(command)
    assert parse_address(shown).schema == name


def test_a_plus_in_a_parameter_is_a_plus() -> None:
    assert "password=a%2Bb" in parse_address("postgresql://h/d?password=a+b").connection
