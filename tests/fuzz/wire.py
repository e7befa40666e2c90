"""Fuzzes one decoder in this process until libFuzzer is done. scripts/fuzz starts it, with seeds and limits.

wire.py TARGET [LIBFUZZER-OPTION…] [FOLDER…]
"""

from __future__ import annotations

import sys

import atheris

# Only our own code guides the fuzzer; branches of tests and libraries would drown it.
with atheris.instrument_imports(include=["penstock.wire"]):
    import penstock.wire.stream  # noqa: F401
    from fuzz.check import checker, targets


def main() -> None:
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, checker(*targets()[name]))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
