"""The OpenAPI 3.1 document, generated from the table of routes and the types of requests and responses."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from penstock.admin.problems import COMMON, STATUS
from penstock.admin.resources.common import Problem
from penstock.admin.routes import ROUTES, Route

_REF = "#/components/schemas/{name}"
_MEDIA = {
    "json": ("application/json",),
    "events": ("text/event-stream",),
    "bytes": ("application/octet-stream",),
    "text": ("application/json",),
    "metrics": ("application/openmetrics-text", "text/plain"),
    "page": ("text/html",),
}
#: Schemas of path parameters.
_PATH_PARAMS: dict[str, dict[str, Any]] = {
    "namespace": {"type": "string", "minLength": 1, "maxLength": 255},
    "queue": {"type": "string", "minLength": 1, "maxLength": 255},
    "name": {"type": "string", "minLength": 1, "maxLength": 255},
    "id": {"type": "string", "minLength": 1, "maxLength": 64},
}


def document(version: str, cookie: str) -> dict[str, Any]:
    """The whole document."""
    wanted = [each for route in ROUTES for each in (route.answer, route.query, route.body) if each is not None]
    _, components = msgspec.json.schema_components([*wanted, Problem], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": version, "summary": "Observe and control a Penstock broker."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "tags": [_tag(route)],
        "x-needs": {"role": route.needs, "scope": route.scope},
        "security": [] if route.scope == "open" else [{"bearer": []}, {"cookie": []}],
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.body is not None:
        content = {"application/json": {"schema": _schema(route.body)}}
        if route.name == "import-definitions":
            content["application/toml"] = {"schema": {"type": "string"}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMS[name]}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if route.query is not None:
        (_,), components = msgspec.json.schema_components([route.query], ref_template=_REF)
        shape = components[route.query.__name__]
        for name, schema in shape["properties"].items():
            found.append({"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": schema})
    if route.version:
        required = route.version == "required"
        found.append({"name": "If-Match", "in": "header", "required": required, "schema": {"type": "string"}})
    return found


def _responses(route: Route) -> dict[str, Any]:
    schema = _schema(route.answer) if route.answer is not None else {}
    content = {media: {"schema": schema} for media in _MEDIA[route.media]}
    success: dict[str, Any] = {"description": route.about, "content": content}
    responses: dict[str, Any] = {str(route.status): success}
    codes: dict[int, list[str]] = {}
    for code in (*COMMON, *route.problems):
        codes.setdefault(STATUS[code], []).append(code)
    for status, names in sorted(codes.items()):
        content = {"application/problem+json": {"schema": _schema(Problem)}}
        responses.setdefault(str(status), {"description": ", ".join(dict.fromkeys(names)), "content": content})
    return responses


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema


def _tag(route: Route) -> str:
    parts = route.path.removeprefix("/api/v1/").strip("/").split("/")
    return parts[0]
