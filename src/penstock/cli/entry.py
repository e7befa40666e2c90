"""Where the command starts: so light that Ctrl-C is answered as well while the rest is still being read."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the ``penstock`` command."""
    try:
        from penstock.cli.process_arguments import hide_passwords  # noqa: PLC0415 - as early as can be

        hide_passwords()
        from penstock.cli.main import main as command  # noqa: PLC0415 - it is what takes long
    except KeyboardInterrupt:
        sys.exit(130)
    command(prog_name="penstock")
