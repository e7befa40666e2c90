"""Mutate core, journal and wire, and list the mutants that survive: ``scripts/mutate wire/sspq --sample 100``."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mutate.targets import FIRST, MODULES, ROOT, SECOND, check, equivalents, is_equivalent, selection_for
from mutate.working_copy import Failed, WorkingCopy
from support.figures import add_json, added, show

#: mutmut's statuses of surviving mutants. Every other status (killed, timeout, …) means that a test noticed.
SURVIVED = "survived"
UNREACHED = "no tests"
#: Noticed only because the tests took many times longer.
TIMED_OUT = "timeout"


class Figures(NamedTuple):
    """Counts of a run. ``unreached``: no test reaches the mutant."""

    made: int = 0
    tried: int = 0
    killed: int = 0
    timed_out: int = 0
    #: Not noticed, but listed in ``equivalent.txt`` because their behavior is the same.
    equivalent: int = 0
    survived: int = 0
    unreached: int = 0


def mutate(target: str, options: argparse.Namespace) -> tuple[Figures, dict[str, str]]:
    """Try the mutants of a target. Returns the figures and the changes that no test noticed."""
    place = WorkingCopy(Path(options.folder) / target.replace("/", "-"), target)
    place.prepare()
    first, second = selection_for(target, FIRST), selection_for(target, SECOND)
    every = place.mutants(first)
    chosen = every
    if options.sample is not None and options.sample < len(every):
        chosen = sorted(random.Random(options.seed).sample(every, options.sample))
    found = place.attempt(chosen, options.jobs)
    changes = {name: place.show(name) for name, status in found.items() if status in (SURVIVED, UNREACHED)}
    known = equivalents()
    equal = {name for name in changes if found[name] == SURVIVED and is_equivalent(name, changes[name], known)}
    if left := sorted(changes.keys() - equal):
        place.mutants(second)
        again = place.attempt(left, options.jobs)
        found |= {name: status for name, status in again.items() if status != UNREACHED}
    survivors = {name: changes[name] for name in left if found[name] in (SURVIVED, UNREACHED)}
    return _counted(len(every), found, len(equal)), survivors


def _counted(made: int, found: dict[str, str], equivalent: int) -> Figures:
    counts = Counter(found.values())
    survived = counts[SURVIVED] - equivalent
    killed = counts.total() - counts[SURVIVED] - counts[UNREACHED] - counts[TIMED_OUT]
    return Figures(made, len(found), killed, counts[TIMED_OUT], equivalent, survived, counts[UNREACHED])


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Exit code 0: every mutant was noticed; 1: some were not; 2: wrong use; 3: failure."""
    options = _parse(arguments)
    if find_spec("mutmut") is None:
        sys.stderr.write("mutate: mutmut is not installed: .venv/bin/python -m pip install -e '.[mutate]'\n")
        return 3
    sums = Figures()
    for target in options.targets:
        try:
            figures, survivors = mutate(target, options)
        except Failed as error:
            sys.stderr.write(f"mutate: {target}: {error}\n")
            return 3
        sums = added(sums, figures)
        if not options.json:
            for name, text in survivors.items():
                sys.stdout.write(f"{name}\n{text}\n\n")
            sys.stdout.write(f"{target}: {figures}\n")
            sys.stdout.flush()
    show(
        sums,
        f"{sums.tried:,} mutants, {sums.killed + sums.timed_out:,} noticed, {sums.survived + sums.unreached:,} not",
        as_json=options.json,
    )
    return 1 if sums.survived + sums.unreached else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description="Make small changes to core, journal and wire, and list those that no test notices.",
        epilog="examples:\n  scripts/mutate                              everything: hours\n"
        "  scripts/mutate journal/format               one folder, or one module\n"
        "  scripts/mutate core --sample 200 --seed 1   so many of its mutants, the same every time\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)} (default: all)")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many mutants of each (default: all)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which ones (default: 0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: one a core)"
    )
    parser.add_argument(
        "--folder", default=str(ROOT / ".mutate"), metavar="DIR", help="where it works (default: .mutate)"
    )
    add_json(parser)
    options = parser.parse_args(arguments)
    if options.sample is not None and options.sample < 1:
        parser.error(f"--sample must be at least 1, and is {options.sample}")
    try:
        options.targets = [check(target) for target in options.targets or MODULES]
    except ValueError as error:
        parser.error(str(error))
    return options


if __name__ == "__main__":
    sys.exit(main())
