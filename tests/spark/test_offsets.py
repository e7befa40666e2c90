"""What a checkpoint remembers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.spark.errors import SourceError
from penstock.spark.offsets import Offset, offset


@pytest.mark.parametrize("mode", ["read", "consume"])
def test_there_and_back(mode: str) -> None:
    one = Offset("0123456789abcdef", 7, mode)
    assert offset(json.loads(json.dumps(one.to_dict())), mode) == one


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"position": 7},
        {"identity": "x", "position": 7},
        {"identity": "0123456789abcdef", "position": 0},
        {"identity": "0123456789abcdef", "position": True},
        {"identity": "0123456789abcdef", "position": "7"},
    ],
)
def test_those_of_others(found: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="none of ours"):
        offset(found)


def test_another_mode() -> None:
    with pytest.raises(SourceError, match="mode=consume, and this query has mode=read"):
        offset(Offset("0123456789abcdef", 7, "consume").to_dict())
