"""Interprets Kokaq's responses: a message, none, or a refusal."""

from __future__ import annotations

from penstock.client.errors import Refused
from penstock.client.messages import Received
from penstock.wire.kokaq import Metadata, Reason, Response, Status

_STATUSES = {status.value: status.name.lower() for status in Status}
_REASONS = {reason.value: reason.name.lower() for reason in Reason}
_HINTS = {
    Reason.BAD: "there is no such queue or message, or the request is invalid",
    Reason.EXISTS: "it exists already",
    Reason.NOT_ALLOWED: "that is not allowed",
    Reason.INFRA: "the broker can't do it now",
}


def received(answer: Response, *, locked: bool = False) -> Received:
    """The message in an answer. If it is locked, the field Expiration Time is the end of the lock."""
    metadata = answer.metadata or Metadata()
    return Received(
        answer.payload or b"",
        f"{answer.namespace}/{answer.queue}",
        metadata.uuid.hex() if metadata.uuid else None,
        metadata.time_to_live,
        priority=metadata.priority or 0,
        deliveries=None if metadata.version is None else max(0, metadata.version - 1),
        correlation_id=metadata.correlation_id,
        request_id=metadata.request_id,
        created_at=metadata.created_at,
        expires_at=None if locked else metadata.expires_at,
        locked_until=metadata.expires_at if locked else None,
        source=metadata.source,
        dead_reason=metadata.dead_reason,
    )


def found(answer: Response, what: str) -> Response | None:
    """The answer if it has a message, None if there was none (Fail/Ok)."""
    if answer.status == Status.FAIL and answer.reason == Reason.OK:
        return None
    if answer.status != Status.SUCCESS:
        raise refusal(answer, what)
    return answer


def refusal(answer: Response, what: str) -> Refused:
    """The error for an answer other than Success."""
    source = answer.metadata.source if answer.metadata is not None else None
    hint = source or _HINTS.get(Reason(answer.reason) if answer.reason in _REASONS else Reason.OK, "without a reason")
    error = Refused(f"Kokaq: the broker refused to {what}: {hint}")
    error.status = _STATUSES.get(answer.status, str(answer.status))
    error.reason = _REASONS.get(answer.reason, str(answer.reason))
    error.retriable = answer.reason == Reason.INFRA
    return error


def milliseconds(seconds: float | None) -> int | None:
    """A duration in Kokaq's unit."""
    return None if seconds is None else max(0, round(seconds * 1000))


def locked_for(lock: float | None) -> Metadata | None:
    """Metadata that requests a lock of ``lock`` seconds; None leaves it to the queue."""
    return None if lock is None else Metadata(lock_duration=milliseconds(lock))


def uuid_of(answer: Response) -> bytes:
    """The ID of the message in an answer."""
    return (answer.metadata.uuid if answer.metadata else None) or bytes(16)
