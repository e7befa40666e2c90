"""Every route of the HTTP API: its purpose, required right, input and output.

The dispatcher, the OpenAPI document, the manual's table and the tests of rights all read this table, so none of them
can miss a route.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from penstock.admin.resources import access, messages, operations, peers, queues, sql
from penstock.admin.resources.access import Role
from penstock.admin.resources.common import Code, Done, Page, PageQuery, Sample

API = "/api/v1"

#: Where the caller needs the role. ``queue`` and ``namespace``: for the one in the path. ``body``: for the queues in
#: the body. ``some``: for any queue; the response is limited to the caller's patterns. ``all``: for all queues.
#: ``open``: no token needed. ``known``: any valid token.
Scope = Literal["open", "known", "some", "queue", "namespace", "body", "all"]
Media = Literal["json", "events", "bytes", "text", "metrics", "page"]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Route(NamedTuple):
    """One route. ``answer`` is the type of a successful response."""

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
    #: In addition to the problems of every route.
    problems: tuple[Code, ...] = ()
    media: Media = "json"
    #: Whether ``If-Match`` must, or may, name the version to change.
    version: Literal["", "required", "optional"] = ""

    @property
    def changes(self) -> bool:
        """Whether it changes something, and so is recorded in the audit log."""
        return self.method != "GET" and self.name not in ("login", "sql", "sql-export")


_QUEUE = f"{API}/queues/{{namespace}}/{{queue}}"
_MESSAGE = f"{_QUEUE}/messages/{{id}}"

ROUTES: tuple[Route, ...] = (
    # Sessions
    Route("login", "POST", f"{API}/session", None, "open", "Log in with a token: sets the console's cookie",
          access.Session, body=access.Login, problems=("unauthenticated", "too-many")),
    Route("session", "GET", f"{API}/session", None, "known", "The caller's identity and rights", access.Session),
    Route("logout", "DELETE", f"{API}/session", None, "known", "Log out: invalidates the cookie", Done),
    # The broker
    Route("overview", "GET", f"{API}/overview", "view", "some", "State and figures of the broker", operations.Overview),
    Route("history", "GET", f"{API}/history", "view", "all", "Rates and backlog of the last minutes, oldest first",
          Page[Sample], query=queues.HistoryQuery),
    Route("stream", "GET", f"{API}/stream", "view", "some",
          "Server-sent events: overview, sample, queue and job, as they change", None,
          query=operations.StreamQuery, media="events"),
    # Namespaces and queues
    Route("namespaces", "GET", f"{API}/namespaces", "view", "some", "Namespaces, by name",
          Page[queues.NamespaceSummary], query=PageQuery),
    Route("create-namespace", "PUT", f"{API}/namespaces/{{namespace}}", "admin", "namespace",
          "Create a namespace, unless it exists", Done, problems=("conflict",)),
    Route("delete-namespace", "DELETE", f"{API}/namespaces/{{namespace}}", "admin", "namespace",
          "Delete an empty namespace", Done, problems=("not-found", "conflict")),
    Route("queues", "GET", f"{API}/queues", "view", "some", "Queues with their figures: filtered, sorted, in pages",
          Page[queues.QueueSummary], query=queues.QueuesQuery),
    Route("queue", "GET", _QUEUE, "view", "queue", "One queue; ETag is its version", queues.QueueDetail,
          problems=("not-found",)),
    Route("create-queue", "PUT", _QUEUE, "admin", "queue", "Create a queue, and its namespace", queues.QueueDetail,
          body=queues.NewQueue, status=201, problems=("conflict",)),
    Route("configure-queue", "PATCH", _QUEUE, "admin", "queue", "Change some rules of a queue", queues.QueueDetail,
          body=queues.RulesChange, problems=("not-found", "stale", "version-required"), version="required"),
    Route("pause-queue", "POST", f"{_QUEUE}/pause", "operate", "queue", "Stop deliveries; publishing continues",
          queues.QueueDetail, problems=("not-found",)),
    Route("resume-queue", "POST", f"{_QUEUE}/resume", "operate", "queue", "Resume deliveries",
          queues.QueueDetail, problems=("not-found",)),
    Route("purge-queue", "POST", f"{_QUEUE}/purge", "operate", "queue",
          "Remove all messages in some states, as a job; messages that are out stay", messages.Job, body=queues.Purge,
          status=202, problems=("not-found", "conflict")),
    Route("delete-queue", "DELETE", _QUEUE, "admin", "queue", "Delete an empty queue", Done,
          problems=("not-found", "conflict", "stale"), version="optional"),
    # Messages
    Route("messages", "GET", f"{_QUEUE}/messages", "view", "queue",
          "Browse or search the messages in one state, without taking them", messages.MessagePage,
          query=messages.MessagesQuery, problems=("not-found",)),
    Route("message", "GET", _MESSAGE, "view", "queue", "One message with its payload, up to a limit",
          messages.MessageDetail, query=messages.MessageQuery, problems=("not-found",)),
    Route("payload", "GET", f"{_MESSAGE}/payload", "view", "queue", "The whole payload, as a download", None,
          problems=("not-found",), media="bytes"),
    Route("publish", "POST", f"{_QUEUE}/messages", "operate", "queue", "Publish messages; responds once on disk",
          messages.Published, body=messages.Publish, status=201, problems=("not-found", "refused")),
    Route("delete-message", "DELETE", _MESSAGE, "operate", "queue", "Remove one message that is not out", Done,
          problems=("not-found", "conflict")),
    Route("life", "GET", f"{_MESSAGE}/events", "view", "queue", "Every event of one message, from the journal",
          messages.Life, query=messages.LifeQuery, problems=("not-found",)),
    Route("dead", "GET", f"{API}/dead", "view", "some", "Dead letters by queue and reason", Page[messages.DeadGroup],
          query=messages.DeadQuery),
    # Jobs
    Route("jobs", "GET", f"{API}/jobs", "view", "some", "Jobs, newest first", Page[messages.Job],
          query=messages.JobsQuery),
    Route("create-job", "POST", f"{API}/jobs", "operate", "body", "Redrive, move or delete many messages",
          messages.Job, body=messages.NewJob, status=202, problems=("not-found", "conflict")),
    Route("job", "GET", f"{API}/jobs/{{id}}", "view", "some", "One job and its progress", messages.Job,
          problems=("not-found",)),
    Route("cancel-job", "POST", f"{API}/jobs/{{id}}/cancel", "operate", "some",
          "Stop a job; completed steps are not undone", messages.Job, problems=("not-found", "conflict")),
    Route("resume-job", "POST", f"{API}/jobs/{{id}}/resume", "operate", "some",
          "Resume a job that was cancelled or interrupted", messages.Job, problems=("not-found", "conflict")),
    # Peers
    Route("connections", "GET", f"{API}/connections", "view", "all", "Connections of all protocols",
          Page[peers.ConnectionSummary], query=peers.ConnectionsQuery),
    Route("connection", "GET", f"{API}/connections/{{id}}", "view", "all", "One connection, with its subscriptions",
          peers.ConnectionDetail, problems=("not-found",)),
    Route("close-connection", "DELETE", f"{API}/connections/{{id}}", "operate", "all",
          "Close a connection; its messages return to their queues", Done, problems=("not-found",)),
    Route("locks", "GET", f"{API}/locks", "view", "some", "Locked messages, those that expire first", Page[peers.Lock],
          query=peers.LocksQuery),
    Route("release-lock", "DELETE", f"{API}/locks/{{id}}", "operate", "some",
          "Release a locked message: it returns to its place in the queue", Done, problems=("not-found",)),
    Route("readers", "GET", f"{API}/readers", "view", "all", "Readers of the journal, and their lag",
          Page[peers.Reader], query=peers.NamesQuery),
    Route("forget-reader", "DELETE", f"{API}/readers/{{name}}", "operate", "all",
          "Forget a reader, with its pin and leases", Done, problems=("not-found",)),
    Route("leases", "GET", f"{API}/leases", "view", "all", "Messages leased by readers", Page[peers.Lease],
          query=PageQuery),
    Route("writers", "GET", f"{API}/writers", "view", "all", "Writers of numbered chunks", Page[peers.Writer],
          query=peers.NamesQuery),
    Route("forget-writer", "DELETE", f"{API}/writers/{{name}}", "operate", "all",
          "Forget a writer: its chunks would be accepted again", Done, problems=("not-found",)),
    Route("pipelines", "GET", f"{API}/pipelines", "view", "all", "Pipelines in the folder of the lake",
          Page[peers.Pipeline], query=PageQuery),
    Route("report", "GET", f"{API}/pipelines/{{name}}/report", "view", "all", "The insight report, as HTML", None,
          problems=("not-found",), media="page"),
    # The journal and the broker
    Route("journal", "GET", f"{API}/journal", "view", "all", "The journal: range, size, retention, disk",
          operations.JournalStatus),
    Route("segments", "GET", f"{API}/journal/segments", "view", "all", "Files of the journal, oldest first",
          Page[operations.Segment], query=operations.SegmentsQuery),
    Route("backups", "GET", f"{API}/backups", "admin", "all", "Complete backups", Page[operations.Backup],
          query=PageQuery),
    Route("create-backup", "POST", f"{API}/backups", "admin", "all", "Copy the journal while it runs, as a job",
          messages.Job, body=operations.NewBackup, status=202, problems=("conflict", "refused")),
    Route("drain", "GET", f"{API}/drain", "view", "all", "Whether the broker is draining, and the messages left",
          operations.Drain),
    Route("begin-drain", "PUT", f"{API}/drain", "admin", "all", "Refuse publishing so that the queues drain",
          operations.Drain, body=operations.NewDrain),
    Route("end-drain", "DELETE", f"{API}/drain", "admin", "all", "Accept publishing again", operations.Drain),
    Route("stop", "POST", f"{API}/stop", "admin", "all", "Stop the broker, as SIGTERM does", Done,
          body=operations.StopBroker, status=202),
    Route("definitions", "GET", f"{API}/definitions", "admin", "all", "Namespaces, queues and rules as one file",
          operations.Definitions, query=operations.DefinitionsQuery),
    Route("import-definitions", "POST", f"{API}/definitions", "admin", "all",
          "Apply definitions, or show the difference; JSON or TOML", operations.Imported,
          query=operations.ImportQuery, body=operations.Definitions, problems=("conflict",)),
    # Access
    Route("tokens", "GET", f"{API}/tokens", "admin", "all", "Tokens, without their secrets",
          Page[access.TokenSummary], query=PageQuery),
    Route("create-token", "POST", f"{API}/tokens", "admin", "all", "Create a token, which is shown only once",
          access.TokenMade, body=access.NewToken, status=201, problems=("conflict",)),
    Route("revoke-token", "DELETE", f"{API}/tokens/{{id}}", "admin", "all", "Revoke a token immediately", Done,
          problems=("not-found", "conflict")),
    Route("audit", "GET", f"{API}/audit", "admin", "all", "The audit log, newest first",
          Page[access.AuditEntry], query=access.AuditQuery),
    # SQL
    Route("sql", "POST", f"{API}/sql", "view", "some", "Run a SQL query: read-only, with limits", sql.SqlAnswer,
          body=sql.SqlQuery, problems=("refused",)),
    Route("sql-export", "POST", f"{API}/sql/export", "view", "some", "Export a SQL query as CSV or Parquet", None,
          body=sql.SqlExport, problems=("refused",), media="bytes"),
    Route("sql-tables", "GET", f"{API}/sql/tables", "view", "some", "SQL tables and their columns",
          Page[sql.SqlTable], query=PageQuery),
    Route("saved-queries", "GET", f"{API}/sql/queries", "view", "some", "Saved queries",
          Page[sql.SavedQuerySummary], query=PageQuery),
    Route("save-query", "PUT", f"{API}/sql/queries/{{name}}", "operate", "all", "Save a query for all users", Done,
          body=sql.SavedQuery),
    Route("forget-query", "DELETE", f"{API}/sql/queries/{{name}}", "operate", "all", "Delete a saved query",
          Done, problems=("not-found",)),
    # For machines
    Route("openapi", "GET", f"{API}/openapi.json", None, "open", "This API as an OpenAPI 3.1 document", None,
          media="text"),
    Route("healthz", "GET", "/healthz", None, "open", "Whether the process is alive", operations.Health),
    Route("readyz", "GET", "/readyz", None, "open", "Whether the broker accepts messages; 503 with the reasons if not",
          operations.Health, problems=("away",)),
    Route("metrics", "GET", "/metrics", "view", "all", "Metrics of the broker and of all queues together", None,
          media="metrics"),
    Route("metrics-per-queue", "GET", "/metrics/per-queue", "view", "some",
          "Metrics of each queue that matches a pattern", None, query=operations.MetricsQuery, media="metrics"),
)  # fmt: skip

#: Browsers and proxies remove the parts ``.`` and ``..`` from a path, even if they are encoded. So these names get a
#: semicolon appended, which is percent-encoded in all other names.
DOTS = {".;": ".", "..;": ".."}


def path_part(name: str) -> str:
    """A name, encoded as a part of a path."""
    return f"{name};" if f"{name};" in DOTS else quote(name, safe="")


BY_NAME: dict[str, Route] = {route.name: route for route in ROUTES}
