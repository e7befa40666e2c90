"""The Flight client of the data source: one call at a time, with patience while the broker is away, and clear errors.

Everything here can be done again without harm: reads are reads, a chunk that was written before is answered as done,
and leasing with the same start gives the same leases. So a call whose connection broke is simply made again, until the
patience is at its end. Of several endpoints the next one is asked then: one of them serves at a time, and all tell of
one journal.
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
from penstock.spark import errors
from penstock.spark.options import SourceSettings

T = TypeVar("T")

log = logging.getLogger("penstock.spark")

#: Seconds of attempts of the very first call: who names a broker that is not there should hear of it soon.
FIRST_PATIENCE = 5.0
#: Seconds that the answer to the very first call may take: a broker on a busy machine is there all the same.
FIRST_ANSWER_SECONDS = 30.0
#: Seconds that an answer may take. Cutting a very long journal into parts is the slowest thing that is asked.
ANSWER_SECONDS = 120.0
#: Seconds without a sign of life after which the other end is asked for one, and then counts as gone. Rows may come as
#: late as they like, so a read has no other end than this when a machine has lost its power.
SILENCE_SECONDS = 30.0
#: Seconds that a connection may take to come about where another endpoint can be asked.
CONNECT_SECONDS = 3.0
#: Seconds between attempts: from, to.
PAUSES = (0.05, 1.0)
#: Seconds between two lines of the log about a broker that is away.
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
#: What gRPC says when the connection is there and TLS does not come about. Waiting does not help then.
_TLS_WORDS = ("handshake", "certificate", "ssl", "tls")
#: What it says when a connection did not come about in time. Its TCP has a "handshaker" too.
_TIMED_OUT = "handshaker shutdown"


#: Which of several endpoints has answered last in this process: the one to begin with.
_SERVED: dict[str, int] = {}


class FlightEndpoint:
    """A connection, made when it is first needed and again when it breaks."""

    def __init__(self, settings: SourceSettings, *, patience: float | None = None) -> None:
        """``patience`` in seconds; that of the options if None. The first call has ``FIRST_PATIENCE`` at most."""
        self._settings = settings
        self._patience = settings.patience / 1e6 if patience is None else patience
        self._client: fl.FlightClient | None = None
        self._answered = False
        self._which = _SERVED.get(settings.endpoint, 0)
        self._silent = 0

    @property
    def place(self) -> str:
        """As the options say it."""
        return self._settings.endpoint

    def trusted(self) -> FlightEndpoint:
        """Itself, after somebody else has found that the broker is there: the first call gets the whole patience."""
        self._answered = True
        return self

    def ask(self, action: Action, answer: type[T]) -> T:
        """One action, and its answer."""
        kind = str(action.__struct_config__.tag)
        body = msgspec.json.encode(action)
        return self.persist(lambda client: _answer(client, fl.Action(kind, body), self._calling(), answer))

    def get(self, read: Read) -> Iterator[pa.RecordBatch]:
        """The rows of one ticket. A connection that breaks is an error here: only the caller knows where to go on."""
        reader = self._connected().do_get(fl.Ticket(msgspec.json.encode(read)), self._calling(None))
        while True:
            try:
                batch = reader.read_chunk().data
            except StopIteration:
                self._heard()
                return
            self._heard()
            yield batch

    def put(self, write: Write, batch: pa.RecordBatch) -> Written:
        """One chunk."""
        return self.persist(lambda client: _put(client, write, batch, self._calling()))

    def persist(self, call: Callable[[fl.FlightClient], T]) -> T:
        """Make a call again while the broker is away. Raises what it is in the end, in words for people."""
        waiting = self.waiting()
        while True:
            try:
                found = call(self._connected())
            except pa.ArrowException as error:
                waiting.pause(error)
            else:
                self._heard()
                return found

    def waiting(self) -> RetryBudget:
        """Patience for one undertaking, which may need several attempts."""
        return RetryBudget(self, self._patience if self._answered else min(self._patience, FIRST_PATIENCE))

    def turn(self) -> bool:
        """Hang up, and ask the next endpoint from now on. False: all have been asked since one answered."""
        self.close()
        self._which = (self._which + 1) % len(self._settings.endpoints)
        self._silent = (self._silent + 1) % len(self._settings.endpoints)
        return self._silent > 0

    def close(self) -> None:
        """Hang up. The next call connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def explain(self, error: BaseException) -> errors.SourceError:
        """What an error means to the person who runs the query."""
        place = self._settings.endpoint
        problem = _problem(error)
        if problem is not None:
            return _KINDS[problem.code](f"{_first_line(problem.text)} (penstock at {place})")
        if isinstance(error, fl.FlightUnauthenticatedError | fl.FlightUnauthorizedError):
            return errors.Denied(f"penstock at {place} says no: {_first_line(str(error))}. Check option token")
        text = _first_line(str(error))
        if isinstance(error, fl.FlightUnavailableError) and _is_about_tls(text):
            return errors.Denied(f"no TLS connection to {place} came about: {text}. Check tlsCa and tlsServerName")
        if isinstance(error, _PASSING):
            return errors.BrokerAway(f"no penstock broker answers at {place}: {text}")
        return errors.SourceError(f"penstock at {place}: {text}")

    def _connected(self) -> fl.FlightClient:
        if self._client is None:
            endpoints = self._settings.endpoints
            self._client = fl.FlightClient(
                endpoints[self._which],
                generic_options=_signs_of_life(several=len(endpoints) > 1),
                **_tls(self._settings),
            )
        return self._client

    def _heard(self) -> None:
        self._answered = True
        self._silent = 0
        _SERVED[self._settings.endpoint] = self._which

    def _calling(self, seconds: float | None = ANSWER_SECONDS) -> fl.FlightCallOptions:
        if seconds is not None and not self._answered:
            seconds = FIRST_ANSWER_SECONDS
        token = self._settings.token
        headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        return fl.FlightCallOptions(timeout=seconds, headers=headers)


