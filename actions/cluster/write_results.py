"""Interpret an API server's answer to a write.

Every rule was measured on kube-apiserver 1.36 (tests/actions/cluster checks them against a server).
A uid that no longer matches gives 422 and not 409. A refusal by a disruption budget is 429 like
throttling, and only the cause tells the two apart. Two budgets on one pod give 500, and retrying
does not help.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from fallow.errors import UNREADABLE_JSON
from fallow.kube.api import Reply, decode_status
from fallow.kube.api_objects import ApiStatus

WriteVerdict = Literal["done", "conflict", "gone", "refused", "throttled", "invalid", "away"]
"""conflict: the object changed, decide again. throttled: retry later. away: whether the write took
effect is unknown."""

OK = 200
ERRORS = 300
_PATCH_REFUSED = "the server rejected our request due to an error in our request"
_MANAGER = re.compile(r'conflict with "([^"]+)"')
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_RULES: tuple[tuple[tuple[int, ...], str, WriteVerdict, str], ...] = (
    ((404, 410), "", "gone", ""),
    ((409,), "AlreadyExists", "conflict", "exists"),
    ((409,), "FieldManagerConflict", "conflict", "manager"),
    ((409,), "", "conflict", "version"),
    ((422,), "metadata.uid", "conflict", "uid"),
    ((429,), "DisruptionBudget", "throttled", "budget"),
    ((429,), "", "throttled", "rate"),
    ((403,), "exceeded quota", "refused", "quota"),
    ((403,), "failed quota", "refused", "quota"),
    ((403,), "ValidatingAdmissionPolicy", "refused", "admission"),
    ((400, 403), "admission webhook", "refused", "admission"),
    ((403,), " cannot ", "refused", "rights"),
    ((403,), "", "refused", ""),
    ((401,), "", "refused", "credentials"),
    ((408,), "", "away", "server"),
)
"""Codes, a text of the cause, of the reason or of the message, and what the answer means then."""


class WriteResult(msgspec.Struct, frozen=True):
    """The result of one write."""

    verdict: WriteVerdict
    code: int
    object: Mapping[str, Any] | None = None
    """The object after the write; None where the write was not applied."""
    reason: str = ""
    """The explanation, one line."""
    cause: str = ""
    """uid, version, exists, manager, test, budget, budgets, rate, quota, admission, rights, …"""
    retry_after: float | None = None
    """Seconds after which a retry is allowed, where the server states them."""
    manager: str | None = None
    """The field manager that our write conflicts with."""

    @property
    def ok(self) -> bool:
        """Return whether the write was applied, or a dry run would apply it."""
        return self.verdict == "done"


def interpret_reply(reply: Reply, *, json_patch: bool = False) -> WriteResult:
    """Return what a reply means; `json_patch`: a 422 without a cause is a failed `test`."""
    if OK <= reply.code < ERRORS:
        return WriteResult("done", reply.code, _get_object(reply.body))
    status = decode_status(reply.body)
    text = " ".join((status.message or status.reason or f"HTTP {reply.code}").split())
    verdict, cause = _interpret_answer(reply.code, status, text, json_patch=json_patch)
    if cause == "budget":  # the message names no budget, its cause does
        text = " ".join((text, *_list_budgets(status)))
    after = reply.retry_after_s
    if after is None and status.details is not None:
        after = status.details.retry_after_seconds
    managers = _MANAGER.search(text) if cause == "manager" else None
    return WriteResult(
        verdict,
        reply.code,
        reason=text,
        cause=cause,
        retry_after=after if verdict in {"throttled", "away"} else None,
        manager=managers.group(1) if managers else None,
    )


def report_no_answer(text: str) -> WriteResult:
    """Return the result for a missing answer: the write may have been applied or not."""
    return WriteResult("away", 0, reason=text, cause="timeout")


def _interpret_answer(
    code: int, status: ApiStatus, text: str, *, json_patch: bool
) -> tuple[WriteVerdict, str]:
    details = status.details.causes if status.details else None
    causes = {phrase for c in details or () for phrase in (c.reason, c.field) if phrase}
    if _TWO_BUDGETS in text:
        return "refused", "budgets"
    for codes, phrase, verdict, cause in _RULES:
        if code in codes and (
            not phrase or phrase in causes or phrase in text or phrase == status.reason
        ):
            return verdict, cause
    if json_patch and text.startswith(_PATCH_REFUSED):
        return "conflict", "test"
    return ("away", "server") if code >= 500 else ("invalid", "")  # noqa: PLR2004


def _list_budgets(status: ApiStatus) -> list[str]:
    """Return what a refusal states about disruption budgets."""
    causes = status.details.causes if status.details else None
    return [c.message for c in causes or () if c.reason == "DisruptionBudget" and c.message]


def _get_object(body: bytes) -> Mapping[str, Any] | None:
    try:
        document = msgspec.json.decode(body)
    except UNREADABLE_JSON:
        return None
    return document if isinstance(document, dict) else None
