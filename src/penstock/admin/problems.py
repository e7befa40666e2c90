"""Problems on their way to a client: what is raised, and the status that each has."""

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
    "bad-request": "The request can not be understood",
    "unauthenticated": "No token that is known",
    "denied": "Not allowed",
    "not-found": "There is no such thing",
    "method-not-allowed": "The path does not take this method",
    "conflict": "It is not in a state for this",
    "stale": "It has changed meanwhile",
    "too-large": "The request is too large",
    "unsupported-type": "The body is of another type",
    "version-required": "The version that is to be changed must be named",
    "too-many": "Too many requests",
    "internal": "A fault of the broker",
    "refused": "The broker does not take it now",
    "away": "The broker does not answer",
    "standby": "The broker stands by: another one serves",
}
#: Problems that every route may have.
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


#: Seconds after which a client may try again, where nothing better is known.
RETRY_AFTER = 5


class ApiProblem(Exception):
    """A problem to be told to the client. ``made``: what was changed nevertheless, for the audit log."""

    def __init__(self, problem: Problem, retry_after: int = RETRY_AFTER, made: Any = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.retry_after = retry_after
        self.made = made


def problem(
    code: Code, detail: str, *, field: str = "", current: Any = None, retry_after: int = RETRY_AFTER, made: Any = None
) -> ApiProblem:
    """What to raise."""
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
    """Raise it."""
    raise problem(code, detail, field=field, current=current)
