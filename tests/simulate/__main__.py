"""Run lives of the simulator: ``scripts/simulate --seeds 1000``. A failing seed is printed and replays exactly."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from simulate.cluster import ClusterWorld
from simulate.world import World
from support.figures import add_json, added, show

#: Seeds that one task of a worker lives.
TASK = 20


class Figures(NamedTuple):
    """Counts of a run. A life that breaks a promise counts as ``broken`` and ends the run."""

    lives: int = 0
    starts: int = 0
    #: Damaged journals that a start has refused.
    refused: int = 0
    broken: int = 0
    #: On a database: commits that were confirmed, promoted standbys, owners that were fenced off, and brokers that have
    #: reported lost commits.
    confirmed: int = 0
    promoted: int = 0
    fenced: int = 0
    noticed: int = 0


def live(seed: int, *, database: bool = False) -> Figures:
    """Run one life. Raises ``Broken`` if a promise was not kept."""
    if database:
        cluster = ClusterWorld(seed)
        cluster.run()
        counts = (cluster.confirmations, cluster.fail_overs, cluster.fenced, cluster.noticed)
        return Figures(1, cluster.take_overs, 0, 0, *counts)
    world = World(seed)
    world.run()
    return Figures(1, world.starts, int(world.refused))


def live_some(seeds: range, *, database: bool) -> tuple[Figures, str]:
    """Run lives in order up to the first that fails. Returns the sums and the report of the failure."""
    found = Figures()
    for seed in seeds:
        try:
            found = added(found, live(seed, database=database))
        except Exception:  # any failure is a finding
            again = f"scripts/simulate{' --database' if database else ''} --seed {seed}"
            failure = f"\nseed {seed} failed; replay it with: {again}\n{traceback.format_exc()}"
            return added(found, Figures(broken=1)), failure
    return found, ""


def run(options: argparse.Namespace) -> Figures:
    """Run the lives that the options ask for. Reports the one that fails."""
    began = time.monotonic()
    sums = Figures()
    with ProcessPoolExecutor(options.jobs) as pool:
        for found, failure in pool.map(partial(live_some, database=options.database), _tasks(options)):
            sums = added(sums, found)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{sums.lives:,} of {options.seeds:,} lives ")
            sys.stderr.write(failure)
            if sums.broken or (options.seconds and time.monotonic() - began > options.seconds):
                pool.shutdown(cancel_futures=True)
                break
    return sums


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Exit code 0: all promises kept; 1: a seed failed."""
    options = _parse(arguments)
    sums = run(options) if options.seed is None else live(options.seed, database=options.database)
    what = f"{sums.refused:,} damaged journals refused"
    if options.database:
        what = (
            f"{sums.confirmed:,} commits confirmed, {sums.promoted:,} standbys promoted, {sums.fenced:,} owners fenced"
        )
        what += f" off, {sums.noticed:,} reported lost commits"
    sentence = f"{sums.lives:,} lives, {sums.starts:,} starts, {what}, "
    show(sums, sentence + (f"{sums.broken} broken" if sums.broken else "all promises kept"), as_json=options.json)
    return 1 if sums.broken else 0


def _tasks(options: argparse.Namespace) -> Iterator[range]:
    end = options.first + options.seeds
    for start in range(options.first, end, TASK):
        yield range(start, min(start + TASK, end))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Live simulated lives of a broker on a failing disk, or of several on a failing database, and check"
        " their promises.",
        epilog="examples:\n  scripts/simulate --seeds 50000\n  scripts/simulate --seed 4711     one life again\n"
        "  scripts/simulate --database --seeds 20000\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many lives (default: 1000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, metavar="N", help="live this one only, and show its error in full")
    parser.add_argument("--seconds", type=float, metavar="N", help="stop after so long")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--database", action="store_true", help="several brokers that take over on one database")
    add_json(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
