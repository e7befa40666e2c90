"""Kill brokers: ``scripts/crash --rounds 1000``. A failure prints its seed and round, and keeps its folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from server.crash.killing import Round, Story
from support.figures import add_json, added, show

#: Rounds in one folder: enough for checkpoints, retention and compaction to have happened.
STORY = 25
DURABILITIES = ("commit", "interval", "os")


class Figures(NamedTuple):
    """The numbers of a run: kills, and confirmed operations. A lost, doubled or changed message ends the run."""

    rounds: int = 0
    killed_while_starting: int = 0
    published: int = 0
    settled: int = 0
    left_a_checkpoint: int = 0
    left_a_trimmed_journal: int = 0
    carried_messages: int = 0
    broken: int = 0


def figures_of(story: Story, rounds: list[Round]) -> Figures:
    """The numbers of one folder."""
    return Figures(
        rounds=len(rounds),
        killed_while_starting=sum(not each.started for each in rounds),
        published=len(story.confirmed),
        settled=len(story.settled),
        left_a_checkpoint=sum(each.checkpoint for each in rounds),
        left_a_trimmed_journal=sum(each.trimmed for each in rounds),
        carried_messages=sum(each.carried > 0 for each in rounds),
    )


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0: all promises kept; 1: a round failed."""
    options = _parse(arguments)
    sums = Figures()
    began = time.monotonic()
    for number, first in enumerate(range(0, options.rounds, STORY)):
        seed = options.seed + number
        durability = options.durability or DURABILITIES[max(seed % 4 - 1, 0)]  # half of them commit
        folder = Path(tempfile.mkdtemp(prefix="penstock-crash-", dir=options.folder))
        story = Story(folder, seed, durability)
        rounds: list[Round] = []
        try:
            for each in story.run(min(STORY, options.rounds - first)):
                rounds.append(each)
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r{sums.rounds + len(rounds):,} of {options.rounds:,} rounds ")
        except Exception:  # any exception is a finding
            sys.stderr.write(f"\nseed {seed}, round {story.round}, {durability} failed; its folder is {folder}\n")
            sys.stderr.write(f"again: scripts/crash --seed {seed} --rounds {STORY} --durability {durability}\n")
            sys.stderr.write(traceback.format_exc())
            sums = added(added(sums, figures_of(story, rounds)), Figures(broken=1))
            show(sums, f"{sums}", as_json=options.json)
            return 1
        sums = added(sums, figures_of(story, rounds))
        if not options.json:
            sys.stdout.write(f"seed {seed}, {durability}: {figures_of(story, rounds)}\n")
            sys.stdout.flush()
        shutil.rmtree(folder)
    sentence = f"{sums.rounds:,} brokers killed in {time.monotonic() - began:.0f} s: all promises kept"
    show(sums, f"{sums}\n{sentence}", as_json=options.json)
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/crash",
        description="Kill real brokers under load with SIGKILL, and check after each what it had promised.",
        epilog="examples:\n  scripts/crash --rounds 1000\n  scripts/crash --durability os --rounds 100\n"
        "  scripts/crash --seed 4711 --rounds 25     the same traffic again; the moments of the kills differ\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="how many kills (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--durability", choices=DURABILITIES, help="only this one (default: all, half of them commit)")
    parser.add_argument("--folder", metavar="DIR", help="where the data folders are made (default: the temporary one)")
    add_json(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
