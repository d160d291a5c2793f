"""Send one Prometheus query at a time: counted, retried with back-off, failures in one line.

The connection, its headers and its credentials are `prometheus-api-client`'s, over our own session.
Its own retries are off, so that only tenacity retries (with an injected sleep). This module reads
large answers itself, and `collectors.prometheus.decode` decodes them. One attempt has
`prometheus.timeout` from connecting to its last byte.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import requests
import tenacity
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from fallow.errors import (
    UNREADABLE_JSON,
    AuthError,
    FallowError,
    SourceError,
    TemporaryError,
    UsageError,
)
from fallow.redaction import redact
from fallow.settings.collectors import PrometheusSettings
from fallow.system.deadlines import (
    BodyTooLargeError,
    Deadline,
    DeadlineExceededError,
    read_body,
    watch_connections,
)
from fallow.system.http_client import CONNECT_S, explain_failure, is_unreachable, shorten

SKEW = timedelta(seconds=30)
"""Clocks that differ by more are not synchronised: how old a value is, is then unknown."""
MAX_BACKOFF_S = 30.0
MAX_WAIT_S = 120.0
"""A server's Retry-After is obeyed up to this number of seconds."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_RETRIED = {408, 429, 500, 502, 503, 504}
_TOO_MUCH = (
    "too many", "exceed", "maximum", "limit", "too large", "timed out", "timeout",
    "cannot select more than", "long day range",
)  # fmt: skip
MOST_LATE = 6
"""Answers in a row that do not come in time before no shorter query is tried."""
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _OK = 401, 403, 404, 200
_TOO_LARGE, _GATEWAY_TIMEOUT = 413, 504
_REFUSED = {400, 422}
_REDIRECTS = {301, 302, 303, 307, 308}


class TooMuchError(SourceError):
    """The server refuses a query of this size; a shorter range may succeed."""


class SlowAnswerError(TemporaryError, TooMuchError):
    """No answer came in time to a query of a stretch of time; a shorter one may be in time."""


class BudgetSpentError(TemporaryError):
    """The run has sent as many queries as `prometheus.query_budget` allows."""


class UnreachableError(TemporaryError):
    """No connection could be opened: reported at once, unless it restarts (it answered before)."""


class BusyError(TemporaryError):
    """The server is busy, and may have named a time to wait."""

    after_s: float = 0.0


class LateError(BusyError):
    """No answer came in time, from the server or from a gateway before it."""


class NoStoreError(SourceError):
    """Thanos has no store with data of the query's time."""


class _Problem(msgspec.Struct):
    """A server's error message, or its warnings beside the data."""

    status: str = ""
    error: str = ""
    errorType: str = ""  # noqa: N815  (the API's name)
    warnings: list[str] | None = None
    isPartial: bool = False  # noqa: N815  (VictoriaMetrics' name)


