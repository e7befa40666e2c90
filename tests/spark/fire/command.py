"""The long commands: many stories one after the other. A failure tells its seed, and leaves its folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

#: Rounds of one story. Each story starts with an empty broker and new checkpoints.
STORY = 10


class Story(Protocol):
    """Something that can be run for so many rounds, and tells of each."""

    def run(self, rounds: int) -> Iterator[str]: ...


class Command(NamedTuple):
    """What a command is called, what it kills, and what it has shown if nothing failed."""

    name: str
    description: str
    victims: str
    shown: str

    def run(self, make: Callable[[Path, int], Story], options: argparse.Namespace) -> int:
        """Exit code 0: everything was there once; 1: not."""
        for number, first in enumerate(range(0, options.rounds, STORY)):
            seed = options.seed + number
            folder = Path(tempfile.mkdtemp(prefix="penstock-fire-", dir=options.folder))
            try:
                for told in make(folder, seed).run(min(STORY, options.rounds - first)):
                    sys.stdout.write(f"seed {seed}, {told}\n")
                    sys.stdout.flush()
            except Exception:  # whatever went wrong is the finding
                sys.stdout.write(f"seed {seed} failed; its folder is {folder}\nagain: {self.name} --seed {seed}\n")
                sys.stdout.write(traceback.format_exc())
                return 1
            shutil.rmtree(folder)
        sys.stdout.write(f"{options.rounds} {self.victims} killed: {self.shown}\n")
        return 0

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
        return parser.parse_args(arguments)
