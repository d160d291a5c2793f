"""GET /v1/idleness: whether a workload is idle and may be stopped, for other schedulers.

    GET /v1/idleness?cluster=c&namespace=ml&kind=Deployment&name=web
    {"schema": "fallow.idleness/v1", "state": "idle", "actionable": false, "refusals": [...], ...}

Every answer says `state` and `actionable`, errors too: there they are `unknown` and false.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from fallow.errors import FallowError, TemporaryError, UsageError
from runtime.operations.analysis.idleness import Idleness, IdlenessReader
from runtime.rendering.tables import document
from runtime.service.api import ApiAccess

PATH = "/v1/idleness"
PARAMETERS = ("cluster", "namespace", "kind", "name")
LONGEST = 253
"""Characters of a name in Kubernetes."""
MOST_FIELDS = 16
RETRY_S = 5
"""When to try again after an answer of 503."""
UNDECIDED = {"state": "unknown", "actionable": False}
"""The fields that every error has, so that no reader takes it for a permission."""


class IdlenessAnswer(NamedTuple):
    """An HTTP answer: code, body, headers of its own."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class RateLimit:
    """So many requests per minute, at most a minute's requests at once."""

    def __init__(self, per_minute: int, ticks: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._most, self._ticks = per_minute / 60, float(per_minute), ticks
        self._left, self._at = self._most, ticks()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Count a request; return 0 where it is allowed, else the seconds until one is."""
        with self._lock:
            now = self._ticks()
            self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
            self._at = now
            if self._left >= 1:
                self._left -= 1
                return 0.0
            return (1 - self._left) / self._rate


class IdlenessApi:
    """Answers other schedulers; `reader` is set when the warehouse is open."""

    def __init__(
        self,
        access: ApiAccess,
        limit: RateLimit,
        on_request: Callable[[str, int], None] = lambda _verb, _code: None,
    ) -> None:
        self._access, self._limit, self._on_request = access, limit, on_request
        self.reader: IdlenessReader | None = None

    def answer(self, query: str, headers: Mapping[str, str]) -> IdlenessAnswer:
        """Return the answer to one GET."""
        answer = self._answer(query, headers)
        self._on_request("idleness", answer.code)
        return answer

    def _answer(self, query: str, headers: Mapping[str, str]) -> IdlenessAnswer:
        refusal = self._refuse(headers)
        if refusal is not None:
            return refusal
        try:
            workload = _parse_query(query)
            idleness = self._read(workload)
        except UsageError as error:
            return _answer_error(400, error.message, error.hint)
        except TemporaryError as error:
            return _answer_error(503, error.message, error.hint, retry_s=RETRY_S)
        except FallowError as error:
            return _answer_error(500, error.message, error.hint)
        if idleness is None:
            return _answer_not_seen(workload)
        body = document("idleness", msgspec.structs.asdict(idleness))
        return IdlenessAnswer(200, body.encode(), {})

    def _read(self, workload: Mapping[str, str]) -> Idleness | None:
        if self.reader is None:
            raise TemporaryError("the service is starting", hint="try again when /readyz says so")
        return self.reader.read(**workload)

    def _refuse(self, headers: Mapping[str, str]) -> IdlenessAnswer | None:
        """Return the refusal of a client without access, or of one request too many."""
        refusal = self._access.refuse(headers)
        if refusal is not None:
            return _answer_error(refusal[0], refusal[1]["error"], refusal[1]["hint"])
        wait = math.ceil(self._limit.take())
        if not wait:
            return None
        hint = f"try again in {wait} s; service.idleness_per_minute is the limit"
        return _answer_error(429, "too many requests", hint, retry_s=wait)


def _answer_not_seen(workload: Mapping[str, str]) -> IdlenessAnswer:
    """Return the answer about a name that may be misspelt: no state, so that none is misread."""
    name = "/".join(workload[part] for part in ("kind", "namespace", "name"))
    return _answer_error(
        404,
        f"no workload {name!r} held a GPU in cluster {workload['cluster']!r} in the last day",
        "kind, namespace and name of the top owner, such as Deployment/ml/web; this does not "
        "mean that it is idle",
    )


def _parse_query(query: str) -> dict[str, str]:
    """Return the workload that a query names.

    Raises:
        UsageError: a parameter is missing, unknown, repeated, empty or no name.
    """
    hint = f"write each once: {', '.join(PARAMETERS)}"
    try:
        fields = parse_qs(
            query, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError as error:
        raise UsageError(f"the query cannot be read: {error}", hint=hint) from error
    unknown = [name for name in fields if name not in PARAMETERS]
    if unknown:
        raise UsageError(f"there is no parameter {unknown[0][:LONGEST]!r}", hint=hint)
    for name in PARAMETERS:
        values = fields.get(name, [])
        if len(values) != 1:
            count = "is missing" if not values else "is given several times"
            raise UsageError(f"the parameter {name} {count}", hint=hint)
        if not values[0] or len(values[0]) > LONGEST or not values[0].isprintable():
            raise UsageError(
                f"{name} is no name", hint=f"1 to {LONGEST} printable characters; {hint}"
            )
    return {name: fields[name][0] for name in PARAMETERS}


def _answer_error(
    code: int, message: str, hint: str | None, *, retry_s: int | None = None
) -> IdlenessAnswer:
    body: dict[str, Any] = {"error": message, "hint": hint or "", **UNDECIDED}
    headers = {} if retry_s is None else {"Retry-After": str(retry_s)}
    return IdlenessAnswer(code, document("error", body).encode(), headers)
