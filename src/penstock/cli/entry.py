"""Where the command starts: so light that Ctrl-C is answered as well while the rest is still being read."""

from __future__ import annotations

import gc
import os
import sys

from penstock import compiled


def main() -> None:
    """Run the ``penstock`` command."""
    # NumPy's matrix library, which is not used here, starts a spinning thread per CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if compiled.refusal:
        print(f"penstock: {compiled.refusal}", file=sys.stderr)
        sys.exit(2)  # wrong use; where the codes are named can't be imported now
    gc.disable()  # until the command is read, too: what is made meanwhile stays
    try:
        from penstock.cli.process_arguments import hide_passwords  # noqa: PLC0415 - as early as can be

        hide_passwords()
        from penstock.cli.main import main as command  # noqa: PLC0415 - it is what takes long
    except KeyboardInterrupt:
        sys.exit(130)
    command(prog_name="penstock")
