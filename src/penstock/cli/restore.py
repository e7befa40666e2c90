"""``penstock restore``: a journal from a backup, in a data folder or in a database."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from penstock.cli.displays import measuring
from penstock.cli.output import amount, json_option, moment, print_json, say
from penstock.journal import is_url, open_journal
from penstock.journal.backup import Manifest, check_backup, read_manifest, restore_backup
from penstock.journal.transfer import copy_journal


class Restored(NamedTuple):
    """Where a journal is now, and what to start a broker with."""

    manifest: Manifest
    where: str
    flag: str


@click.command("restore")
@click.argument("backup", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data", metavar="DATA")
@json_option
def command(backup: Path, data: str, as_json: bool) -> None:
    """Restore to DATA a BACKUP made by `penstock backup create`.

    DATA is a data folder, which must be new or empty, or the URL of a database, with a schema that contains no journal.
    No broker is needed. Start one on it with `penstock serve --data DATA`, or with `--journal URL`. It is the same
    journal, and continues with positions higher than any that the original may have reached. Readers that have read
    later events than the backup contains learn that these are lost.

    \b
    Examples:
      penstock restore ./penstock-data-backups/before-the-move ./restored
      penstock restore /backups/monday /var/lib/penstock --json
      penstock restore /backups/monday 'postgresql://mq@db.example.com/penstock?schema=monday'

    Exit codes: 0 done, 1 the disk failed, 2 wrong use, 3 BACKUP is not a complete backup, or DATA is not empty.
    """
    manifest, where, flag = (_into_journal if is_url(data) else _into_folder)(str(backup), data)
    if as_json:
        print_json({"data": where, **msgspec.to_builtins(manifest)})
        return
    say(
        f"{where} has the journal as of {moment(manifest.created_at)}: {amount(manifest.bytes)} up to position "
        f"{manifest.position}",
        f"start a broker on it: penstock serve {flag} {where}",
    )


def _into_folder(backup: str, data: str) -> Restored:
    known = read_manifest(backup)
    with measuring("restore", known.bytes if known else None) as advance:

        def progress(size: int) -> bool:
            advance(size)
            return True

        return Restored(restore_backup(backup, data, progress), data, "--data")


def _into_journal(backup: str, url: str) -> Restored:
    """Check every block while copying, and the copy at the end."""
    target, manifest = open_journal(url), check_backup(backup)
    copy_journal(open_journal(f"file:{backup}").transfer_source(), target.transfer_target(), measuring, restores=True)
    return Restored(manifest, target.where, "--journal")
