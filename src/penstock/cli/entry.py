"""The entry point. It imports so little that Ctrl-C works while the rest is still being imported."""

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
        sys.exit(2)  # wrong use; the module with its name can't be imported now
    gc.disable()  # while the command is imported: the objects of modules are never freed
    try:
        from penstock.cli.process_arguments import hide_passwords  # noqa: PLC0415 - as early as possible

        hide_passwords()
        from penstock.cli.main import main as command  # noqa: PLC0415 - this import takes time
    except KeyboardInterrupt:
        sys.exit(130)
    command(prog_name="penstock")
