"""A broker as a process of its own: ``python -m support.run_broker CONFIG.toml LARGEST_FILE CAPACITY``."""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path

from penstock.journal.files import journal
from penstock.journal.files.disk import RealDisk
from penstock.server.options.configuration import ConfigurationError, load
from penstock.server.process.serve import WRONG_USE, serve
from support.smalldisk import SmallDisk


def main(config: str, largest_file: int, capacity: str) -> int:
    """Serve with this configuration until a signal comes. ``largest_file`` limits files, in bytes; 0: no limit.

    ``capacity`` names a file with the size of a simulated disk: see ``support.smalldisk``.
    """
    if capacity:
        _shrink_the_disk(Path(capacity))
    if largest_file:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        options = load(config, {}, {})
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    return serve(options)


def _shrink_the_disk(capacity: Path) -> None:
    """Put the file journal on a disk of the size in ``capacity``."""

    def small(folder: str, *, read_only: bool = False) -> RealDisk:
        return RealDisk(folder, read_only=True) if read_only else SmallDisk(Path(folder), capacity)

    assert vars(journal)["RealDisk"] is RealDisk
    setattr(journal, "RealDisk", small)  # noqa: B010


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
