"""Waiting for a job of the broker: a progress bar, its outcome, and Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click
import msgspec

from penstock.admin.resources.messages import Job
from penstock.cli.api import Api, ApiError
from penstock.cli.displays import counting, measuring
from penstock.cli.errors import FAILED, INTERRUPTED, OK
from penstock.cli.output import amount, note, print_json, say

#: Seconds between two polls: the first pause, and the longest.
FIRST_LOOK = 0.05
LOOK_EVERY = 0.5
#: States in which a job does not continue by itself.
ENDED = ("cancelled", "interrupted", "failed", "done")

background_option = click.option("--background", is_flag=True, help="Start the job, and do not wait for it to end.")


def finish(api: Api, job: Job, *, background: bool, as_json: bool) -> int:
    """Wait for a job and report the outcome. Returns the exit code."""
    if not background:
        try:
            job = _watch(api, job)
        except KeyboardInterrupt:
            return _interrupted(api, job)
    if as_json:
        print_json(msgspec.to_builtins(job))
    else:
        say(describe(job))
        _hint(job)
    return OK if job.state in ("done", "waiting", "running") else FAILED


def describe(job: Job) -> str:
    """A job in a line."""
    of = f" of {_count(job, job.total)}" if job.total is not None and job.total != job.done else ""
    skipped = f", {job.skipped} passed over" if job.skipped else ""
    detail = f": {job.detail}" if job.detail else ""
    return f"{job.kind} {job.queue or ''}".rstrip() + f" {job.state}: {_count(job, job.done)}{of}{skipped}{detail}"


def _count(job: Job, number: int) -> str:
    return amount(number) if job.kind == "backup" else f"{number} messages"


def _hint(job: Job) -> None:
    if job.state in ("waiting", "running"):
        note(f"penstock jobs show {job.id} --follow shows its progress, penstock jobs cancel {job.id} stops it")
    elif job.state in ("cancelled", "interrupted"):
        note(f"penstock jobs resume {job.id} continues it")


def _states(api: Api, job: Job) -> Iterator[Job]:
    pause = FIRST_LOOK
    while job.state not in ENDED:
        time.sleep(pause)
        pause = min(pause * 2, LOOK_EVERY)
        job = api.ask("job", Job, job.id)
        yield job


def _watch(api: Api, job: Job) -> Job:
    latest = job
    if job.kind == "backup":
        with measuring("backup", job.total) as advance:
            for now in _states(api, job):
                advance(now.done - latest.done)
                latest = now
        return latest
    with counting() as bar:
        task = bar.add_task(job.kind, total=job.total, completed=job.done, rate="")
        for latest in _states(api, job):
            bar.update(task, total=latest.total, completed=latest.done)
    return latest


def _interrupted(api: Api, job: Job) -> int:
    """Handle Ctrl-C: on a terminal, ask whether to cancel the job as well; elsewhere, cancel it."""
    asked = sys.stdin.isatty() and sys.stderr.isatty()
    if asked and not click.confirm("Cancel the job as well? What is done stays done", default=True, err=True):
        note(f"it continues: penstock jobs show {job.id} --follow")
        return INTERRUPTED
    try:
        note(describe(api.ask("cancel-job", Job, job.id)))
        note(f"penstock jobs resume {job.id} continues it")
    except ApiError as error:  # it has ended just now
        note(str(error))
    return INTERRUPTED
