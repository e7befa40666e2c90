"""Jobs, purges and backups."""

from __future__ import annotations

import os
import time

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import QueueDetails
from penstock.admin.backups import Backups
from penstock.admin.gatekeeper import Caller
from penstock.admin.http import Request, Response
from penstock.admin.jobs import JobRecord, Jobs
from penstock.admin.pages import slice_page
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.resources.access import Role
from penstock.admin.resources.common import Page
from penstock.admin.resources.messages import Job, JobsQuery, NewJob
from penstock.admin.resources.operations import Backup
from penstock.admin.resources.queues import Purge
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.policy import rules_of


class JobHandlers:
    """Handles requests about jobs and backups."""

    def __init__(self, broker: WatchedBroker, jobs: Jobs, backups: Backups) -> None:
        self._broker = broker
        self._jobs = jobs
        self._backups = backups

    async def jobs(self, request: Request) -> Response:
        """Newest first, as far as the caller may see them."""
        query: JobsQuery = request.query
        found = [
            record
            for record in self._jobs.records.values()
            if (query.state is None or record.status == query.state) and may(request.caller, "view", record)
        ]
        found.sort(key=_by_age, reverse=True)
        shown, following = slice_page(found, query, _by_age, tuple[int, str], descending=True)
        items = [record.to_resource() for record in shown]
        return Response(Page[Job](items=items, next=following, total=len(found)))

    async def job(self, request: Request) -> Response:
        """One job."""
        return Response(self._record(request, "view").to_resource())

    async def create_job(self, request: Request) -> Response:
        """Start a job."""
        body: NewJob = request.body
        _check_kind(body)
        named = {"body.queue": body.queue} | ({"body.target": body.target} if body.target else {})
        for field, full_name in named.items():
            _check_right(request.caller, full_name, field)
        for field, full_name in named.items():
            await self._check_queue(full_name, field)
        record = JobRecord(
            id="",
            kind=body.kind,
            queue=body.queue,
            state_of=body.state,
            target=body.target if body.target != body.queue else "",
            ids=body.ids,
            search=body.search,
            rate=body.rate,
            by=request.caller.by,
        )
        job = await self._jobs.add(record)
        return Response(job, target=body.queue, after=body)

    async def _check_queue(self, full_name: str, field: str) -> None:
        namespace, _, name = full_name.partition("/")
        try:
            await self._broker.ask(requests.DescribeQueue(namespace=namespace, name=name), QueueDetails)
        except ApiProblem as error:
            if error.problem.code == "not-found":
                fail("not-found", error.problem.detail, field=field)
            raise

    async def cancel_job(self, request: Request) -> Response:
        """Stop a job between two steps."""
        record = self._record(request, "operate")
        return Response(self._jobs.cancel(record), target=record.queue or record.name)

    async def resume_job(self, request: Request) -> Response:
        """Continue a job."""
        record = self._record(request, "operate")
        return Response(self._jobs.resume(record), target=record.queue or record.name)

    def _record(self, request: Request, role: Role) -> JobRecord:
        record = self._jobs.records.get(request.path_params["id"])
        if record is None or not may(request.caller, role, record):
            fail("not-found", "there is no such job", field="path.id")
        return record

    async def purge_queue(self, request: Request) -> Response:
        """Remove all messages in some states."""
        body: Purge = request.body
        if body.confirm != request.full_name:
            text = f"confirm must be the full name of the queue, {request.full_name}, not {body.confirm!r}"
            fail("bad-request", text, field="body.confirm")
        asked = requests.DescribeQueue(namespace=request.namespace, name=request.queue)
        found = await self._broker.ask(asked, QueueDetails)
        states: list[str] = [str(state) for state in dict.fromkeys(body.states)]
        total = sum(int(getattr(found.row, state)) for state in states)
        record = JobRecord(
            id="", kind="purge", queue=request.full_name, states=states, total=total, by=request.caller.by
        )
        job = await self._jobs.add(record)
        return Response(
            job, before={state: getattr(found.row, state) for state in states}, after=rules_of(found.policy)
        )

    # Backups

    async def backups(self, request: Request) -> Response:
        """Complete backups, by name."""
        found = self._backups.complete()
        shown, following = slice_page(found, request.query, lambda each: (each.name,), tuple[str])
        return Response(Page[Backup](items=shown, next=following, total=len(found)))

    async def create_backup(self, request: Request) -> Response:
        """Copy the journal."""
        name = request.body.name or time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self._backups.check(name)
        record = JobRecord(id="", kind="backup", name=name, by=request.caller.by)
        return Response(await self._jobs.add(record), target=os.path.join(self._backups.folder, name))


def _by_age(record: JobRecord) -> tuple[int, str]:
    return record.created_at, record.id


def may(caller: Caller, role: Role, record: JobRecord) -> bool:
    """Whether a caller may view, or operate, a job."""
    if record.kind == "backup":
        return caller.may_everywhere("view" if role == "view" else "admin")
    namespaces = [each.partition("/") for each in (record.queue, record.target) if each]
    return all(caller.may(role, namespace, name) for namespace, _, name in namespaces)


def _check_right(caller: Caller, full_name: str, field: str) -> None:
    """Checked before the queue is looked up, so that the response does not reveal whether it exists."""
    namespace, slash, name = full_name.partition("/")
    if not (namespace and slash and name):
        fail("bad-request", f"a queue is named namespace/queue, as in default/jobs, not {full_name!r}", field=field)
    if not caller.may("operate", namespace, name):
        fail("denied", f"this needs the right to operate the queue {full_name}", field=field)


def _check_kind(body: NewJob) -> None:
    if body.kind == "redrive" and body.state != "dead":
        fail("bad-request", "redrive works on dead letters; move other messages instead", field="body.state")
    if body.kind == "move" and not body.target:
        fail("bad-request", "a move needs a target queue", field="body.target")
    if body.kind == "move" and body.target == body.queue and body.state != "dead":
        fail("bad-request", "the target must be another queue", field="body.target")
    if body.kind == "delete" and body.target:
        fail("bad-request", "a delete has no target; omit it", field="body.target")
    if body.ids and body.search is not None:
        fail("bad-request", "select messages by IDs or by a search, not by both", field="body.search")
