"""The data source's Flight client: one call at a time, retried while the broker is away, with clear errors.

Every call is idempotent: reads are reads, a repeated chunk is confirmed as a duplicate, and leasing with the same start
returns the same leases. So a call whose connection broke is retried until the patience runs out. With several
endpoints, each retry uses the next one: only one of them serves at a time, and all serve one journal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as fl

from penstock.flight.calls import Action, Problem, Read, Write, Written
from penstock.hosts import CONNECT_SECONDS, HostRing
from penstock.spark import errors
from penstock.spark.options import SourceSettings

T = TypeVar("T")

log = logging.getLogger("penstock.spark")

#: Seconds of retries for the very first call, so that a wrong address fails soon.
FIRST_PATIENCE = 5.0
#: Seconds to wait for the very first answer: a broker on a busy machine may be slow.
FIRST_ANSWER_SECONDS = 30.0
#: Seconds to wait for an answer. The slowest call cuts a very long journal into parts.
ANSWER_SECONDS = 120.0
#: Seconds of silence before a keep-alive ping, and seconds to wait for its answer. Rows may take any time, so only this
#: ends a read from a machine that has lost power.
SILENCE_SECONDS = 30.0
#: Seconds between attempts: first and longest pause.
PAUSES = (0.05, 1.0)
#: Seconds between log lines while the broker is away.
LOG_SECONDS = 10.0

_KINDS: dict[str, type[errors.SourceError]] = {
    "bad-request": errors.SourceError,
    "denied": errors.Denied,
    "no-queue": errors.NoQueue,
    "data-loss": errors.DataLoss,
    "replaced": errors.Replaced,
    "differs": errors.RowsDiffer,
    "refused": errors.Refused,
    "taken-over": errors.TakenOver,
    "away": errors.BrokerAway,
    "internal": errors.SourceError,
}
#: gRPC's messages for a connection whose TLS handshake failed. Retrying does not help.
_TLS_WORDS = ("handshake", "certificate", "ssl", "tls")
#: Its message for a connection that timed out. Its TCP has a "handshaker" too.
_TIMED_OUT = "handshaker shutdown"


#: The endpoint of each group that answered last in this process: the first to try.
_SERVED: dict[str, str] = {}


class FlightEndpoint:
    """A connection, opened on first use and reopened when it breaks."""

    def __init__(self, settings: SourceSettings, *, patience: float | None = None) -> None:
        """``patience`` in seconds; None: as in the options. The first call has ``FIRST_PATIENCE`` at most."""
        self._settings = settings
        self._patience = settings.patience / 1e6 if patience is None else patience
        self._client: fl.FlightClient | None = None
        self._answered = False
        self._hosts = HostRing(settings.endpoints, first=_SERVED.get(settings.endpoint))

    def __enter__(self) -> FlightEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> str:
        """The endpoint, as in the options."""
        return self._settings.endpoint

    def trusted(self) -> FlightEndpoint:
        """Itself, if the broker is known to be there: the first call gets the full patience."""
        self._answered = True
        return self

    def ask(self, action: Action, answer: type[T]) -> T:
        """Run an action and return its answer."""
        kind = str(action.__struct_config__.tag)
        body = msgspec.json.encode(action)
        return self.retry(lambda client: _answer(client, fl.Action(kind, body), self._call_options(), answer))

    def get(self, read: Read) -> Iterator[pa.RecordBatch]:
        """The rows of a ticket. A broken connection is an error here: only the caller knows where to resume."""
        reader = self._connected().do_get(fl.Ticket(msgspec.json.encode(read)), self._call_options(None))
        while True:
            try:
                batch = reader.read_chunk().data
            except StopIteration:
                self._note_answer()
                return
            self._note_answer()
            yield batch

    def put(self, write: Write, batch: pa.RecordBatch) -> Written:
        """Write one chunk."""
        return self.retry(lambda client: _put(client, write, batch, self._call_options()))

    def retry(self, call: Callable[[fl.FlightClient], T]) -> T:
        """Retry a call while the broker is away. Finally raises an error for users."""
        waiting = self.retry_budget()
        while True:
            try:
                result = call(self._connected())
            except pa.ArrowException as error:
                waiting.pause(error)
            else:
                self._note_answer()
                return result

    def retry_budget(self) -> RetryBudget:
        """The patience for an operation of several attempts."""
        return RetryBudget(self, self._patience if self._answered else min(self._patience, FIRST_PATIENCE))

    def next_endpoint(self) -> bool:
        """Disconnect and switch to the next endpoint. False: all were tried since the last answer."""
        self.close()
        return self._hosts.failed()

    def close(self) -> None:
        """Disconnect. The next call connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def explain(self, error: BaseException) -> errors.SourceError:
        """Turn an error into one for the person who runs the query."""
        place = self._settings.endpoint
        problem = _problem(error)
        if problem is not None:
            return _KINDS[problem.code](f"{_first_line(problem.text)} (penstock at {place})")
        if isinstance(error, fl.FlightUnauthenticatedError | fl.FlightUnauthorizedError):
            return errors.Denied(f"penstock at {place} denied access: {_first_line(str(error))}. Check option token")
        text = _first_line(str(error))
        if isinstance(error, fl.FlightUnavailableError) and _is_about_tls(text):
            return errors.Denied(f"no TLS connection to {place} could be opened: {text}. Check tlsCa and tlsServerName")
        if isinstance(error, _PASSING):
            return errors.BrokerAway(f"no penstock broker answers at {place}: {text}")
        return errors.SourceError(f"penstock at {place}: {text}")

    def _connected(self) -> fl.FlightClient:
        if self._client is None:
            self._client = fl.FlightClient(
                self._hosts.current,
                generic_options=_keep_alive(several=len(self._hosts) > 1),
                **_tls(self._settings),
            )
        return self._client

    def _note_answer(self) -> None:
        self._answered = True
        self._hosts.served(self._hosts.current)
        _SERVED[self._settings.endpoint] = self._hosts.current

    def _call_options(self, seconds: float | None = ANSWER_SECONDS) -> fl.FlightCallOptions:
        if seconds is not None and not self._answered:
            seconds = FIRST_ANSWER_SECONDS
        token = self._settings.token
        headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        return fl.FlightCallOptions(timeout=seconds, headers=headers)


