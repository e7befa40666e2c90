"""Run lives of the simulator: ``scripts/simulate --seeds 1000``. A failing seed is printed and replays exactly."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from simulate.world import World

#: Seeds that one task of a worker lives.
TASK = 20


def live(seed: int) -> tuple[int, int, bool]:
    """One life. Returns the seed, how often the broker started, and whether a damaged journal was refused."""
    world = World(seed)
    world.run()
    return seed, world.starts, world.refused


def live_some(seeds: range) -> tuple[list[tuple[int, int, bool]], tuple[int, str] | None]:
    """Lives in a row, up to the first failure: its seed and traceback."""
    lives = []
    for seed in seeds:
        try:
            lives.append(live(seed))
        except Exception:  # whatever went wrong is the finding
            return lives, (seed, traceback.format_exc())
    return lives, None


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0: all promises kept; 1: a seed failed."""
    options = _parse(arguments)
    out = sys.stdout.write
    if options.seed is not None:
        _, started, was_refused = live(options.seed)
        out(f"seed {options.seed}: all promises kept; {started} starts{', damage refused' if was_refused else ''}\n")
        return 0
    began = time.monotonic()
    lives = starts = refused = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for done, failure in pool.map(live_some, _tasks(options)):
            lives, starts, refused = (
                lives + len(done),
                starts + sum(d[1] for d in done),
                refused + sum(d[2] for d in done),
            )
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{lives:,} of {options.seeds:,} lives ")
            if failure is not None:
                pool.shutdown(cancel_futures=True)
                out(f"\nseed {failure[0]} failed; replay it with: scripts/simulate --seed {failure[0]}\n{failure[1]}")
                return 1
            if options.seconds and time.monotonic() - began > options.seconds:
                pool.shutdown(cancel_futures=True)
                break
    out(f"{lives:,} lives, {starts:,} starts, {refused:,} damaged journals refused: all promises kept\n")
    return 0


def _tasks(options: argparse.Namespace) -> Iterator[range]:
    end = options.first + options.seeds
    for start in range(options.first, end, TASK):
        yield range(start, min(start + TASK, end))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Live simulated lives of a broker on a failing disk and check its promises.",
        epilog="examples:\n  scripts/simulate --seeds 50000\n  scripts/simulate --seed 4711     one life again\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many lives (default: 1000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, metavar="N", help="live this one only, and show its error in full")
    parser.add_argument("--seconds", type=float, metavar="N", help="stop after so long")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
