"""Where the command starts: so light that Ctrl-C is answered as well while the rest is still being read."""

from __future__ import annotations

import sys

from penstock.protocols import ProtocolError


def main() -> None:
    """Run the ``penstock`` command."""
    try:
        from penstock.cli.main import main as command  # noqa: PLC0415 - it is what takes long
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        command(prog_name="penstock")
    except ProtocolError as error:  # met before a command began: the help of all commands names the protocols
        print(f"penstock: {error}", file=sys.stderr)
        sys.exit(2)
