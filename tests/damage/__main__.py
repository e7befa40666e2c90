"""Run the whole matrix of damages, pairs included: ``scripts/damage``. Failures are named and replay by name."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Iterator
from typing import NamedTuple

from damage.journal import pristine
from damage.matrix import check, damages, pairs
from support.figures import add_json, added, show


def cases(*, clean: bool, every: int = 1) -> Iterator[str]:
    """Return the names of all single damages, then of all pairs or every n-th."""
    before = pristine(clean=clean)
    yield from (each.name for each in damages(before))
    for number, pair in enumerate(pairs(before)):
        if number % every == 0:
            yield " + ".join(each.name for each in pair)


def run(name: str, *, clean: bool) -> None:
    """Run one case by its name. Raises the failure."""
    before = pristine(clean=clean)
    known = {each.name: each for each in damages(before)}
    check(before, [known[part] for part in name.split(" + ")])


class Figures(NamedTuple):
    """Counts of a run: single damages, pairs, and how many of them failed."""

    damages: int = 0
    pairs: int = 0
    wrong: int = 0


def matrix(*, every: int = 1, case: str | None = None, clean: bool | None = None) -> Figures:
    """Run the matrix or one case of it, and report every failure."""
    sums = Figures()
    for stopped in (True, False) if clean is None else (clean,):
        for name in [case] if case else cases(clean=stopped, every=every):
            is_pair = " + " in name
            sums = added(sums, Figures(not is_pair, is_pair))
            try:
                run(name, clean=stopped)
            except Exception:  # any failure is a finding
                sums = added(sums, Figures(wrong=1))
                left = "after a clean stop" if stopped else "after kill -9"
                sys.stderr.write(f"{name}, {left}:\n{traceback.format_exc()}\n")
    return sums


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Exit code 0: all cases passed; 1: a case failed."""
    parser = argparse.ArgumentParser(prog="scripts/damage", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="of pairs, only every so many")
    parser.add_argument("--case", help="one case, by its name")
    add_json(parser)
    options = parser.parse_args(arguments)
    sums = matrix(every=options.every, case=options.case)
    sentence = f"{sums.damages:,} damages, {sums.pairs:,} pairs of them, {sums.wrong:,} failed"
    show(sums, sentence, as_json=options.json)
    return 1 if sums.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
