"""The long commands: many stories one after the other. A failure tells its seed, and leaves its folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from support.figures import add_json, added, show

#: Rounds of one story. Each story starts with an empty broker and new checkpoints.
STORY = 10


class Story(Protocol):
    """Something that can be run for so many rounds, and tells of each. ``figures`` is a NamedTuple of numbers."""

    figures: Any
    wrong: list[str]

    def run(self, rounds: int) -> Iterator[str]: ...


class Command(NamedTuple):
    """What a command is called, what it kills, and what it has shown if nothing failed."""

    name: str
    description: str
    victims: str
    shown: str

    def run(self, make: Callable[[Path, int], Story], options: argparse.Namespace) -> int:
        """Exit code 0: everything was there once; 1: not."""
        sums: Any = None
        for number, first in enumerate(range(0, options.rounds, STORY)):
            seed = options.seed + number
            folder = Path(tempfile.mkdtemp(prefix="penstock-fire-", dir=options.folder))
            story = make(folder, seed)
            problem = self._live(story, seed, min(STORY, options.rounds - first), quiet=options.json)
            sums = added(sums, story.figures) if sums is not None else story.figures
            if problem:
                sys.stderr.write(f"seed {seed} failed; its folder is {folder}\nagain: {self.name} --seed {seed}\n")
                sys.stderr.write(problem)
                show(sums, f"{sums}", as_json=options.json)
                return 1
            shutil.rmtree(folder)
        show(sums, f"{sums}\n{options.rounds} {self.victims} killed: {self.shown}", as_json=options.json)
        return 0

    def _live(self, story: Story, seed: int, rounds: int, *, quiet: bool) -> str:
        """Run a story, and tell of its rounds. Returns what went wrong, if anything did."""
        try:
            for told in story.run(rounds):
                if not quiet:
                    sys.stdout.write(f"seed {seed}, {told}\n")
                    sys.stdout.flush()
        except Exception:  # whatever went wrong is the finding
            return traceback.format_exc()
        return "".join(f"{each}\n" for each in story.wrong)

    def parse(self, arguments: list[str] | None = None) -> argparse.Namespace:
        """The options."""
        parser = argparse.ArgumentParser(
            prog=self.name,
            description=self.description,
            epilog=f"examples:\n  {self.name} --rounds 100\n"
            f"  {self.name} --seed 7 --rounds 10     the same plan again; the machine's pace differs\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument(
            "--rounds", type=int, default=100, metavar="N", help=f"how many {self.victims} (default: 100)"
        )
        parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
        parser.add_argument("--folder", metavar="DIR", help="where the folders are made (default: the temporary one)")
        add_json(parser)
        return parser.parse_args(arguments)
