"""Setting up a checkout: messages and actions of scripts/setup.sh when something is missing, interrupted or moved.

Each test has a copy of the scripts in a folder of its own (with a space in its name), a PATH with the few tools they
need, and a shell script that stands in for Python. One test uses the real Python and pip.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ["bash", "cat", "chmod", "cksum", "cp", "cut", "dirname", "mkdir", "rm", "sleep"]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the scripts need bash")

#: Stands in for Python, also inside .venv, and logs its arguments.
FAKE_PYTHON = """\
#!{bash}
printf '%s\\n' "$*" >> "$FAKE_LOG"
case "$*" in
  *version_info*) exit ${{FAKE_OLD:-0}} ;;
  *ensurepip*) exit ${{FAKE_NO_VENV:-0}} ;;
  --version) echo "Python 3.99.0" ;;
  "-m venv .venv")
    mkdir -p .venv/bin; cp "$0" .venv/bin/python
    if [ -n "${{FAKE_VENV_INTERRUPTED:-}}" ]; then kill -KILL $PPID; fi ;;
  "-m pip install"*"[fuzz]"*) exit ${{FAKE_NO_ATHERIS:-0}} ;;
  "-m pip install"*) sleep ${{FAKE_SLOW:-0}}; exit ${{FAKE_PIP_FAILS:-0}} ;;
  "-m penstock compile") if [ -n "${{FAKE_NO_COMPILER:-}}" ]; then echo "penstock: no C compiler" >&2; exit 1; fi ;;
  "-m pytest"*--unknown*) exit 4 ;;
  "-m pytest"*) echo "pytest ran" ;;
