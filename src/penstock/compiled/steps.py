"""Compiles modules with mypyc: a program that :mod:`penstock.compiled.build` runs in a copy of the sources.

Arguments: the name of the library, the output folder, and the paths of the modules.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread

from mypyc.build import mypycify
from setuptools import setup


def main(group: str, target: str, *paths: str) -> None:
    """Compile into the folder."""
    extensions = mypycify(
        ["--config-file=mypy.ini", *paths], opt_level="2", debug_level="0", group_name=group, target_dir="c"
    )
    for each in extensions:  # a compiler newer than mypyc may have more warnings
        each.extra_compile_args = [flag for flag in each.extra_compile_args if flag != "-Werror"]
    setup(
        name=group,
        packages=[],
        ext_modules=extensions,
        script_args=["--quiet", "build_ext", f"--build-lib={target}", "--build-temp=objects"],
    )


def _end_with_parent() -> None:
    """Kill this process and its compilers when standard input ends, which the parent holds open."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    Thread(target=_end_with_parent, daemon=True).start()
    main(*sys.argv[1:])
