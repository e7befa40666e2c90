"""Jobs: work on many messages, or a backup, in the background. Each runs in small steps and can be cancelled between.

A job is stored before it starts, and its progress after every few steps. A job cut off by a restart is *interrupted*
and can be resumed: messages that were processed have left their place, so none is processed twice.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrokerFigures, JobStepDone
from penstock.admin.audit import Audit
from penstock.admin.journal_view import JournalView
from penstock.admin.mirror import Mirror
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.resources.common import resource_of
from penstock.admin.resources.messages import Job, JobKind, JobState, Search
from penstock.admin.search import SearchTerms, search_messages
from penstock.admin.store import StateFile
from penstock.admin.times import to_datetime, to_datetime_or_none
from penstock.admin.watched_broker import WatchedBroker

#: After all messages of a priority.
LAST = 2**63 - 1
#: Messages per step: a few milliseconds of the broker's time.
STEPS = {"redrive": 1000, "move": 250, "delete": 250}
#: Jobs that run at a time, and jobs that are stored.
AT_A_TIME = 4
MOST_JOBS = 1_000
#: Seconds between two writes of a job's progress.
SAVE_EVERY = 0.5
#: Seconds between two steps, so that the broker's clients come first.
PAUSE = 0.002


class JobRecord(msgspec.Struct, kw_only=True):
    """A job as it is stored."""

    id: str
    kind: JobKind
    queue: str = ""
    state_of: str = "dead"
    target: str = ""
    ids: list[str] = []
    search: Search | None = None
    rate: float = 0.0
    states: list[str] = []
    name: str = ""
    by: str = ""
    created_at: int = 0
    #: The journal's end at the start of the job: later messages are left alone.
    until: int = 0
    status: JobState = "waiting"
    ended_at: int = 0
    done: int = 0
    total: int | None = None
    skipped: int = 0
    detail: str = ""
    #: How many of ``ids`` were processed, and the cursor of the search.
    at: int = 0
    after: tuple[int, ...] = ()

    def to_resource(self) -> Job:
        """The job in the API."""
        created, ended = to_datetime(self.created_at), to_datetime_or_none(self.ended_at)
        return resource_of(Job, self, state=self.status, created_at=created, ended_at=ended)


Runner = Callable[[JobRecord, Callable[[], Awaitable[None]]], Awaitable[None]]


class Jobs:
    """Runs and stores the jobs. ``backup`` runs jobs of that kind; ``report`` receives unexpected exceptions."""

    def __init__(
        self,
        broker: WatchedBroker,
        mirror: Mirror,
        journal: JournalView,
        store: StateFile,
        audit: Audit,
        backup: Runner,
        report: Callable[[BaseException], None],
    ) -> None:
        self._broker = broker
        self._mirror = mirror
        self._journal = journal
        self._store = store
        self._audit = audit
        self._backup = backup
        self._report = report
        self._turn = asyncio.Semaphore(AT_A_TIME)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._saved_at: dict[str, float] = {}
        #: Jobs that wait between two steps.
        self._pausing: set[str] = set()
        self.records: dict[str, JobRecord] = self._load()

    def _load(self) -> dict[str, JobRecord]:
        found: dict[str, JobRecord] = {}
        for (body,) in self._store.rows("select body from jobs order by number"):
            record = msgspec.json.decode(body, type=JobRecord)
            if record.status in ("waiting", "running"):
                record.status, record.detail = (
                    "interrupted",
                    "the broker was stopped in the meantime; resume to continue",
                )
            found[record.id] = record
        return found

    # Requests

    async def add(self, record: JobRecord) -> Job:
        """Start a new job. Raises ApiProblem if there are too many."""
        figures = await self._broker.ask(requests.Figures(), BrokerFigures)
        record.id, record.created_at, record.until = secrets.token_hex(8), _now(), figures.committed
        self._drop_oldest()
        self.records[record.id] = record
        self._begin(record)
        return record.to_resource()

    def cancel(self, record: JobRecord) -> Job:
        """Stop a job between two steps. Raises ApiProblem if it has ended."""
        if record.status not in ("waiting", "running"):
            fail("conflict", f"the job is {record.status} and can't be cancelled")
        record.status = "cancelled"
        task = self._tasks.get(record.id)
        if task is not None and (record.kind == "backup" or record.id in self._pausing):
            task.cancel()  # otherwise the broker finishes the current step
        self._save(record, ended=True)
        return record.to_resource()

    def resume(self, record: JobRecord) -> Job:
        """Continue a job. Raises ApiProblem if its state does not allow that."""
        if record.status not in ("cancelled", "interrupted", "failed"):
            fail("conflict", f"the job is {record.status} and can't be resumed")
        if record.id in self._tasks:
            fail("conflict", "the job is about to stop; try again in a moment")
        record.status, record.detail, record.ended_at = "waiting", "", 0
        self._begin(record)
        return record.to_resource()

    def stop(self) -> None:
        """Cancel all jobs: the process ends."""
        for task in self._tasks.values():
            task.cancel()

    def _drop_oldest(self) -> None:
        ended = [record for record in self.records.values() if record.status not in ("waiting", "running")]
        while len(self.records) >= MOST_JOBS:
            if not ended:
                fail("conflict", f"{MOST_JOBS} jobs are running or waiting; wait or cancel some")
            oldest = ended.pop(0)
            del self.records[oldest.id]
            self._store.write("delete from jobs where id = ?", (oldest.id,))

    def _begin(self, record: JobRecord) -> None:
        self._save(record)
        self._tasks[record.id] = asyncio.create_task(self._run(record))

    # Running

    async def _run(self, record: JobRecord) -> None:
        try:
            async with self._turn:
                if record.status == "waiting":
                    record.status = "running"
                    self._save(record)
                    await self._work(record)
                    if record.status == "running":
                        record.status = "done"
        except ApiProblem as error:
            interrupted = error.problem.code == "away"
            record.status = "interrupted" if interrupted else "failed"
            record.detail = error.problem.detail
        except asyncio.CancelledError:
            if record.status == "running":
                record.status = "interrupted"
        except OSError as error:
            record.status, record.detail = "failed", str(error)
        except Exception as error:
            self._report(error)
            record.status = "failed"
            record.detail = "an internal error, which the broker's log describes; resume to continue"
        finally:
            del self._tasks[record.id]
            self._mirror.invalidate()
            self._save(record, ended=True)
            target = record.queue or record.name
            self._audit.record_job(record.by, record.kind, target, record.status, record.to_resource())

    async def _work(self, record: JobRecord) -> None:
        if record.kind == "backup":
            await self._backup(record, lambda: self._pace(record, 0))
        elif record.kind == "purge":
            await self._purge(record)
        elif record.ids:
            await self._work_on_ids(record)
        elif record.search is not None:
            await self._work_on_matches(record, SearchTerms.parse(record.search))
        else:
            await self._work_on_all(record, record.kind, record.state_of)

    async def _purge(self, record: JobRecord) -> None:
        """State by state. Messages that arrive or change their state in the meantime are left alone."""
        for state in record.states:
            await self._work_on_all(record, "delete", state)

    async def _work_on_all(self, record: JobRecord, kind: str, state: str) -> None:
        record.after = ()  # from the front: a resumed job finds only what is left
        while record.status == "running":
            worked = await self._step(record, kind, state, None)
            record.after = worked.after
            await self._pace(record, worked.done)
            if not worked.after:
                break

    async def _work_on_ids(self, record: JobRecord) -> None:
        record.total = len(record.ids)
        while record.at < len(record.ids) and record.status == "running":
            part = record.ids[record.at : record.at + self._size(record)]
            questions = [requests.FindPosition(id=bytes.fromhex(each)) for each in part]
            positions = [await self._broker.ask(each, int) for each in questions]
            worked = await self._step(record, record.kind, record.state_of, [each for each in positions if each])
            record.at += len(part)
            record.skipped += len(part) - worked.done
            await self._pace(record, worked.done)

    async def _work_on_matches(self, record: JobRecord, wanted: SearchTerms) -> None:
        await self._mirror.ensure_loaded()
        namespace, _, name = record.queue.partition("/")
        while record.status == "running":
            asked = requests.Browse(namespace=namespace, name=name, state=record.state_of, after=record.after)  # type: ignore[arg-type]
            found = await search_messages(
                self._broker, self._journal, asked, wanted, self._size(record), self._mirror.identity
            )
            old = [item.position for item in found.items if item.rank < record.until or record.state_of == "delayed"]
            worked = await self._step(record, record.kind, record.state_of, old)
            record.skipped += len(old) - worked.done
            record.after = found.after
            await self._pace(record, worked.done)
            if not found.after:
                break
            if found.items and not old:  # later ones are newer still, except ready ones of lower priorities
                if record.state_of != "ready":
                    break
                record.after = (found.items[-1].priority, LAST, LAST)

    async def _step(self, record: JobRecord, kind: str, state: str, positions: list[int] | None) -> JobStepDone:
        if positions is not None and not positions:
            return JobStepDone(done=0)
        namespace, _, name = record.queue.partition("/")
        target = tuple(record.target.split("/", 1)) if record.target else None
        asked = requests.JobStep(
            kind=kind,  # type: ignore[arg-type]
            namespace=namespace,
            name=name,
            state=state,  # type: ignore[arg-type]
            target=target,  # type: ignore[arg-type]
            positions=positions,
            after=record.after if positions is None else (),
            until=record.until,
            limit=self._size(record),
            by=record.by,
        )
        worked = await self._broker.ask(asked, JobStepDone)
        record.done += worked.done
        return worked

    def _size(self, record: JobRecord) -> int:
        """Messages of the next step: with a rate, at most one second's."""
        most = STEPS.get(record.kind, STEPS["delete"])
        return max(1, min(most, int(record.rate))) if record.rate else most

    async def _pace(self, record: JobRecord, done: int) -> None:
        """Wait according to the rate, and save the progress from time to time."""
        if time.monotonic() - self._saved_at.get(record.id, 0.0) >= SAVE_EVERY:
            self._save(record)
        self._pausing.add(record.id)
        try:
            await asyncio.sleep(done / record.rate if record.rate and done else PAUSE)
        finally:
            self._pausing.discard(record.id)

    def _save(self, record: JobRecord, *, ended: bool = False) -> None:
        if ended:
            record.ended_at = _now()
            self._saved_at.pop(record.id, None)
        else:
            self._saved_at[record.id] = time.monotonic()
        self._store.write(
            "insert or replace into jobs (id, number, body) values (?, ?, ?)",
            (record.id, record.created_at, msgspec.json.encode(record)),
        )


def _now() -> int:
    return int(time.time() * 1e6)
