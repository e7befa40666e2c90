"""The route table, the manual and the OpenAPI document agree."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from penstock.admin.manual import BEGIN, END, tables
from penstock.admin.openapi import document
from penstock.admin.resources.common import Body
from penstock.admin.routes import ROUTES, Route

PAGE = Path(__file__).parents[2] / "docs" / "http-api.md"


def test_the_page_lists_the_current_routes() -> None:
    page = PAGE.read_text()
    written = page[page.index(BEGIN) + len(BEGIN) : page.index(END)].strip()
    assert written == tables(), "run: python -m penstock.admin.manual docs/http-api.md"


def test_routes_have_distinct_names_and_paths() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, re.sub(r"{\w+}", "{}", route.path)) for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_routes_that_change_something_need_more_than_the_right_to_view(route: Route) -> None:
    if route.changes and route.name != "logout":
        assert route.needs in ("operate", "admin")
    if route.scope in ("queue", "namespace", "body", "some", "all"):
        assert route.needs is not None


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_bodies_with_unknown_fields_are_rejected(route: Route) -> None:
    for kind in (route.query, route.body):
        if kind is not None:
            assert issubclass(kind, Body)
            with pytest.raises(msgspec.ValidationError, match="unknown field `no-such-field`"):
                msgspec.convert({"no-such-field": 1}, kind)


def test_every_reference_in_the_document_resolves() -> None:
    openapi = document("1", "cookie")
    text = msgspec.json.encode(openapi).decode()
    named = set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', text))
    assert named <= openapi["components"]["schemas"].keys()
    assert {each["operationId"] for path in openapi["paths"].values() for each in path.values()} == {
        route.name for route in ROUTES
    }