class RetryBudget:
    """Patience that failing attempts use up."""

    def __init__(self, endpoint: FlightEndpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._began = time.monotonic()
        self._seconds = seconds
        self._pause = PAUSES[0]
        self._logged = self._began

    def pause(self, error: BaseException) -> None:
        """Wait before the next attempt. Raises if retrying does not help, or if the time is up."""
        meaning = self._endpoint.explain(error)
        if not isinstance(meaning, errors.BrokerAway | errors.Refused):
            raise meaning from None
        now = time.monotonic()
        if now + self._pause > self._began + self._seconds:
            raise type(meaning)(f"{meaning}. Waited for {now - self._began:.0f} s") from None
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            log.warning("%s. Waiting for %.0f of %.0f s", meaning, now - self._began, self._seconds)
        # A client whose connection broke reconnects only after a pause of its own, which grows long.
        if isinstance(meaning, errors.BrokerAway) and self._endpoint.next_endpoint():
            return
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSES[1])


_PASSING = (fl.FlightUnavailableError, fl.FlightTimedOutError, fl.FlightCancelledError, fl.FlightInternalError)


def _answer(client: fl.FlightClient, action: fl.Action, options: fl.FlightCallOptions, answer: type[T]) -> T:
    results = list(client.do_action(action, options))
    return msgspec.json.decode(results[0].body.to_pybytes(), type=answer)


def _put(client: fl.FlightClient, write: Write, batch: pa.RecordBatch, options: fl.FlightCallOptions) -> Written:
    descriptor = fl.FlightDescriptor.for_command(msgspec.json.encode(write))
    writer, answers = client.do_put(descriptor, batch.schema, options)
    with writer:
        writer.write_batch(batch)
        writer.done_writing()
        answer = answers.read()
    if answer is None:
        raise fl.FlightUnavailableError("the endpoint ended the call without an answer")
    return msgspec.json.decode(answer.to_pybytes(), type=Written)


def _keep_alive(*, several: bool) -> list[tuple[str, int]]:
    """Keep-alive options for gRPC, whose own limit for the answer to a ping is a minute, whatever keep-alive's is.

    A connection gets 20 seconds to open, through the option that gRPC calls the minimum reconnect back-off.
    """
    names = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    connecting = [("grpc.min_reconnect_backoff_ms", int(CONNECT_SECONDS * 1000))] if several else []
    return [(name, int(SILENCE_SECONDS * 1000)) for name in names] + connecting


def _tls(settings: SourceSettings) -> dict[str, Any]:
    given = {
        "tls_root_certs": settings.tls_ca,
        "cert_chain": settings.tls_certificate,
        "private_key": str.__str__(settings.tls_key),
        "override_hostname": settings.tls_server_name,
    }
    return {name: value for name, value in given.items() if value}


def _is_about_tls(text: str) -> bool:
    return _TIMED_OUT not in text and any(word in text.lower() for word in _TLS_WORDS)


def _problem(error: BaseException) -> Problem | None:
    """The problem that our endpoint attached to a Flight error."""
    extra = getattr(error, "extra_info", None)
    if not extra:
        return None
    try:
        return msgspec.json.decode(extra, type=Problem)
    except msgspec.DecodeError:
        return None


def _first_line(text: str) -> str:
    """The message without gRPC's debugging details."""
    line = text.strip().split("\n")[0]
    for mark in (". gRPC client debug context", " gRPC client debug context", ". Client context"):
        line = line.split(mark)[0]
    return line.removeprefix("Flight returned unavailable error, with message: ").rstrip(".")
