"""``penstock pipeline`` for spark-submit.

In a folder of its own: Python looks for modules beside a program first, and ``cli/queue.py`` is not the standard one.
"""

import sys

from penstock.cli.pipeline import command

if __name__ == "__main__":
    sys.exit(command(standalone_mode=False))