class PrometheusClient:
    """Queries one server; `queries` counts the queries, retries included."""

    def __init__(
        self, settings: PrometheusSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Prepare a connection; no query is sent yet.

        Raises:
            UsageError: the URL is not an http or https address, or its CA file does not exist.
        """
        self.url = check_url(settings.url)
        self.name = redact(self.url)
        """The server in rows: its URL without a password."""
        if settings.ca_file and not Path(settings.ca_file).is_file():
            raise UsageError(
                f"prometheus.ca_file {settings.ca_file}: there is no such file",
                hint="set prometheus.ca_file to the PEM file of the server's certificate authority",
            )
        self.queries = 0
        self.ahead = timedelta(0)
        """How far the server's clock was ahead of this machine's at its last answer."""
        self._did_answer = False
        self._late = 0
        """Answers in a row that did not come in time."""
        self._settings = settings
        self._sleep = sleep
        self._timeout = settings.timeout.total_seconds()
        self._session = self._open()
        self._turn = threading.Lock()
        """Held by the thread whose question the server answers: one session serves no two."""

    def _open(self) -> requests.Session:
        from prometheus_api_client import PrometheusConnect

        settings = self._settings
        session = requests.Session()
        session.verify = settings.ca_file or settings.verify_tls
        # Over loopback, gzip costs both ends more than the saved bytes (docs/prometheus.md).
        near = urlsplit(self.url).hostname in _LOOPBACK
        session.headers["Accept-Encoding"] = "identity" if near else "gzip"
        session.headers.update({n: v.get_secret_value() for n, v in settings.headers.items()})
        token = settings.bearer_token.get_secret_value()
        if token:
            session.headers["Authorization"] = f"Bearer {token}"
        if settings.username:
            session.auth = (settings.username, settings.password.get_secret_value())
        session.trust_env = not near
        PrometheusConnect(self.url, retry=Retry(0), session=session)  # mounts its adapter
        adapter: Any = session.get_adapter(self.url)
        watch_connections(adapter.poolmanager)
        return session

    def query(self, expression: str, at: datetime) -> bytes:
        """Return the body of an instant query; `at` in UTC.

        Raises: as `get`.
        """
        return self.get("query", {"query": expression, "time": _stamp(at)})

    def query_range(
        self,
        expression: str,
        start: datetime,
        end: datetime,
        step_s: float,
        *,
        lookback_s: float | None = None,
    ) -> bytes:
        """Return the body of a range query; both ends are evaluated.

        `lookback_s`: how old a sample may be, where the server lets a query say so.

        Raises: as `get`.
        """
        parameters = {
            "query": expression,
            "start": _stamp(start),
            "end": _stamp(end),
            "step": f"{step_s:g}",
        }
        if lookback_s is not None:
            parameters["lookback_delta"] = f"{lookback_s:g}"
        return self.get("query_range", parameters)

    def get(self, path: str, parameters: Mapping[str, Any]) -> bytes:
        """Return the body of `GET /api/v1/<path>` after a success.

        Raises:
            TooMuchError: the server refuses a query of this size.
            AuthError: 401 or 403.
            SourceError: the answer is not that of a Prometheus, or the server refused the query.
            BudgetSpentError: the query budget is spent.
            UnreachableError: no connection could be opened.
            TemporaryError: the server is still busy or interrupted after the retries.
        """
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._settings.retries + 1),
            wait=_wait,
            retry=tenacity.retry_if_exception(self._may_pass),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            body: bytes = retrying(self._once, path, parameters)
        except UnreachableError:
            self._did_answer = False
            raise
        return body

    def _may_pass(self, error: BaseException) -> bool:
        if isinstance(error, UnreachableError):
            return self._did_answer
        if isinstance(error, SlowAnswerError | BudgetSpentError):
            return False
        return isinstance(error, TemporaryError)

    def post_read(self, request: bytes) -> bytes:
        """Return the stream of a remote read; it is sent once, and a refusal is no failure of ours.

        Raises:
            SourceError: the server has no remote read that streams, or refused this one.
            Others: as `get`.
        """
        self._count_query()
        answer, body = self._send("POST", "read", data=request, headers=_REMOTE_READ)
        kind = answer.headers.get("Content-Type", "")
        if answer.status_code != _OK or not kind.startswith(_STREAM):
            raise SourceError(f"{self.url} has no remote read (HTTP {answer.status_code})")
        if not any(name in answer.headers for name in _DELIMITERS):
            # A stream that was cut between two frames looks like a whole one.
            raise SourceError(f"{self.url} does not say where its stream ends")
        return body

    def _count_query(self) -> None:
        if self.queries >= self._settings.query_budget:
            raise BudgetSpentError(
                f"{self.url}: the budget of {self._settings.query_budget} queries is spent",
                hint="run again to go on, or raise prometheus.query_budget",
            )
        self.queries += 1

    def _once(self, path: str, parameters: Mapping[str, Any]) -> bytes:
        self._count_query()
        is_stretch, is_long = _measure_stretch(path, parameters)
        try:
            answer, body = self._send("GET", path, params=dict(parameters))
            body = self._checked(answer.status_code, body, answer.headers)
        except LateError as error:
            self._late += 1
            if not is_long or self._late > MOST_LATE:
                raise
            raise SlowAnswerError(error.message, hint="lower prometheus.chunk") from error
        except NoStoreError:
            if not self._has_stores():
                raise
            body = _NOTHING % (b"matrix" if is_stretch else b"vector")
        self._late = 0
        return body

    def _send(self, method: str, path: str, **content: Any) -> tuple[requests.Response, bytes]:
        address = f"{self.url}/api/v1/{path}"
        try:
            with (
                self._turn,
                Deadline(self._timeout),
                self._session.request(
                    method,
                    address,
                    timeout=(min(CONNECT_S, self._timeout), self._timeout),
                    stream=True,
                    allow_redirects=False,  # its headers are for this server alone
                    **content,
                ) as answer,
            ):
                # Large pieces: requests' own iterator copies in pieces of 10 KB.
                body = read_body(answer.raw, limit=self._settings.body_size_limit)
        except DeadlineExceededError as error:
            raise self._silent() from error
        except BodyTooLargeError as error:
            raise TooMuchError(
                f"{self.url}: {error} (prometheus.body_size_limit)", hint="lower prometheus.chunk"
            ) from error
        except requests.exceptions.SSLError as error:
            raise SourceError(
                f"{self.url}: TLS failed: {explain_failure(error, self.url)}",
                hint="set prometheus.ca_file, or prometheus.verify_tls: false",
            ) from error
        except requests.exceptions.ReadTimeout as error:
            raise self._silent() from error
        except requests.exceptions.ConnectionError as error:
            text = f"{self.url} cannot be reached: {explain_failure(error, self.url)}"
            kind = UnreachableError if is_unreachable(error) else TemporaryError
            raise kind(text, hint="check prometheus.url") from error
        except (requests.exceptions.RequestException, HTTPError, OSError, ValueError) as error:
            why = explain_failure(error, self.url)
            raise TemporaryError(f"{self.url}: the answer was cut short: {why}") from error
        self._did_answer = True
        self.ahead = _compare_clocks(answer.headers)
        return answer, body

    def _silent(self) -> LateError:
        return LateError(
            f"{self.url}: no complete answer within {self._timeout:g} s",
            hint="raise prometheus.timeout or lower prometheus.chunk",
        )

    def _checked(self, status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
        if status == _OK and body.startswith(b'{"status":"success"') and body.endswith(_ENDS):
            return self._complete(body)
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            raise AuthError(
                f"{self.url} refused our credentials (HTTP {status})",
                hint="set prometheus.bearer_token, or prometheus.username and password",
            )
        if status in _REDIRECTS:
            raise SourceError(
                f"{self.url} redirects (HTTP {status}), and no redirect is followed",
                hint="set prometheus.url to the address that it redirects to",
            )
        problem = _find_problem(body)
        reason = problem.error if problem else ""
        if status == _TOO_LARGE or (reason and _is_too_much(status, problem, reason)):
            why = reason or body[:_NEAR].decode(errors="replace")
            raise TooMuchError(f"{self.url}: {shorten(why)}", hint="lower prometheus.chunk")
        if status in _RETRIED:
            after = headers.get("Retry-After", "")
            wait = f", retry after {after} s" if after else ""
            kind = LateError if status == _GATEWAY_TIMEOUT else BusyError
            busy = kind(f"{self.url}: HTTP {status}{wait}: {shorten(reason) or 'no reason'}")
            busy.after_s = min(float(after), MAX_WAIT_S) if after.isdecimal() else 0.0
            raise busy
        if status in _REFUSED and reason:
            refused = NoStoreError if _NO_STORE in reason else SourceError
            raise refused(f"{self.url} refused the query: {shorten(reason)}")
        if status == _NOT_FOUND:
            raise SourceError(
                f"{self.url} has no Prometheus API (HTTP 404)",
                hint="prometheus.url is the base URL, such as http://host:9090 or .../prometheus",
            )
        return self._unlike(status, body, problem)

    def _complete(self, body: bytes) -> bytes:
        """Refuse an answer that the server marks as partial: its missing data are not a gap."""
        if any(mark in end for mark in _PARTIAL for end in (body[:_NEAR], body[-_NEAR:])):
            answer = _find_problem(body)
            if answer is None:
                raise SourceError(f"{self.url} does not answer as Prometheus does", hint=_IS_IT)
            partly = [w for w in answer.warnings or () if not w.startswith(_ABOUT_THE_QUERY)]
            if partly == [_NO_STORE] and self._has_stores():
                return body
            if answer.isPartial or partly:
                why = shorten(partly[0]) if partly else "isPartial"
                raise TemporaryError(f"{self.url}: the server calls its answer partial: {why}")
        return body

    def _has_stores(self) -> bool:
        """Return whether Thanos has a store for now: one without any may be cut off from all.

        A window before the first sample of each store then is empty; it is no partial answer.
        """
        self._count_query()
        now = {"query": "absent(up)", "time": _stamp(datetime.now(UTC))}
        response, body = self._send("GET", "query", params=now)
        if response.status_code in _RETRIED:
            raise BusyError(
                f"{self.url}: HTTP {response.status_code}: which stores it has is unknown"
            )
        answer = _find_problem(body)
        return answer is not None and answer.status == "success" and not answer.warnings

    def _unlike(self, status: int, body: bytes, problem: _Problem | None) -> bytes:
        head = body[:200].lstrip().lower()
        if not body.strip():
            raise SourceError(f"{self.url}: empty answer (HTTP {status})", hint=_IS_IT)
        if head.startswith((b"<!doctype", b"<html", b"<")):
            raise SourceError(
                f"{self.url} answered HTML, not JSON (HTTP {status})",
                hint="a login page or a wrong path: prometheus.url is the base URL, without /graph",
            )
        if problem is not None and problem.status == "success":
            return body
        if problem is None and status == _OK and head.startswith(b"{"):
            raise TemporaryError(f"{self.url}: the answer was cut short after {len(body)} bytes")
        raise SourceError(
            f"{self.url} does not answer as Prometheus does (HTTP {status}): "
            f"{shorten(body[:2000].decode(errors='replace'))}",
            hint=_IS_IT,
        )

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def _measure_stretch(path: str, parameters: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a query is of a stretch of time, and whether that can be sent in halves."""
    if path == "query_range":
        return True, parameters["start"] != parameters["end"]
    length = _STRETCH.search(parameters.get("query", ""))
    return length is not None, length is not None and int(length[1]) > LEAST_S * 1000


_REMOTE_READ = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
_STREAM = "application/x-streamed-protobuf"
_DELIMITERS = ("Transfer-Encoding", "Content-Length")
_ENDS = (b"}", b"}\n")
_IS_IT = "is this a Prometheus?"
_NEAR = 65_536
_PARTIAL = (b'"warnings":["', b'"isPartial":true')
"""Keys beside the data: inside the data, a quote of a label's value would have a backslash."""
_ABOUT_THE_QUERY = ("PromQL ",)
_NO_STORE = "No StoreAPIs matched for this query"
"""What Thanos says where no store can have data of the query's range."""
_NOTHING = b'{"status":"success","data":{"resultType":"%s","result":[]}}'
LEAST_S = 60
"""A stretch that a server refuses because of its size is halved down to this."""
_STRETCH = re.compile(r"\[(\d+)ms\]$")
_QUEUE = "in query queue"
"""Where a query of any length waits: as long as other queries run."""
_BACKOFF = tenacity.wait_exponential_jitter(multiplier=0.5, max=MAX_BACKOFF_S, jitter=0.5)


def check_url(url: str) -> str:
    """Return a base URL without its trailing slash or /api/v1.

    Raises:
        UsageError: it is no http or https address.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(
            f"prometheus.url {url!r} is not an address", hint="http://host:9090 is an address"
        )
    return url.strip().rstrip("/").removesuffix("/api/v1").rstrip("/")


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    return max(_BACKOFF(state), error.after_s if isinstance(error, BusyError) else 0.0)


def _compare_clocks(headers: Mapping[str, str]) -> timedelta:
    """Return how far the clock that dated an answer is ahead of ours; 0 where nobody dated it.

    An answer with an `Age` is a cache's copy: its date is of the past.
    """
    if "Age" in headers:
        return timedelta(0)
    try:
        date = parsedate_to_datetime(headers.get("Date", ""))
        return date - datetime.now(UTC)
    except (TypeError, ValueError, OverflowError):  # no date, or one without a zone
        return timedelta(0)


def _find_problem(body: bytes) -> _Problem | None:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except UNREADABLE_JSON:
        return None


def _is_too_much(status: int, problem: _Problem | None, reason: str) -> bool:
    timed_out = problem is not None and problem.errorType == "timeout" and _QUEUE not in reason
    return timed_out or (status in _REFUSED and any(w in reason.lower() for w in _TOO_MUCH))


def _stamp(timestamp: datetime) -> str:
    return f"{timestamp.timestamp():.3f}"


def format_failure(error: FallowError) -> str:
    """Return an error as one line for a `scrape` row."""
    return str(error)
