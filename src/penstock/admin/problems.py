"""Problems: the exception that handlers raise, and the status and title of each code."""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.admin.resources.common import Code, Problem

STATUS: dict[Code, int] = {
    "bad-request": 400,
    "unauthenticated": 401,
    "denied": 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "conflict": 409,
    "stale": 412,
    "too-large": 413,
    "unsupported-type": 415,
    "version-required": 428,
    "too-many": 429,
    "internal": 500,
    "refused": 503,
    "away": 503,
    "standby": 503,
}
TITLES: dict[Code, str] = {
    "bad-request": "The request is malformed",
    "unauthenticated": "No valid token",
    "denied": "Not allowed",
    "not-found": "Not found",
    "method-not-allowed": "The path does not support this method",
    "conflict": "Its state does not allow this",
    "stale": "It has changed in the meantime",
    "too-large": "The request is too large",
    "unsupported-type": "The body has the wrong media type",
    "version-required": "The request must name the version to change",
    "too-many": "Too many requests",
    "internal": "Internal error",
    "refused": "The broker refuses it now",
    "away": "The broker does not respond",
    "standby": "The broker is on standby: another one serves",
}
#: Problems of every route.
COMMON: tuple[Code, ...] = (
    "bad-request",
    "unauthenticated",
    "denied",
    "too-large",
    "unsupported-type",
    "too-many",
    "away",
    "standby",
)


#: Seconds until a client may try again, where nothing better is known.
RETRY_AFTER = 5


class ApiProblem(Exception):
    """A problem to send to the client. ``made`` summarizes changes made before it, for the audit log."""

    def __init__(self, problem: Problem, retry_after: int = RETRY_AFTER, made: Any = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.retry_after = retry_after
        self.made = made


def problem(
    code: Code, detail: str, *, field: str = "", current: Any = None, retry_after: int = RETRY_AFTER, made: Any = None
) -> ApiProblem:
    """The exception for a problem."""
    return ApiProblem(
        Problem(
            type=f"/problems/{code}",
            title=TITLES[code],
            status=STATUS[code],
            detail=detail,
            code=code,
            field=field,
            current=current,
        ),
        retry_after,
        made,
    )


def fail(code: Code, detail: str, *, field: str = "", current: Any = None) -> NoReturn:
    """Raise a problem."""
    raise problem(code, detail, field=field, current=current)
