"""What an API server's answer to a write means for us.

Every rule was measured on kube-apiserver 1.36 (tests/actions/cluster holds them to a server):
a uid that no longer fits is 422 and not 409; a budget's refusal is 429 like throttling, and only
its cause tells them apart; two budgets on one pod are 500, which no waiting helps.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from fallow.kube.api import Reply, decode_status
from fallow.kube.api_objects import ApiStatus

WriteVerdict = Literal["done", "conflict", "gone", "refused", "throttled", "invalid", "away"]
"""conflict: it changed, decide again. throttled: later. away: nobody knows whether it took."""

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
"""Codes, a word of a cause, of the reason or of the message, and what the answer means then."""


class WriteResult(msgspec.Struct, frozen=True):
    """What came of one write."""

    verdict: WriteVerdict
    code: int
    object: Mapping[str, Any] | None = None
    """The object after the write; None where it did not take."""
    reason: str = ""
    """In words, one line."""
    cause: str = ""
    """uid, version, exists, manager, test, budget, budgets, rate, quota, admission, rights, …"""
    retry_after: float | None = None
    """Seconds after which it may be tried again, where the server says so."""
    manager: str | None = None
    """The field manager that our write conflicts with."""

    @property
    def ok(self) -> bool:
        """Say whether the write took, or would take."""
        return self.verdict == "done"


def interpret_reply(reply: Reply, *, json_patch: bool = False) -> WriteResult:
    """Return what a reply means; `json_patch`: a 422 without a word is a failed `test`."""
    if OK <= reply.code < ERRORS:
        return WriteResult("done", reply.code, _object(reply.body))
    status = decode_status(reply.body)
    text = " ".join((status.message or status.reason or f"HTTP {reply.code}").split())
    verdict, cause = _verdict(reply.code, status, text, json_patch=json_patch)
    if cause == "budget":  # the message names no budget, its cause does
        text = " ".join((text, *_budgets(status)))
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


def no_answer(text: str) -> WriteResult:
    """Return the answer that did not come: the write may have taken or not."""
    return WriteResult("away", 0, reason=text, cause="timeout")


def _verdict(
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


def _budgets(status: ApiStatus) -> list[str]:
    """Return what a refusal says about disruption budgets."""
    causes = status.details.causes if status.details else None
    return [c.message for c in causes or () if c.reason == "DisruptionBudget" and c.message]


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return document if isinstance(document, dict) else None