class RetryBudget:
    """Patience that is used up by attempts that fail."""

    def __init__(self, endpoint: FlightEndpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._began = time.monotonic()
        self._seconds = seconds
        self._pause = PAUSES[0]
        self._told = self._began

    def pause(self, error: BaseException) -> None:
        """Wait a moment before the next attempt, or raise: because it is no use, or because the time is up."""
        meaning = self._endpoint.explain(error)
        if not isinstance(meaning, errors.BrokerAway | errors.Refused):
            raise meaning from None
        now = time.monotonic()
        if now + self._pause > self._began + self._seconds:
            raise type(meaning)(f"{meaning}. Waited for {now - self._began:.0f} s") from None
        if now - self._told >= LOG_SECONDS:
            self._told = now
            log.warning("%s. Waiting for %.0f of %.0f s", meaning, now - self._began, self._seconds)
        # A client whose connection broke connects anew, but only after a pause of its own that gets long.
        if isinstance(meaning, errors.BrokerAway) and self._endpoint.turn():
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
        found = answers.read()
    if found is None:
        raise fl.FlightUnavailableError("the endpoint ended the call without an answer")
    return msgspec.json.decode(found.to_pybytes(), type=Written)


def _signs_of_life(*, several: bool) -> list[tuple[str, int]]:
    """As gRPC calls it. Its own limit for an answer to a ping is a minute, whatever that of keep-alive is.

    A connection has 20 seconds to come about, by the limit that gRPC calls the least back-off.
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
    """What our endpoint has put into a Flight error."""
    extra = getattr(error, "extra_info", None)
    if not extra:
        return None
    try:
        return msgspec.json.decode(extra, type=Problem)
    except msgspec.DecodeError:
        return None


def _first_line(text: str) -> str:
    """Without what gRPC adds for its own developers."""
    found = text.strip().split("\n")[0]
    for mark in (". gRPC client debug context", " gRPC client debug context", ". Client context"):
        found = found.split(mark)[0]
    return found.removeprefix("Flight returned unavailable error, with message: ").rstrip(".")
