"""Break clusters: ``scripts/failover --rounds 200``. A failure tells its seed, and leaves its folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from failover.faults import FAULTS
from failover.story import Figures, Story
from support.figures import add_json, added, show

#: Rounds of one cluster: each fault once, and then some again.
STORY = 20


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0: all promises kept; 1: not."""
    options = _parse(arguments)
    chosen = _chosen(options)
    sums, times = Figures(), list[float]()
    for number, first in enumerate(range(0, options.rounds, STORY)):
        seed = options.seed + number
        folder = Path(tempfile.mkdtemp(prefix="penstock-failover-", dir=options.folder))
        story = Story(folder, seed, **chosen)
        problem = _live(story, seed, min(STORY, options.rounds - first), quiet=options.json)
        sums, times = added(sums, story.figures), times + story.times
        if problem:
            sys.stderr.write(f"seed {seed} failed; its folder is {folder}\nagain: scripts/failover --seed {seed}\n")
            sys.stderr.write(problem)
            show(sums, f"{sums}", as_json=options.json)
            return 1
        shutil.rmtree(folder)
    show(sums, f"{sums}\n{_percentiles(times)}\n{sums.rounds} rounds: all promises kept", as_json=options.json)
    return 0


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """The story's options."""
    faults = [fault for fault in FAULTS if not options.only or options.only in fault.name]
    if not faults:
        names = "".join(f"\n  {fault.name}" for fault in FAULTS)
        sys.exit(f"--only {options.only!r} is in no fault's name; they are:{names}")
    return {"faults": faults, "lease": options.lease, "waiting": options.waiting, "spark": options.spark}


def _live(story: Story, seed: int, rounds: int, *, quiet: bool) -> str:
    """Run a story, and tell of its rounds. Returns what went wrong, if anything did."""
    try:
        for told in story.run(rounds):
            if not quiet:
                sys.stdout.write(f"seed {seed}, {told}\n")
                sys.stdout.flush()
    except Exception:  # whatever went wrong is the finding
        return traceback.format_exc()
    return "".join(f"{each}\n" for each in story.wrong)


def _percentiles(times: list[float]) -> str:
    """How long nobody confirmed, over all faults after which another broker served."""
    if not times:
        return "no take-overs"
    ordered = sorted(times)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"{len(times)} take-overs: p50 {p50:.2f} s, p99 {p99:.2f} s, longest {ordered[-1]:.2f} s"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/failover",
        description="Kill, freeze and cut off brokers and their PostgreSQL under load, and count every message.",
        epilog="examples:\n  scripts/failover --rounds 200 --waiting 1000000 --spark\n"
        "  scripts/failover --only frozen --rounds 10     one kind of fault\n"
        "  scripts/failover --seed 7 --rounds 20          the same faults again; the machine's pace differs\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=24, metavar="N", help="how many faults (default: 24)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults with this in their name")
    parser.add_argument("--lease", type=float, default=3.0, metavar="S", help="seconds of a lease (default: 3)")
    parser.add_argument("--waiting", type=int, default=0, metavar="N", help="so many messages wait all the time")
    parser.add_argument("--spark", action="store_true", help="Spark streams into Parquet all the while")
    parser.add_argument("--folder", metavar="DIR", help="where the folders are made (default: the temporary one)")
    add_json(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
