"""The long commands run many stories in a row. A failure prints its seed and keeps its folder."""

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
    """Runs for a number of rounds and reports each. ``figures`` is a NamedTuple of numbers."""

    figures: Any
    wrong: list[str]

    def run(self, rounds: int) -> Iterator[str]: ...


S = TypeVar("S", bound=Story)


class StoryCommand(NamedTuple):
    """A command: its name, description, number of rounds, what the rounds count, and examples."""

    name: str
    description: str
    rounds: int
    victims: str
    examples: str
    #: Rounds of one story. Each starts with an empty broker.
    story: int

    def run(self, make: Callable[[Path, int], S], options: argparse.Namespace, shown: Callable[[list[S]], str]) -> int:
        """Run all stories. Exit code 0, and the text of ``shown``: every promise was kept; 1: one was broken."""
        stories = list[S]()
        for number, first in enumerate(range(0, options.rounds, self.story)):
            seed = options.seed + number
            folder = Path(tempfile.mkdtemp(prefix=f"penstock-{Path(self.name).name}-", dir=options.folder))
            story = make(folder, seed)
            problem = _live(story, seed, min(self.story, options.rounds - first), quiet=options.json)
            stories.append(story)
            if problem:
                sys.stderr.write(f"seed {seed} failed; its folder is {folder}\nagain: {self.name} --seed {seed}\n")
                sys.stderr.write(problem)
                show(_sums(stories), f"{_sums(stories)}", as_json=options.json)
                return 1
            shutil.rmtree(folder)
        show(_sums(stories), f"{_sums(stories)}\n{shown(stories)}", as_json=options.json)
        return 0

    def parser(self) -> argparse.ArgumentParser:
        """The options that all these commands share."""
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
    """A number of rounds, at least 1."""
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds; 1 or more is")
    return number


def _live(story: Story, seed: int, rounds: int, *, quiet: bool) -> str:
    """Run a story and print its rounds. Returns the failures, or an empty string."""
    try:
        for report in story.run(rounds):
            if not quiet:
                sys.stdout.write(f"seed {seed}, {report}\n")
                sys.stdout.flush()
    except Exception:  # any exception is a finding
        return traceback.format_exc()
    return "".join(f"{each}\n" for each in story.wrong)
