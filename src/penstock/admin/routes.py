"""Every route of the HTTP API: what it is for, the right it needs, what goes in and what comes out.

The dispatcher, the OpenAPI document, the manual's table and the tests of rights all read this table, so a route that
is not here does not exist, and one that is here is checked.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from penstock.admin.resources import access, messages, operations, peers, queues, sql
from penstock.admin.resources.access import Role
from penstock.admin.resources.common import Code, Done, Page, PageQuery, Sample

API = "/api/v1"

#: Where the role must hold. ``queue`` and ``namespace``: in the one that the path names. ``body``: in the queues that
#: the body names. ``some``: anywhere, and the answer has what is in the caller's patterns. ``all``: everywhere.
#: ``open``: no token is needed. ``known``: any token will do.
Scope = Literal["open", "known", "some", "queue", "namespace", "body", "all"]
Media = Literal["json", "events", "bytes", "text", "metrics", "page"]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Route(NamedTuple):
    """One route. ``answer`` is what a success says; its status is ``status``."""

    name: str
    method: Method
    path: str
    needs: Role | None
    scope: Scope
    about: str
    answer: Any
    query: Any = None
    body: Any = None
    status: int = 200
    #: Problems beside those that every route may have.
    problems: tuple[Code, ...] = ()
    media: Media = "json"
    #: ``If-Match``: the version that is changed must be named, or may be.
    version: Literal["", "required", "optional"] = ""

    @property
    def changes(self) -> bool:
        """Whether it changes something, and is written down in the audit log."""
        return self.method != "GET" and self.name not in ("login", "sql", "sql-export")


_QUEUE = f"{API}/queues/{{namespace}}/{{queue}}"
_MESSAGE = f"{_QUEUE}/messages/{{id}}"

ROUTES: tuple[Route, ...] = (
    # Who am I
    Route("login", "POST", f"{API}/session", None, "open", "Log in with a token: sets the cookie of the console",
          access.Session, body=access.Login, problems=("unauthenticated", "too-many")),
    Route("session", "GET", f"{API}/session", None, "known", "Who the caller is, and what it may do", access.Session),
    Route("logout", "DELETE", f"{API}/session", None, "known", "Log out: the cookie is worth nothing any more", Done),
    # The whole
    Route("overview", "GET", f"{API}/overview", "view", "some", "How the broker is", operations.Overview),
    Route("history", "GET", f"{API}/history", "view", "all", "Rates and backlog of the last minutes, oldest first",
          Page[Sample], query=queues.HistoryQuery),
    Route("stream", "GET", f"{API}/stream", "view", "some",
          "Server-sent events: overview, sample, queue and job, as they change", None,
          query=operations.StreamQuery, media="events"),
    # Namespaces and queues
    Route("namespaces", "GET", f"{API}/namespaces", "view", "some", "The namespaces, by name",
          Page[queues.NamespaceSummary], query=PageQuery),
    Route("create-namespace", "PUT", f"{API}/namespaces/{{namespace}}", "admin", "namespace",
          "Make a namespace; one that exists is left as it is", Done, problems=("conflict",)),
    Route("delete-namespace", "DELETE", f"{API}/namespaces/{{namespace}}", "admin", "namespace",
          "Delete a namespace without queues", Done, problems=("not-found", "conflict")),
    Route("queues", "GET", f"{API}/queues", "view", "some", "Queues with their figures: filtered, sorted, by the page",
          Page[queues.QueueSummary], query=queues.QueuesQuery),
    Route("queue", "GET", _QUEUE, "view", "queue", "One queue; its version is in ETag", queues.QueueDetail,
          problems=("not-found",)),
    Route("create-queue", "PUT", _QUEUE, "admin", "queue", "Make a queue, and its namespace", queues.QueueDetail,
          body=queues.NewQueue, status=201, problems=("conflict",)),
    Route("configure-queue", "PATCH", _QUEUE, "admin", "queue", "Change some rules of a queue", queues.QueueDetail,
          body=queues.RulesChange, problems=("not-found", "stale", "version-required"), version="required"),
    Route("pause-queue", "POST", f"{_QUEUE}/pause", "operate", "queue", "Give no more messages out; publishing goes on",
          queues.QueueDetail, problems=("not-found",)),
    Route("resume-queue", "POST", f"{_QUEUE}/resume", "operate", "queue", "Give messages out again",
          queues.QueueDetail, problems=("not-found",)),
    Route("purge-queue", "POST", f"{_QUEUE}/purge", "operate", "queue",
          "Remove all messages of some states, as a job; those that are out stay", messages.Job, body=queues.Purge,
          status=202, problems=("not-found", "conflict")),
    Route("delete-queue", "DELETE", _QUEUE, "admin", "queue", "Delete a queue that is empty", Done,
          problems=("not-found", "conflict", "stale"), version="optional"),
    # Messages
    Route("messages", "GET", f"{_QUEUE}/messages", "view", "queue",
          "Browse or search the messages of one state. Nothing is taken", messages.MessagePage,
          query=messages.MessagesQuery, problems=("not-found",)),
    Route("message", "GET", _MESSAGE, "view", "queue", "One message with its payload, up to a limit",
          messages.MessageDetail, query=messages.MessageQuery, problems=("not-found",)),
    Route("payload", "GET", f"{_MESSAGE}/payload", "view", "queue", "The whole payload, as a download", None,
          problems=("not-found",), media="bytes"),
    Route("publish", "POST", f"{_QUEUE}/messages", "operate", "queue", "Publish messages; answered when on disk",
          messages.Published, body=messages.Publish, status=201, problems=("not-found", "refused")),
    Route("delete-message", "DELETE", _MESSAGE, "operate", "queue", "Remove one message that nobody has", Done,
          problems=("not-found", "conflict")),
    Route("life", "GET", f"{_MESSAGE}/events", "view", "queue", "Every event of one message, from the journal",
          messages.Life, query=messages.LifeQuery, problems=("not-found",)),
    Route("dead", "GET", f"{API}/dead", "view", "some", "Dead letters by queue and reason", Page[messages.DeadGroup],
          query=messages.DeadQuery),
    # Jobs
    Route("jobs", "GET", f"{API}/jobs", "view", "some", "Jobs, the newest first", Page[messages.Job],
          query=messages.JobsQuery),
    Route("create-job", "POST", f"{API}/jobs", "operate", "body", "Redrive, move or delete many messages",
          messages.Job, body=messages.NewJob, status=202, problems=("not-found", "conflict")),
    Route("job", "GET", f"{API}/jobs/{{id}}", "view", "some", "How far a job is", messages.Job,
          problems=("not-found",)),
    Route("cancel-job", "POST", f"{API}/jobs/{{id}}/cancel", "operate", "some",
          "Stop a job; what is done stays done", messages.Job, problems=("not-found", "conflict")),
    Route("resume-job", "POST", f"{API}/jobs/{{id}}/resume", "operate", "some",
          "Go on with a job that was cancelled or interrupted", messages.Job, problems=("not-found", "conflict")),
    # Peers
    Route("connections", "GET", f"{API}/connections", "view", "all", "Connections of the three protocols",
          Page[peers.ConnectionSummary], query=peers.ConnectionsQuery),
    Route("connection", "GET", f"{API}/connections/{{id}}", "view", "all", "One connection, with what it waits for",
          peers.ConnectionDetail, problems=("not-found",)),
    Route("close-connection", "DELETE", f"{API}/connections/{{id}}", "operate", "all",
          "Close a connection; its messages go back", Done, problems=("not-found",)),
    Route("locks", "GET", f"{API}/locks", "view", "some", "Locked messages, those that end first", Page[peers.Lock],
          query=peers.LocksQuery),
    Route("release-lock", "DELETE", f"{API}/locks/{{id}}", "operate", "some",
          "Release a message that is locked: it goes back to its place", Done, problems=("not-found",)),
    Route("readers", "GET", f"{API}/readers", "view", "all", "Who reads the journal, and how far behind",
          Page[peers.Reader], query=peers.NamesQuery),
    Route("forget-reader", "DELETE", f"{API}/readers/{{name}}", "operate", "all",
          "Drop a reader: its pin and its leases", Done, problems=("not-found",)),
    Route("leases", "GET", f"{API}/leases", "view", "all", "What readers have leased", Page[peers.Lease],
          query=PageQuery),
    Route("writers", "GET", f"{API}/writers", "view", "all", "Who writes numbered chunks", Page[peers.Writer],
          query=peers.NamesQuery),
    Route("forget-writer", "DELETE", f"{API}/writers/{{name}}", "operate", "all",
          "Forget a writer: its chunks would be taken again", Done, problems=("not-found",)),
    Route("pipelines", "GET", f"{API}/pipelines", "view", "all", "Pipelines below the folder of the lake",
          Page[peers.Pipeline], query=PageQuery),
    Route("report", "GET", f"{API}/pipelines/{{name}}/report", "view", "all", "The insight report, as a page", None,
          problems=("not-found",), media="page"),
    # The journal and the broker
    Route("journal", "GET", f"{API}/journal", "view", "all", "The journal: range, size, retention, disk",
          operations.JournalStatus),
    Route("segments", "GET", f"{API}/journal/segments", "view", "all", "Its files, oldest first",
          Page[operations.Segment], query=operations.SegmentsQuery),
    Route("backups", "GET", f"{API}/backups", "admin", "all", "Backups that are complete", Page[operations.Backup],
          query=PageQuery),
    Route("create-backup", "POST", f"{API}/backups", "admin", "all", "Copy the journal while it runs, as a job",
          messages.Job, body=operations.NewBackup, status=202, problems=("conflict", "refused")),
    Route("drain", "GET", f"{API}/drain", "view", "all", "Whether the broker is draining, and what is left",
          operations.Drain),
    Route("begin-drain", "PUT", f"{API}/drain", "admin", "all", "Refuse publishing so that the queues get empty",
          operations.Drain, body=operations.NewDrain),
    Route("end-drain", "DELETE", f"{API}/drain", "admin", "all", "Take messages again", operations.Drain),
    Route("stop", "POST", f"{API}/stop", "admin", "all", "End the broker, as SIGTERM does", Done,
          body=operations.StopBroker, status=202),
    Route("definitions", "GET", f"{API}/definitions", "admin", "all", "Namespaces, queues and rules as one file",
          operations.Definitions, query=operations.DefinitionsQuery),
    Route("import-definitions", "POST", f"{API}/definitions", "admin", "all",
          "Make the broker like these definitions, or tell the difference. JSON or TOML", operations.Imported,
          query=operations.ImportQuery, body=operations.Definitions, problems=("conflict",)),
    # Access
    Route("tokens", "GET", f"{API}/tokens", "admin", "all", "Tokens, without what they are",
          Page[access.TokenSummary], query=PageQuery),
    Route("create-token", "POST", f"{API}/tokens", "admin", "all", "Make a token; it is shown this once",
          access.TokenMade, body=access.NewToken, status=201, problems=("conflict",)),
    Route("revoke-token", "DELETE", f"{API}/tokens/{{id}}", "admin", "all", "Revoke a token, at once", Done,
          problems=("not-found", "conflict")),
    Route("audit", "GET", f"{API}/audit", "admin", "all", "Who changed what, the newest first",
          Page[access.AuditEntry], query=access.AuditQuery),
    # SQL
    Route("sql", "POST", f"{API}/sql", "view", "some", "Ask in SQL: read-only, with limits", sql.SqlAnswer,
          body=sql.SqlQuery, problems=("refused",)),
    Route("sql-export", "POST", f"{API}/sql/export", "view", "some", "The same as a file: CSV or Parquet", None,
          body=sql.SqlExport, problems=("refused",), media="bytes"),
    Route("sql-tables", "GET", f"{API}/sql/tables", "view", "some", "The tables and their columns",
          Page[sql.SqlTable], query=PageQuery),
    Route("saved-queries", "GET", f"{API}/sql/queries", "view", "some", "Queries that were kept",
          Page[sql.SavedQuerySummary], query=PageQuery),
    Route("save-query", "PUT", f"{API}/sql/queries/{{name}}", "operate", "all", "Keep a query for everybody", Done,
          body=sql.SavedQuery),
    Route("forget-query", "DELETE", f"{API}/sql/queries/{{name}}", "operate", "all", "Drop a query that was kept",
          Done, problems=("not-found",)),
    # For machines
    Route("openapi", "GET", f"{API}/openapi.json", None, "open", "This API as an OpenAPI 3.1 document", None,
          media="text"),
    Route("healthz", "GET", "/healthz", None, "open", "Whether the process lives", operations.Health),
    Route("readyz", "GET", "/readyz", None, "open", "Whether the broker takes messages; 503 and why, if not",
          operations.Health, problems=("away",)),
    Route("metrics", "GET", "/metrics", "view", "all", "Metrics of the broker and all queues together", None,
          media="metrics"),
    Route("metrics-per-queue", "GET", "/metrics/per-queue", "view", "some",
          "Metrics of each queue of a pattern", None, query=operations.MetricsQuery, media="metrics"),
)  # fmt: skip

#: Browsers and proxies take the parts ``.`` and ``..`` out of a path, however they are encoded. As names they are
#: written with a semicolon behind them, which stands encoded in all other names.
DOTS = {".;": ".", "..;": ".."}


def path_part(name: str) -> str:
    """A name as a part of a path."""
    return f"{name};" if f"{name};" in DOTS else quote(name, safe="")


BY_NAME: dict[str, Route] = {route.name: route for route in ROUTES}
