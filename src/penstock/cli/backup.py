"""``penstock backup``: copies of the journal, made while the broker runs."""

from __future__ import annotations

import click

from penstock.admin.resources.common import Page, PageQuery
from penstock.admin.resources.messages import Job
from penstock.admin.resources.operations import Backup, NewBackup
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.job_progress import background_option, finish
from penstock.cli.output import amount, json_option, when
from penstock.cli.pages import ListRange, page_options, pages, show_pages

COLUMNS = ("NAME", "MADE", "POSITION", "SIZE", "FOLDER")


@click.group("backup")
def command() -> None:
    """Back up the journal on the broker's machine while it runs. `penstock restore` restores a backup.

    \b
    Examples:
      penstock backup create
      penstock backup create before-the-move
      penstock backup list

    Exit codes: 0 done, 1 the broker is unreachable or the backup failed; 2 wrong use, 3 refused.
    """


@command.command("create", short_help="Create a backup.")
@click.argument("name", metavar="[NAME]", default="")
@background_option
@api_options
@json_option
def create(name: str, background: bool, as_json: bool, api: Api) -> int:
    """Create a backup in the folder NAME of the broker's backup folder. The default name is the current time.

    \b
    Examples:
      penstock backup create
      penstock backup create before-the-move --background
    """
    job = api.ask("create-backup", Job, body=NewBackup(name=name))
    return finish(api, job, background=background, as_json=as_json)


@command.command("list", short_help="List complete backups.")
@page_options
@api_options
@json_option
def list_backups(as_json: bool, want: ListRange, api: Api) -> None:
    """List complete backups and their folders.

    \b
    Examples:
      penstock backup list
      penstock backup list --json | jq -r .folder
    """
    found = pages(api, "backups", Page[Backup], query=PageQuery(), want=want)
    row = lambda each: (each.name, when(each.created_at), each.position, amount(each.bytes), each.folder)  # noqa: E731
    show_pages(found, COLUMNS, row, as_json=as_json, nothing="there are no backups")
