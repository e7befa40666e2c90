"""Requests that the OpenAPI document allows, and some that it does not: none causes an internal error.

Few examples in the normal run; ``API_EXAMPLES=200`` for many.
"""

from __future__ import annotations

import os
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode

from penstock.admin.routes import ROUTES
from support.web import WebBroker

EXAMPLES = int(os.environ.get("API_EXAMPLES", "3"))
#: Requests that would end the broker or would never end; and the document itself.
LEFT_OUT = ("stop", "begin-drain", "stream", "openapi")
ASKED = [route.name for route in ROUTES if route.name not in LEFT_OUT]


@pytest.fixture(scope="module")
def operations(broker: WebBroker) -> dict[str, Any]:
    broker.api.do("PUT", "queues/default/known", {})
    broker.api.publish("default/known", "x", "y")
    document = schemathesis.openapi.from_url(f"{broker.addresses['http']}/api/v1/openapi.json")
    found: list[Any] = [cast(Any, each).ok() for each in document.get_all_operations()]
    return {each.definition.raw["operationId"]: each for each in found}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ASKED)
def test_no_request_causes_an_internal_error(
    broker: WebBroker, operations: dict[str, Any], name: str, mode: GenerationMode
) -> None:
    operation = operations[name]
    if mode is GenerationMode.NEGATIVE and not (
        operation.body or len(operation.query) or len(operation.path_parameters)
    ):
        return
    token = broker.api.token

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.generate],
        database=None,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        answer = case.call(headers={"Authorization": f"Bearer {token}"}, timeout=20)
        if answer.status_code >= 500:
            assert answer.json()["code"] in ("refused", "away"), answer.text
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == ["application/problem+json"]
            assert answer.json()["detail"]

    ask()