esac
"""


class Checkout:
    """A copy of the files that the set-up needs, and its environment."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        self.root.mkdir()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "pyproject.toml", self.root)
        for tool in [*TOOLS, "flock"]:
            if (path := shutil.which(tool)) is not None:
                (self.bin / tool).symlink_to(path)

    def fake_python(self, name: str = "python3") -> None:
        path = self.bin / name
        path.write_text(FAKE_PYTHON.format(bash=self.bin / "bash"))
        path.chmod(0o755)

    def start(
        self, script: str = "test", arguments: tuple[str, ...] = ("-k", "nothing"), **env: str
    ) -> subprocess.Popen[str]:
        world = {"PATH": str(self.bin), "FAKE_LOG": str(self.log), "HOME": str(self.bin), **env}
        command = [str(self.bin / "bash"), f"scripts/{script}", *arguments]
        return subprocess.Popen(
            command, cwd=self.root, env=world, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(
        self, script: str = "test", arguments: tuple[str, ...] = ("-k", "nothing"), **env: str
    ) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        process = self.start(script, arguments, **env)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def asked(self, what: str) -> int:
        """How often Python's arguments contained these words so far."""
        return sum(what in line for line in self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def ready(checkout: Checkout) -> Checkout:
    """A checkout whose set-up has succeeded."""
    checkout.fake_python()
    assert checkout.run()[0] == 0
    return checkout


class TestMissing:
    @pytest.mark.parametrize("script", ["test", "fuzz"])
    def test_no_python(self, checkout: Checkout, script: str) -> None:
        code, out, err = checkout.run(script)
        assert (code, out) == (3, "")
        assert err.startswith("set-up: Python 3.11 or newer was not found on the PATH.\n")
        assert f"or name it: PYTHON=/path/to/python3.11 scripts/{script}\n" in err
        assert not (checkout.root / ".venv").exists()

    def test_only_an_old_python(self, checkout: Checkout) -> None:
        checkout.fake_python()
        code, _, err = checkout.run(FAKE_OLD="1")
        assert code == 3
        assert "Python 3.11 or newer was not found" in err

    def test_a_newer_python_under_another_name(self, checkout: Checkout) -> None:
        checkout.fake_python("python3.12")
        assert checkout.run()[0] == 0

    def test_an_unusable_named_python(self, checkout: Checkout) -> None:
        checkout.fake_python()
        code, _, err = checkout.run(PYTHON="/missing/python")
        assert (code, err) == (3, "set-up: PYTHON=/missing/python is not a Python 3.11 or newer.\n")

    def test_a_named_python_is_used(self, checkout: Checkout) -> None:
        checkout.fake_python("my-python")
        assert checkout.run(PYTHON=str(checkout.bin / "my-python"))[0] == 0

    def test_no_venv_module(self, checkout: Checkout) -> None:
        checkout.fake_python()
        code, _, err = checkout.run(FAKE_NO_VENV="1")
        assert code == 3
        assert err.startswith("set-up: Python 3.99.0 has no venv module.\n")
        assert "apt-get install python3-venv" in err
        assert not (checkout.root / ".venv").exists()

    def test_pip_fails(self, checkout: Checkout) -> None:
        checkout.fake_python()
        code, _, err = checkout.run(FAKE_PIP_FAILS="1")
        assert code == 3
        assert "set-up: pip could not install the dependencies (its message is above).\n" in err
        assert "Without a network" in err
        assert checkout.asked("pytest") == 0

    def test_no_network_with_the_real_python(self, checkout: Checkout) -> None:
        (checkout.bin / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
        nowhere: dict[str, Any] = {
            "PIP_INDEX_URL": "http://127.0.0.1:9/",
            "PIP_RETRIES": "0",
            "PIP_CONFIG_FILE": os.devnull,
        }
        code, _, err = checkout.run(**nowhere, PIP_NO_CACHE_DIR="1")
        assert code == 3, err
        assert "ERROR:" in err, "pip's own output comes first"
        assert err.index("ERROR:") < err.index("set-up: pip could not install the dependencies")

    def test_no_atheris_is_no_error(self, checkout: Checkout) -> None:
        checkout.fake_python()
        code, out, err = checkout.run(FAKE_NO_ATHERIS="1")
        assert (code, out) == (0, "pytest ran\n")
        assert "the fuzzing tests will be skipped" in err

    def test_no_compiler_is_no_error(self, checkout: Checkout) -> None:
        checkout.fake_python()
        code, out, err = checkout.run(FAKE_NO_COMPILER="1")
        assert (code, out) == (0, "pytest ran\n")
        assert "set-up: nothing was compiled, so Penstock runs from source (penstock: no C compiler)\n" in err

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_no_write_permission(self, checkout: Checkout) -> None:
        checkout.fake_python()
        checkout.root.chmod(0o555)
        try:
            code, _, err = checkout.run()
        finally:
            checkout.root.chmod(0o755)
        assert (code, err) == (3, f"set-up: no right to write in {checkout.root}.\n")


class TestCommands:
    def test_everything(self, ready: Checkout) -> None:
        assert ready.run(arguments=())[:2] == (0, "pytest ran\n")
        assert (ready.asked("-m ruff"), ready.asked("-m mypy"), ready.asked("not long")) == (2, 1, 0)

    def test_quick(self, ready: Checkout) -> None:
        assert ready.run(arguments=("--quick",))[:2] == (0, "pytest ran\n")
        assert (ready.asked("-m ruff"), ready.asked("-m mypy")) == (2, 1)
        assert ready.asked("-m pytest -n 2 --dist loadgroup -m not long") == 1

    def test_quick_with_arguments(self, ready: Checkout) -> None:
        assert ready.run(arguments=("--quick", "-x"))[:2] == (0, "pytest ran\n")
        assert (ready.asked("-m ruff"), ready.asked("-m pytest -m not long -x")) == (0, 1)

    def test_an_unknown_flag(self, ready: Checkout) -> None:
        code, _, err = ready.run(arguments=("--unknown",))
        assert code == 4
        assert err.startswith("scripts/test: takes --quick or --help as its first argument, and what pytest takes")

    def test_help(self, checkout: Checkout) -> None:
        code, out, err = checkout.run(arguments=("--help",))
        assert (code, err) == (0, "")
        assert out.startswith("Sets up the checkout (once) and runs lint, types and the tests.\n")
        assert "scripts/test --quick " in out

    def test_files_that_quick_skips_exist(self) -> None:
        """Otherwise --quick would run a renamed file, unnoticed."""
        for name in runpy.run_path(str(ROOT / "tests/conftest.py"))["LONG"]:
            file, _, part = name.partition("::")
            assert part in (ROOT / "tests" / file).read_text(), name


class TestAgain:
    def test_the_second_time_does_nothing(self, ready: Checkout) -> None:
        before = ready.asked("pip install")
        assert ready.run() == (0, "pytest ran\n", "")
        assert ready.asked("pip install") == before == 2
        assert ready.asked("-m venv") == 1

    def test_a_changed_pyproject_installs_into_the_same_venv(self, ready: Checkout) -> None:
        with (ready.root / "pyproject.toml").open("a") as file:
            file.write("\n")
        assert ready.run()[0] == 0
        assert (ready.asked("-m venv"), ready.asked("pip install")) == (1, 4)

    def test_a_moved_checkout_makes_a_new_venv(self, ready: Checkout) -> None:
        ready.root = ready.root.rename(ready.root.with_name("another place"))
        assert ready.run()[0] == 0
        assert ready.asked("-m venv") == 2

    def test_a_venv_whose_python_is_gone_is_recreated(self, ready: Checkout) -> None:
        (ready.root / ".venv" / "bin" / "python").unlink()
        assert ready.run()[0] == 0
        assert ready.asked("-m venv") == 2

    def test_after_pip_failed_only_pip_runs_again(self, checkout: Checkout) -> None:
        checkout.fake_python()
        assert checkout.run(FAKE_PIP_FAILS="1")[0] == 3
        assert checkout.run()[0] == 0
        assert checkout.asked("-m venv") == 1

    def test_a_half_made_venv_is_recreated(self, checkout: Checkout) -> None:
        checkout.fake_python()
        assert checkout.run(FAKE_VENV_INTERRUPTED="1")[0] != 0
        assert (checkout.root / ".venv" / "bin" / "python").exists()
        assert checkout.run()[0] == 0
        assert checkout.asked("-m venv") == 2

    def test_a_foreign_venv_is_left_alone(self, checkout: Checkout) -> None:
        checkout.fake_python()
        theirs = checkout.root / ".venv" / "precious"
        theirs.mkdir(parents=True)
        code, _, err = checkout.run()
        assert code == 3
        assert "there is a .venv here that this script did not make" in err
        assert theirs.exists()

    @pytest.mark.skipif(shutil.which("flock") is None, reason="without flock, two set-ups at once are not kept apart")
    def test_concurrent_runs_set_up_once(self, checkout: Checkout) -> None:
        checkout.fake_python()
        both = [checkout.start(FAKE_SLOW="0.3") for _ in range(2)]
        assert [process.communicate(timeout=60)[0] for process in both] == ["pytest ran\n"] * 2
        assert (checkout.asked("-m venv"), checkout.asked("pip install")) == (1, 2)
