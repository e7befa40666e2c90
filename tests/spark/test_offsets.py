"""Offsets in a checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.spark.errors import SourceError
from penstock.spark.offsets import MOST_PARTS, Offset, lengths, offset, shares, subject
from penstock.spark.options import SourceSettings

JOURNAL = "0123456789abcdef"
READ = SourceSettings(queue="default/jobs")
CONSUME = SourceSettings(queue="default/jobs", mode="consume", reader="worker")
OF = subject(READ)


@pytest.mark.parametrize("settings", [READ, CONSUME, SourceSettings(), SourceSettings(pattern="a/*", view="events")])
@pytest.mark.parametrize("parts", [None, (), (3,), (1, 2, 3)])
def test_round_trip(settings: SourceSettings, parts: tuple[int, ...] | None) -> None:
    one = Offset(JOURNAL, 7, settings.mode, subject(settings), parts, 3 if settings.mode == "consume" else 0)
    assert offset(json.loads(json.dumps(one.to_dict())), settings) == one


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"position": 7},
        {"identity": "x", "position": 7},
        {"identity": JOURNAL, "position": 0, "of": OF},
        {"identity": JOURNAL, "position": True, "of": OF},
        {"identity": JOURNAL, "position": "7", "of": OF},
        {"identity": JOURNAL, "position": 7},
        {"identity": JOURNAL, "position": 7, "of": OF, "parts": 7},
        {"identity": JOURNAL, "position": 7, "of": OF, "parts": [1, 0]},
        {"identity": JOURNAL, "position": 7, "of": OF, "parts": ["1"]},
        {"identity": JOURNAL, "position": 7, "of": OF, "parts": [], "start": -1},
    ],
)
def test_foreign_offsets(found: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="offset of another source"):
        offset(found, READ)


def test_another_mode() -> None:
    with pytest.raises(SourceError, match="mode=consume, and this query has mode=read"):
        offset(Offset(JOURNAL, 7, "consume", subject(CONSUME)).to_dict(), READ)


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        (
            READ,
            SourceSettings(queue="default/other"),
            "to view=messages, queue=default/jobs, and .* queue=default/other",
        ),
        (READ, SourceSettings(pattern="default/*"), r"queue=default/jobs, and .* queuePattern=default/\*"),
        (SourceSettings(pattern="a/*"), SourceSettings(), r"queuePattern=a/\*, and .* queuePattern=\*/\*"),
        (READ, SourceSettings(queue="default/jobs", view="events"), "to view=messages, .* reads view=events"),
    ],
)
def test_offsets_of_another_source(was: SourceSettings, now: SourceSettings, says: str) -> None:
    with pytest.raises(SourceError, match=f"{says}.*startingPosition=7 it continues"):
        offset(Offset(JOURNAL, 7, of=subject(was)).to_dict(), now)


def test_all_queues_can_be_specified_in_two_ways() -> None:
    assert subject(SourceSettings()) == subject(SourceSettings(pattern="*/*"))


@pytest.mark.parametrize("change", [{"queue": "default/other"}, {"reader": "another"}])
def test_leases_of_another_source(change: dict[str, str]) -> None:
    now = SourceSettings(**{"queue": "default/jobs", "reader": "worker", **change}, mode="consume")  # type: ignore[arg-type]
    with pytest.raises(
        SourceError, match=f"the checkpoint belongs to queue=default/jobs, reader=worker.*{change.popitem()[1]}"
    ):
        offset(Offset(JOURNAL, 7, "consume", subject(CONSUME)).to_dict(), now)


def test_parts_end_with_the_batch() -> None:
    assert Offset(JOURNAL, 10, parts=(2, 3)).spans() == [(5, 7), (7, 10)]
    assert Offset(JOURNAL, 10, parts=()).spans() == []


def test_there_are_never_too_many_parts() -> None:
    stop = 10 * MOST_PARTS
    parts = lengths(1, range(2, stop), stop)
    assert MOST_PARTS // 2 < len(parts) <= MOST_PARTS
    assert sum(parts) == stop - 1
    assert lengths(5, [6, 9], 10) == [1, 3, 1]
    assert lengths(5, [], 10) == [5]


def test_shares() -> None:
    assert shares(0, 4) == []
    assert shares(3, 4) == [1, 1, 1]
    assert shares(10, 4) == [2, 3, 2, 3]
    assert sum(shares(10**6, 10**5)) == 10**6
