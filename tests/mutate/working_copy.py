"""A copy of the checkout in which mutmut works. Both mutation and results use its command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from mutate.targets import NEVER, ROOT, Selection, patterns

#: The files that tests read besides src and tests.
ALSO = ("docs", "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "penstock.example.toml")
#: Enumeration members are created before mutmut can trampoline their methods.
_ENUM = re.compile(r"^(class \w+\(.*(?:Enum|Flag)\):)$", re.MULTILINE)
_RESULT = re.compile(r"^ {4}(\S+): ([a-z ]+)$", re.MULTILINE)
_SETTINGS = """

[tool.mutmut]
source_paths = ["src"]
only_mutate = {files}
also_copy = {also}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-k", {words}]
pytest_add_cli_args_test_selection = {places}
use_git_change_detection = false
track_dependencies = false
timeout_multiplier = 5.0
timeout_constant = 6.0
"""
#: Each mutant runs many tests, so each test uses fewer examples, which depend on the test alone.
_FEW_EXAMPLES = """
settings.register_profile("mutants", settings.get_profile("repeatable"), max_examples=30)
settings.load_profile("mutants")
"""


#: mutmut's status of a mutant that it has not tried. One that breaks the import of a test is "interrupted".
UNFINISHED = "not checked"


class Failed(Exception):
    """mutmut failed: usually a test fails without any mutant."""


class WorkingCopy(NamedTuple):
    """The copy, for one target."""

    folder: Path
    target: str

    def prepare(self) -> None:
        """Copy everything again. Mutants of unchanged files are kept."""
        for name in ("src", "tests", "mutants/tests"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self._copy()
        for file in (self.folder / "src").rglob("*.py"):
            times, text = file.stat(), file.read_text()
            if (marked := _ENUM.sub(r"\1  # pragma: no mutate block", text)) != text:
                file.write_text(marked)
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        with (self.folder / "tests/conftest.py").open("a") as settings:
            settings.write(_FEW_EXAMPLES)
        if not self._made.exists() or self._made.read_text() != self._files():
            shutil.rmtree(self.folder / "mutants", ignore_errors=True)  # unfinished, or of files that are gone

    def _copy(self) -> None:
        for name in ("src", "tests", *ALSO):
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, self.folder / name, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / name, self.folder)

    @property
    def _made(self) -> Path:
        """Marks that all mutants were made, and lists the files they came from."""
        return self.folder / "mutants/made"

    def _files(self) -> str:
        return "".join(sorted(f"{file}\n" for file in (self.folder / "src").rglob("*.py")))

    def mutants(self, tests: Selection) -> list[str]:
        """Make the mutants and find the tests that reach each. Returns the names of all mutants."""
        self._settle(tests)
        self._run("run", "no mutant has this name")  # the only way to make mutants without trying them
        found = self.results()
        if not found or "failed to collect stats" in self._log():
            raise Failed(f"the tests do not pass, or mutmut fails: see {self.folder / 'log'}")
        self._made.write_text(self._files())
        return sorted(found)

    def attempt(self, names: list[str], jobs: int) -> dict[str, str]:
        """Try these mutants. Returns the status of each."""
        if self._run("run", "--max-children", str(jobs), *names):
            raise Failed(f"mutmut fails: see {self.folder / 'log'}")
        found = self.results()
        if any(found[name] == UNFINISHED for name in names):
            raise Failed(f"not all mutants were tried: see {self.folder / 'log'}")
        return {name: found[name] for name in names}

    def results(self) -> dict[str, str]:
        """Return the status of each mutant so far."""
        listing = self._ask("results", "--all", "true")
        return dict(_RESULT.findall(listing))

    def show(self, name: str) -> str:
        """Return a mutant's change as a diff."""
        diff = self._ask("show", name)
        return diff.partition("\n")[2].strip()

    def _settle(self, tests: Selection) -> None:
        words = f"not ({' or '.join(filter(None, [NEVER, tests.without]))})"
        words += f" and ({tests.words})" if tests.words else ""
        values = {
            "files": patterns(self.target),
            "also": list(ALSO),
            "words": words,
            "places": [f"tests/{place}" for place in tests.places],
        }
        filled = _SETTINGS.format(**{key: json.dumps(value) for key, value in values.items()})
        (self.folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + filled)
        for stale in (self.folder / "mutants").glob("*.json"):
            stale.unlink()  # the tests that reach each function

    def _run(self, *arguments: str) -> int:
        command = [sys.executable, "-m", "mutmut", *arguments]
        with (self.folder / "log").open("w") as log:
            environment = os.environ | {"PYTHONPATH": ""}
            return subprocess.run(
                command, cwd=self.folder, stdout=log, stderr=log, env=environment, check=False
            ).returncode

    def _ask(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "mutmut", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")
