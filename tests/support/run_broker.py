"""A broker as a process of its own: ``python -m support.run_broker CONFIG.toml LARGEST_FILE``."""

from __future__ import annotations

import resource
import signal
import sys

from penstock.server.configuration import ConfigurationError, load
from penstock.server.serve import WRONG_USE, serve


def main(config: str, largest_file: int) -> int:
    """Serve as the file says, until a signal comes. Files may grow up to so many bytes; 0 = without limit."""
    if largest_file:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        options = load(config, {}, {})
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    return serve(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
