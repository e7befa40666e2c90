"""The argument that names a journal: its folder or its URL."""

from __future__ import annotations

import os
from typing import Any

import click

from penstock.journal import Journal, is_url, open_journal

_FOLDER = click.Path(exists=True, file_okay=False, path_type=str)


class JournalType(click.ParamType[Journal]):
    """A journal. With ``new`` its folder need not exist."""

    name = "journal"

    def __init__(self, *, new: bool = False) -> None:
        self._new = new

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Journal:
        """Open the journal. Raises JournalRefused for a URL that names none."""
        if is_url(value):
            return open_journal(value)
        folder = value if self._new else _FOLDER.convert(value, param, ctx)
        return open_journal(f"file:{os.fsdecode(folder)}")


journal_argument = click.argument("journal", metavar="JOURNAL", type=JournalType())
