"""``python -m penstock.sql``: a process of SQL, as the HTTP process starts it. See ``requests``."""

from __future__ import annotations

import sys

from penstock.sql.worker import main

if __name__ == "__main__":
    sys.exit(main())
