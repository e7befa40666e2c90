"""Compiles the modules of :mod:`penstock.compiled` into the folder where later processes find them."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from penstock.compiled import FOLDER, GROUP, MODULES, PACKAGE, VARIABLE, current_folder, prefix

#: The number of lines shown of a failed compiler's output.
SHOWN = 15
#: Only compiled modules have to type-check, and `mypy --strict` has checked them before. numpy's types differ between
#: versions, and are not needed.
SETTINGS = """\
[mypy]
mypy_path = .
explicit_package_bases = true
follow_imports = silent
ignore_missing_imports = true
disable_error_code = var-annotated
[mypy-numpy.*]
follow_imports = skip
"""


class CompileError(Exception):
    """The modules cannot be compiled here. The text says why, and what to do; notes contain the compiler's output."""


def is_compiled() -> bool:
    """Whether modules compiled from the current sources exist, and can be loaded."""
    try:
        _check_imports()
    except CompileError:
        return False
    return True


def compile_modules() -> bool:
    """Compile, and remove this Python's older modules. False: they are up to date already. Raises CompileError."""
    check_tools()
    with alone(), tempfile.TemporaryDirectory(prefix="penstock-compile-") as name:
        if is_compiled():
            return False
        work = Path(name)
        # In a copy of the package: mypyc must find it outside site-packages, and writes into its folder.
        shutil.copytree(PACKAGE, work / "penstock", ignore=_only_python)
        folder = current_folder(work / "penstock")
        _run_mypyc(work)
        if folder != current_folder(PACKAGE):
            raise CompileError("the sources were changed while they were compiled: compile again")
        with _writable_folder():
            _put_in_place(work / "made", folder)
    return True


def _put_in_place(made: Path, folder: Path) -> None:
    _discard_all()
    new = FOLDER / ".new"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(made, new)
    new.rename(folder)  # atomically: a process that starts now sees all modules, or none
    try:
        _check_imports()
    except CompileError:
        _discard(folder)
        raise


def remove() -> int:
    """Remove this Python's compiled modules. Returns the number of removed folders. Raises CompileError."""
    if not FOLDER.is_dir():
        return 0
    with alone(), _writable_folder():
        return _discard_all()


def _discard_all() -> int:
    folders = list(FOLDER.glob(f"{prefix()}*"))
    for folder in folders:
        _discard(folder)
    return len(folders)


def _discard(folder: Path) -> None:
    """Remove a folder atomically, even if this process is killed meanwhile."""
    removed = FOLDER / ".removed"
    shutil.rmtree(removed, ignore_errors=True)
    folder.rename(removed)
    shutil.rmtree(removed)


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process compiles or removes modules."""
    with _writable_folder():
        FOLDER.mkdir(exist_ok=True)
        lock = (FOLDER / ".lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _writable_folder() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CompileError(f"compiled modules cannot be kept in {FOLDER}: {error.strerror or error}") from None


def check_tools() -> None:
    """Raise CompileError if mypyc, setuptools, a C compiler or Python's headers are missing."""
    missing = [name for name in ("mypyc", "setuptools") if find_spec(name) is None]
    if missing:
        raise CompileError(f"compiling takes {' and '.join(missing)}: pip install 'penstock[compile]'")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise CompileError(f"there is no C compiler {compiler!r} (Debian: apt-get install gcc libc6-dev)")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        raise CompileError(f"there is no {header} (Debian: apt-get install python3-dev)")


def _run_mypyc(work: Path) -> None:
    (work / "mypy.ini").write_text(SETTINGS)
    paths = [f"{module.replace('.', '/')}.py" for module in MODULES]
    steps = Path(__file__).with_name("steps.py")
    _run([sys.executable, "-P", str(steps), GROUP, str(work / "made"), *paths], cwd=work)


def _only_python(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py") and not Path(folder, name, "__init__.py").is_file()]


def _check_imports() -> None:
    """Import all of them in a new process."""
    _run([sys.executable, "-c", f"import {', '.join(MODULES)}"], env={**os.environ, VARIABLE: "required"})


def _run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    # Its standard input ends with this process; it and the compilers that it starts are one group, and end together.
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.read().strip().splitlines()
            process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        failed = CompileError("compiling failed; the sources run as before")
        for line in said[-SHOWN:]:
            failed.add_note(line)
        raise failed
