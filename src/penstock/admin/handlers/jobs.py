"""Jobs, purges and backups."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from penstock.admin import admin_requests as requests
from penstock.admin.access import Caller
from penstock.admin.admin_requests import QueueFull
from penstock.admin.backups import Backups
from penstock.admin.http import Answer, Request
from penstock.admin.jobs import JobRecord, Jobs
from penstock.admin.pages import cursor_of, page, values_of
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.resources.access import Role
from penstock.admin.resources.common import Page
from penstock.admin.resources.messages import Job, JobsQuery, NewJob
from penstock.admin.resources.operations import Backup
from penstock.admin.resources.queues import Purge
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.policy import rules_of


class JobHandlers:
    """Handles what is about jobs."""

    def __init__(self, broker: WatchedBroker, jobs: Jobs, backups: Backups) -> None:
        self._broker = broker
        self._jobs = jobs
        self._backups = backups
        self.handlers: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "jobs": self.jobs,
            "job": self.job,
            "create-job": self.create,
            "cancel-job": self.cancel,
            "resume-job": self.resume,
            "purge-queue": self.purge,
            "backups": self.backups,
            "create-backup": self.back_up,
        }

    async def jobs(self, request: Request) -> Answer:
        """The newest first, of what the caller may see."""
        query: JobsQuery = request.query
        after: tuple[int, str] | None = values_of(query.cursor, tuple[int, str])
        seen = [
            record
            for record in self._jobs.records.values()
            if (query.state is None or record.status == query.state) and may(request.caller, "view", record)
        ]
        seen.sort(key=lambda record: (record.created_at, record.id), reverse=True)
        rest = [record for record in seen if after is None or (record.created_at, record.id) < after]
        limit = query.limit
        shown = [record.told() for record in rest[:limit]]
        following = cursor_of(rest[limit - 1].created_at, rest[limit - 1].id) if len(rest) > limit else None
        return Answer(Page[Job](items=shown, next=following, total=len(seen)))

    async def job(self, request: Request) -> Answer:
        """One."""
        return Answer(self._record(request, "view").told())

    async def create(self, request: Request) -> Answer:
        """Begin one."""
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
        return Answer(job, target=body.queue, after=body)

    async def _check_queue(self, full_name: str, field: str) -> None:
        namespace, _, name = full_name.partition("/")
        try:
            await self._broker.ask(requests.QueueNamed(namespace=namespace, name=name), QueueFull)
        except ApiProblem as error:
            if error.problem.code == "not-found":
                fail("not-found", error.problem.detail, field=field)
            raise

    async def cancel(self, request: Request) -> Answer:
        """Stop it between two steps."""
        record = self._record(request, "operate")
        return Answer(self._jobs.cancel(record), target=record.queue or record.name)

    async def resume(self, request: Request) -> Answer:
        """Go on."""
        record = self._record(request, "operate")
        return Answer(self._jobs.resume(record), target=record.queue or record.name)

    def _record(self, request: Request, role: Role) -> JobRecord:
        record = self._jobs.records.get(request.places["id"])
        if record is None or not may(request.caller, role, record):
            fail("not-found", "there is no such job", field="path.id")
        return record

    async def purge(self, request: Request) -> Answer:
        """All messages of some states."""
        body: Purge = request.body
        if body.confirm != request.full_name:
            text = f"confirm is the full name of the queue, {request.full_name}, not {body.confirm!r}"
            fail("bad-request", text, field="body.confirm")
        asked = requests.QueueNamed(namespace=request.namespace, name=request.queue)
        found = await self._broker.ask(asked, QueueFull)
        states: list[str] = [str(state) for state in dict.fromkeys(body.states)]
        total = sum(int(getattr(found.row, state)) for state in states)
        record = JobRecord(
            id="", kind="purge", queue=request.full_name, states=states, total=total, by=request.caller.by
        )
        job = await self._jobs.add(record)
        return Answer(job, before={state: getattr(found.row, state) for state in states}, after=rules_of(found.policy))

    # Backups

    async def backups(self, request: Request) -> Answer:
        """Those that are complete, by name."""
        found = self._backups.listed()
        after: tuple[str] | None = values_of(request.query.cursor, tuple[str])
        rest = [each for each in found if after is None or each.name > after[0]]
        limit = request.query.limit
        return Answer(page(rest[: limit + 1], limit, lambda each: cursor_of(each.name), Page[Backup], len(found)))

    async def back_up(self, request: Request) -> Answer:
        """Copy the journal."""
        name = request.body.name or time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self._backups.check(name)
        record = JobRecord(id="", kind="backup", name=name, by=request.caller.by)
        return Answer(await self._jobs.add(record), target=os.path.join(self._backups.folder, name))


def may(caller: Caller, role: Role, record: JobRecord) -> bool:
    """Whether a caller may see, or steer, a job."""
    if record.kind == "backup":
        return caller.may_everywhere("view" if role == "view" else "admin")
    namespaces = [each.partition("/") for each in (record.queue, record.target) if each]
    return all(caller.may(role, namespace, name) for namespace, _, name in namespaces)


def _check_right(caller: Caller, full_name: str, field: str) -> None:
    """Before it is looked whether the queue is there: who may not use it is not told."""
    namespace, slash, name = full_name.partition("/")
    if not (namespace and slash and name):
        fail("bad-request", f"a queue is named namespace/queue, as in default/jobs, not {full_name!r}", field=field)
    if not caller.may("operate", namespace, name):
        fail("denied", f"this needs the right to operate the queue {full_name}", field=field)


def _check_kind(body: NewJob) -> None:
    if body.kind == "redrive" and body.state != "dead":
        fail("bad-request", "redrive is of dead letters; to send others elsewhere, move them", field="body.state")
    if body.kind == "move" and not body.target:
        fail("bad-request", "a move has a target queue", field="body.target")
    if body.kind == "move" and body.target == body.queue and body.state != "dead":
        fail("bad-request", "the target is another queue", field="body.target")
    if body.kind == "delete" and body.target:
        fail("bad-request", "what is deleted goes nowhere: leave the target out", field="body.target")
    if body.ids and body.search is not None:
        fail("bad-request", "messages are chosen by their IDs or by a search, not by both", field="body.search")
