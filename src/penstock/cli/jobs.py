"""``penstock jobs``: background jobs of the broker."""

from __future__ import annotations

from typing import Any, get_args

import click
import msgspec

from penstock.admin.resources.common import Page
from penstock.admin.resources.messages import Job, JobsQuery, JobState
from penstock.cli.api import Api
from penstock.cli.api_options import api_options
from penstock.cli.job_progress import background_option, describe, finish
from penstock.cli.output import age, json_option, note, print_json, when
from penstock.cli.pages import ListRange, page_options, pages, show_one, show_pages

COLUMNS = ("ID", "KIND", "STATE", "QUEUE", "TO", "DONE", "TOTAL", "BY", "BEGUN", "DETAIL")


@click.group("jobs")
def command() -> None:
    """Show, cancel and resume background jobs: redriving, moving, deleting, purging and backups.

    \b
    Examples:
      penstock jobs list
      penstock jobs show 7f3a --follow
      penstock jobs cancel 7f3a
      penstock jobs resume 7f3a

    Exit codes: 0 done, 1 the broker is unreachable or the job failed; 2 wrong use, 3 refused, 4 no such job.
    """


@command.command("list", short_help="Show jobs, the newest first.")
@click.option("--state", type=click.Choice(get_args(JobState)), help="Only in this state.")
@page_options
@api_options
@json_option
def list_jobs(as_json: bool, state: Any, want: ListRange, api: Api) -> None:
    """Show jobs, the newest first.

    \b
    Examples:
      penstock jobs list
      penstock jobs list --state running --json
    """
    found = pages(api, "jobs", Page[Job], query=JobsQuery(state=state), want=want)
    show_pages(found, COLUMNS, _row, as_json=as_json, nothing="there are no jobs")


@command.command("show", short_help="Show one job, or wait for it to end.")
@click.argument("job", metavar="ID")
@click.option("--follow", is_flag=True, help="Wait for it to end, with a progress bar on a terminal.")
@api_options
@json_option
def show(job: str, follow: bool, as_json: bool, api: Api) -> int | None:
    """Show one job, or wait for it to end. On a terminal, Ctrl-C asks whether to cancel the job too; elsewhere it does.

    \b
    Examples:
      penstock jobs show 7f3a
      penstock jobs show 7f3a --follow
    """
    found = api.ask("job", Job, job)
    if follow:
        return finish(api, found, background=False, as_json=as_json)
    rows = [*zip((name.lower() for name in COLUMNS), _row(found), strict=True), ("ended", when(found.ended_at))]
    show_one(found, rows, as_json=as_json)
    return None


@command.command("cancel", short_help="Stop a job, keeping what it has done.")
@click.argument("job", metavar="ID")
@api_options
@json_option
def cancel(job: str, as_json: bool, api: Api) -> None:
    """Stop a job. What it has done stays done; `penstock jobs resume` continues with the rest.

    \b
    Examples:
      penstock jobs cancel 7f3a
    """
    found = api.ask("cancel-job", Job, job)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        note(describe(found))


@command.command("resume", short_help="Continue a job that was cancelled or interrupted.")
@click.argument("job", metavar="ID")
@background_option
@api_options
@json_option
def resume(job: str, background: bool, as_json: bool, api: Api) -> int:
    """Continue a job that was cancelled, or interrupted by a restart of the broker.

    \b
    Examples:
      penstock jobs resume 7f3a
      penstock jobs resume 7f3a --background
    """
    return finish(api, api.ask("resume-job", Job, job), background=background, as_json=as_json)


def _row(job: Job) -> tuple[object, ...]:
    total = "-" if job.total is None else job.total
    where = (job.id, job.kind, job.state, job.queue or "-", job.target or "-")
    return (*where, job.done, total, job.by, f"{age(job.created_at)} ago", job.detail or "-")
