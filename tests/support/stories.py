"""The long commands: many stories one after the other. A failure tells its seed, and leaves its folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from support.figures import add_json, added, show


class Story(Protocol):
    """Something that can be run for so many rounds, and tells of each. ``figures`` is a NamedTuple of numbers."""

    figures: Any
    wrong: list[str]

    def run(self, rounds: int) -> Iterator[str]: ...


S = TypeVar("S", bound=Story)


class StoryCommand(NamedTuple):
    """A command by its name: what it does, how many rounds it has and of what, and its examples."""

    name: str
    description: str
    rounds: int
    victims: str
    examples: str
    #: Rounds of one story. Each starts with an empty broker.
    story: int

    def run(self, make: Callable[[Path, int], S], options: argparse.Namespace, shown: Callable[[list[S]], str]) -> int:
        """Exit code 0, and what was ``shown`` by all stories: every promise was kept; 1: not."""
        told = list[S]()
        for number, first in enumerate(range(0, options.rounds, self.story)):
            seed = options.seed + number
            folder = Path(tempfile.mkdtemp(prefix=f"penstock-{Path(self.name).name}-", dir=options.folder))
            story = make(folder, seed)
            problem = _live(story, seed, min(self.story, options.rounds - first), quiet=options.json)
            told.append(story)
            if problem:
                sys.stderr.write(f"seed {seed} failed; its folder is {folder}\nagain: {self.name} --seed {seed}\n")
                sys.stderr.write(problem)
                show(_sums(told), f"{_sums(told)}", as_json=options.json)
                return 1
            shutil.rmtree(folder)
        show(_sums(told), f"{_sums(told)}\n{shown(told)}", as_json=options.json)
        return 0

    def parser(self) -> argparse.ArgumentParser:
        """The options that all have."""
        parser = argparse.ArgumentParser(
            prog=self.name,
            description=self.description,
            epilog=f"examples:\n{self.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        many = f"how many {self.victims} (default: {self.rounds})"
        parser.add_argument("--rounds", type=_count, default=self.rounds, metavar="N", help=many)
        parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
        parser.add_argument("--folder", metavar="DIR", help="where the folders are made (default: the temporary one)")
        add_json(parser)
        return parser


def _sums(stories: Sequence[Story]) -> Any:
    return reduce(added, [story.figures for story in stories])


def _count(text: str) -> int:
    """A number of rounds: one at least."""
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds; 1 or more is")
    return number


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
