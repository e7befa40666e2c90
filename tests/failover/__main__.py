"""Break clusters: ``scripts/failover --rounds 200``."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from failover.faults import FAULTS
from failover.story import Story
from support.stories import StoryCommand

COMMAND = StoryCommand(
    "scripts/failover",
    "Kill, freeze and cut off brokers and their PostgreSQL under load, and count every message.",
    rounds=24,
    victims="faults",
    examples="  scripts/failover --rounds 200 --waiting 1000000 --spark\n"
    "  scripts/failover --only frozen --rounds 10     one kind of fault\n"
    "  scripts/failover --seed 7 --rounds 20          the same faults again; the machine's pace differs\n",
    story=20,  # each fault once, and then some again
)


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0: all promises kept; 1: not."""
    options = _parse(arguments)
    return COMMAND.run(partial(Story, **_chosen(options)), options, _shown)


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """The story's options."""
    faults = [fault for fault in FAULTS if not options.only or options.only in fault.name]
    if not faults:
        names = "".join(f"\n  {fault.name}" for fault in FAULTS)
        sys.exit(f"--only {options.only!r} is in no fault's name; they are:{names}")
    return {"faults": faults, "lease": options.lease, "waiting": options.waiting, "spark": options.spark}


def _shown(stories: list[Story]) -> str:
    times = [seconds for story in stories for seconds in story.times]
    return f"{_percentiles(times)}\n{sum(story.figures.rounds for story in stories)} rounds: all promises kept"


def _percentiles(times: list[float]) -> str:
    """Describe the pauses in confirmations, over all faults after which another broker served."""
    if not times:
        return "no take-overs"
    ordered = sorted(times)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"{len(times)} take-overs: p50 {p50:.2f} s, p99 {p99:.2f} s, longest {ordered[-1]:.2f} s"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = COMMAND.parser()
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults with this in their name")
    parser.add_argument("--lease", type=float, default=3.0, metavar="S", help="seconds of a lease (default: 3)")
    parser.add_argument("--waiting", type=int, default=0, metavar="N", help="so many messages wait all the time")
    parser.add_argument("--spark", action="store_true", help="Spark streams into Parquet all the while")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
