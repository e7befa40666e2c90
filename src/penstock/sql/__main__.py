"""``python -m penstock.sql``: a process for SQL, started by the HTTP process. See ``requests``."""

from __future__ import annotations

import sys

from penstock.sql.worker import main

if __name__ == "__main__":
    sys.exit(main())
