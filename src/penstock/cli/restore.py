"""``penstock restore``: a data folder from a backup."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from penstock.cli.output import amount, json_option, measuring, moment, say, tell
from penstock.journal.backup import read_manifest, restore_backup


@click.command("restore", short_help="Make a data folder of a backup.")
@click.argument("backup", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@json_option
def command(backup: Path, data: Path, as_json: bool) -> None:
    """Make the data folder DATA, which must be new or empty, of a BACKUP that `penstock backup create` has made.

    No broker is asked: this works where the files are. Start one on it with `penstock serve --data DATA`.

    \b
    Examples:
      penstock restore ./penstock-data-backups/before-the-move ./restored
      penstock restore /backups/monday /var/lib/penstock --json

    Exit codes: 0 done, 1 the disk failed, 2 wrong use, 3 BACKUP is none or not whole, or DATA is not empty.
    """
    known = read_manifest(str(backup))
    with measuring("restore", known.bytes if known else None) as advance:

        def progress(size: int) -> bool:
            advance(size)
            return True

        manifest = restore_backup(str(backup), str(data), progress)
    if as_json:
        tell({"data": str(data), **msgspec.to_builtins(manifest)})
        return
    say(
        f"{data} has the journal as of {moment(manifest.created_at)}: {amount(manifest.bytes)} up to position "
        f"{manifest.position}",
        f"start a broker on it: penstock serve --data {data}",
    )
