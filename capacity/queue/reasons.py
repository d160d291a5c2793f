"""Say why a workload waits: from events, conditions, containers and from placement."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from capacity.placement.fleet_state import PodRecord, convert_micros
from capacity.placement.pending_places import PendingAnswer
from capacity.queue.records import Reason, WaitReason
from fallow.protocols import Views
from fallow.resources import read_table, read_text

PodName = tuple[str, str, str]
"""cluster, namespace, pod"""
LONGEST = 240
"""Characters of a message that a reason shows."""


def read_messages(
    views: Views, since: datetime, until: datetime
) -> dict[PodName, list[WaitReason]]:
    """Return what events say of each pod, the newest of each kind of event, as reasons."""
    rows = views.query(
        read_text("capacity.queue", "messages.sql"), {"since": since, "until": until}
    ).to_pylist()
    by_pod: dict[PodName, list[WaitReason]] = {}
    for row in rows:
        text = f"{row['reason']}: {row['message']}"
        reasons = classify_text(text, "event", convert_micros(row["at_us"]))
        by_pod.setdefault((row["cluster"], row["namespace"], row["pod"]), []).extend(reasons)
    return by_pod


def list_messages(
    pods: Sequence[PodRecord], messages: Mapping[PodName, Sequence[WaitReason]]
) -> list[WaitReason]:
    """Return what conditions and events say of why pods wait."""
    reasons: list[WaitReason] = []
    for pod in pods:
        mine = [
            reason
            for reason in messages.get((pod.key[0], pod.key[1], pod.pod), ())
            if reason.at is None or reason.at >= convert_micros(pod.begin)
        ]
        reasons.extend([*read_condition(pod.unscheduled), *mine])
    return reasons


def list_reasons(messages: Sequence[WaitReason], answer: PendingAnswer) -> tuple[WaitReason, ...]:
    """Return why pods wait, each reason once: quota first, the scheduler's words, the placement.

    While a quota binds, no room on nodes helps.
    """
    reasons = [*messages, *_explain_placement(answer)]
    if not reasons:
        text = "no event, no condition, and no placement says why"
        if answer.answer == "fits_here":
            text = "free capacity would take it, and no event or condition says what holds it back"
        elif answer.answer == "unknown":
            text = answer.why
        reasons = [WaitReason("unknown", text, "placement")]
    return tuple(sorted(_drop_repeats(reasons), key=lambda reason: reason.reason != "quota"))


def classify_text(text: str, source: str, at: datetime | None) -> list[WaitReason]:
    """Return the reasons that a message names; none = it names no known one."""
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return [
        WaitReason(reason, cut, source, at)
        for pattern, reason in _read_patterns()
        if pattern.search(text)
    ]


def read_condition(text: str | None) -> list[WaitReason]:
    """Return the reasons in a scheduler's condition: JSON of reason, message and since."""
    condition: Mapping[str, Any] = msgspec.json.decode(text) if text else {}
    words = [str(condition[name]) for name in ("reason", "message") if condition.get(name)]
    if not words:
        return []
    since = condition.get("since")
    at = datetime.fromisoformat(since) if isinstance(since, str) else None
    joined = ": ".join(words)
    return classify_text(joined, "condition", at) or [
        WaitReason("unknown", joined, "condition", at)
    ]


def _explain_placement(answer: PendingAnswer) -> list[WaitReason]:
    """Return why the whole own cluster does not take it now, by the placement."""
    own = [p for p in answer.places if p.cluster == answer.key[0] and p.pool is None]
    if not own or own[0].state == "fits":
        return []
    if own[0].state == "unknown":
        quota = [r for r in classify_text(own[0].why, "placement", None) if r.reason == "quota"]
        return quota or [WaitReason("unknown", own[0].why, "placement")]
    return classify_text(own[0].why, "placement", None)


def _drop_repeats(reasons: Iterable[WaitReason]) -> tuple[WaitReason, ...]:
    first: dict[Reason, WaitReason] = {}
    for reason in reasons:
        first.setdefault(reason.reason, reason)
    if len(first) > 1:
        first.pop("unknown", None)
    return tuple(first.values())


@cache
def _read_patterns() -> tuple[tuple[re.Pattern[str], Reason], ...]:
    rows = read_table("capacity.queue", "reasons.csv")
    return tuple(
        (re.compile(row["pattern"]), msgspec.convert(row["reason"], Reason)) for row in rows
    )
