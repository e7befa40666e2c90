"""Jobs: work on many messages, or a backup, in the background. Each goes in small steps, and can be cancelled between.

What a job is to do is written down before it begins, and how far it is after every few steps. A job that was cut off is
*interrupted*, and goes on where it was when it is resumed: messages that are done are not there any more, so none is
done twice.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrokerFigures, Worked
from penstock.admin.audit import Audit
from penstock.admin.journal import JournalView
from penstock.admin.mirror import Mirror
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.resources.messages import Job, JobKind, JobState, Search
from penstock.admin.search import SearchTerms, searched
from penstock.admin.store import StateFile
from penstock.admin.times import moment, moment_or_none
from penstock.admin.watched_broker import WatchedBroker

#: Behind all messages of a priority.
LAST = 2**63 - 1
#: Messages of one step: a few milliseconds of the broker's time.
STEPS = {"redrive": 1000, "move": 250, "delete": 250}
#: Jobs that run at a time; others wait. Jobs that are kept.
AT_A_TIME = 4
MOST_JOBS = 1_000
#: Seconds between two notes of how far a job is.
NOTE_EVERY = 0.5
#: Seconds between two steps, so that the broker's clients come first.
PAUSE = 0.002


class JobRecord(msgspec.Struct, kw_only=True):
    """A job as it is kept."""

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
    #: Messages that came later are left alone.
    until: int = 0
    status: JobState = "waiting"
    ended_at: int = 0
    done: int = 0
    total: int | None = None
    skipped: int = 0
    detail: str = ""
    #: How many of ``ids`` were looked at, and where the search goes on.
    at: int = 0
    after: tuple[int, ...] = ()

    def told(self) -> Job:
        """For the API."""
        return Job(
            id=self.id,
            kind=self.kind,
            state=self.status,
            queue=self.queue,
            target=self.target,
            by=self.by,
            created_at=moment(self.created_at),
            ended_at=moment_or_none(self.ended_at),
            done=self.done,
            total=self.total,
            skipped=self.skipped,
            rate=self.rate,
            detail=self.detail,
        )


Runner = Callable[[JobRecord, Callable[[], Awaitable[None]]], Awaitable[None]]


class Jobs:
    """Runs them, and remembers them. ``backup`` is what a job of that kind does, ``report`` is told of faults."""

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
        self._noted: dict[str, float] = {}
        #: Those that wait between two steps.
        self._pausing: set[str] = set()
        self.records: dict[str, JobRecord] = self._load()
        #: Counts whatever happens to any job, for who wants to be told.
        self.moved = 0

    def _load(self) -> dict[str, JobRecord]:
        found: dict[str, JobRecord] = {}
        for (body,) in self._store.rows("select body from jobs order by number"):
            record = msgspec.json.decode(body, type=JobRecord)
            if record.status in ("waiting", "running"):
                record.status, record.detail = "interrupted", "the broker was stopped meanwhile: resume it to go on"
            found[record.id] = record
        return found

    # What can be asked for

    async def add(self, record: JobRecord) -> Job:
        """A new one. Raises ApiProblem while there are too many."""
        figures = await self._broker.ask(requests.Figures(), BrokerFigures)
        record.id, record.created_at, record.until = secrets.token_hex(8), _now(), figures.committed
        self._make_room()
        self.records[record.id] = record
        self._begin(record)
        return record.told()

    def cancel(self, record: JobRecord) -> Job:
        """Between two steps. Raises ApiProblem for one that has ended."""
        if record.status not in ("waiting", "running"):
            fail("conflict", f"the job is {record.status}: there is nothing to cancel")
        record.status = "cancelled"
        task = self._tasks.get(record.id)
        if task is not None and (record.kind == "backup" or record.id in self._pausing):
            task.cancel()  # a step that the broker works on is waited for
        self._note(record, ended=True)
        return record.told()

    def resume(self, record: JobRecord) -> Job:
        """Go on. Raises ApiProblem for one that can't."""
        if record.status not in ("cancelled", "interrupted", "failed"):
            fail("conflict", f"the job is {record.status}: there is nothing to resume")
        if record.id in self._tasks:
            fail("conflict", "the job is about to end: try again in a moment")
        record.status, record.detail, record.ended_at = "waiting", "", 0
        self._begin(record)
        return record.told()

    def stop(self) -> None:
        """The process ends."""
        for task in self._tasks.values():
            task.cancel()

    def _make_room(self) -> None:
        over = [record for record in self.records.values() if record.status not in ("waiting", "running")]
        while len(self.records) >= MOST_JOBS:
            if not over:
                fail("conflict", f"there are {MOST_JOBS} jobs that have not ended: wait, or cancel some")
            oldest = over.pop(0)
            del self.records[oldest.id]
            self._store.write("delete from jobs where id = ?", (oldest.id,))

    def _begin(self, record: JobRecord) -> None:
        self._note(record)
        self._tasks[record.id] = asyncio.create_task(self._run(record))

    # Running

    async def _run(self, record: JobRecord) -> None:
        try:
            async with self._turn:
                if record.status == "waiting":
                    record.status = "running"
                    self._note(record)
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
            record.status, record.detail = (
                "failed",
                "a fault of the broker, which its log describes: resume to go on",
            )
        finally:
            del self._tasks[record.id]
            self._mirror.outdate()
            self._note(record, ended=True)
            self._audit.job(record.by, record.kind, record.queue or record.name, record.status, record.told())

    async def _work(self, record: JobRecord) -> None:
        if record.kind == "backup":
            await self._backup(record, lambda: self._pace(record, 0))
        elif record.kind == "purge":
            await self._purge(record)
        elif record.ids:
            await self._chosen(record)
        elif record.search is not None:
            await self._found(record, SearchTerms.of(record.search))
        else:
            await self._all(record, record.kind, record.state_of)

    async def _purge(self, record: JobRecord) -> None:
        """State by state: messages that come meanwhile, or change their state, are left alone."""
        for state in record.states:
            await self._all(record, "delete", state)

    async def _all(self, record: JobRecord, kind: str, state: str) -> None:
        record.after = ()  # from the front again: what was done before is not there any more
        while record.status == "running":
            worked = await self._step(record, kind, state, None)
            record.after = worked.after
            await self._pace(record, worked.done)
            if not worked.after:
                break

    async def _chosen(self, record: JobRecord) -> None:
        record.total = len(record.ids)
        while record.at < len(record.ids) and record.status == "running":
            part = record.ids[record.at : record.at + self._size(record)]
            positions = [await self._position(bytes.fromhex(each)) for each in part]
            worked = await self._step(record, record.kind, record.state_of, [each for each in positions if each])
            record.at += len(part)
            record.skipped += len(part) - worked.done
            await self._pace(record, worked.done)

    async def _found(self, record: JobRecord, wanted: SearchTerms) -> None:
        await self._mirror.known()
        namespace, _, name = record.queue.partition("/")
        while record.status == "running":
            asked = requests.Browse(namespace=namespace, name=name, state=record.state_of, after=record.after)  # type: ignore[arg-type]
            found = await searched(
                self._broker, self._journal, asked, wanted, self._size(record), self._mirror.identity
            )
            old = [item.position for item in found.items if item.rank < record.until or record.state_of == "delayed"]
            worked = await self._step(record, record.kind, record.state_of, old)
            record.skipped += len(old) - worked.done
            record.after = found.after
            await self._pace(record, worked.done)
            if not found.after:
                break
            if found.items and not old:  # those behind are newer still, but for ready ones of lower priorities
                if record.state_of != "ready":
                    break
                record.after = (found.items[-1].priority, LAST, LAST)

    async def _step(self, record: JobRecord, kind: str, state: str, positions: list[int] | None) -> Worked:
        if positions is not None and not positions:
            return Worked(done=0)
        namespace, _, name = record.queue.partition("/")
        target = tuple(record.target.split("/", 1)) if record.target else None
        asked = requests.Work(
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
        worked = await self._broker.ask(asked, Worked)
        record.done += worked.done
        return worked

    def _size(self, record: JobRecord) -> int:
        """Messages of the next step: no more than a second's, where there is a rate."""
        most = STEPS.get(record.kind, STEPS["delete"])
        return max(1, min(most, int(record.rate))) if record.rate else most

    async def _pace(self, record: JobRecord, done: int) -> None:
        """Wait as the rate says, and note how far it is now and then."""
        if time.monotonic() - self._noted.get(record.id, 0.0) >= NOTE_EVERY:
            self._note(record)
        self.moved += 1
        self._pausing.add(record.id)
        try:
            await asyncio.sleep(done / record.rate if record.rate and done else PAUSE)
        finally:
            self._pausing.discard(record.id)

    async def _position(self, raw: bytes) -> int:
        return await self._broker.ask(requests.PositionOf(id=raw), int)

    def _note(self, record: JobRecord, *, ended: bool = False) -> None:
        if ended:
            record.ended_at = _now()
            self._noted.pop(record.id, None)
        else:
            self._noted[record.id] = time.monotonic()
        self.moved += 1
        self._store.write(
            "insert or replace into jobs (id, number, body) values (?, ?, ?)",
            (record.id, record.created_at, msgspec.json.encode(record)),
        )


def _now() -> int:
    return int(time.time() * 1e6)
