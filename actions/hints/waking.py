"""Check whether a workload uses its tensor cores after a hint: the same pipe before and after."""

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from fallow.models import Subject
from fallow.protocols import Views
from fallow.resources import read_text

LEAST_HOURS = 2.0
"""GPU-hours of work before and after below which a mean is not reliable."""
WOKE = 2.0
"""Minimum ratio of the activity after a hint to before. The low end of the gain that TF32 promises
is smaller than this ratio; noise is much smaller."""
ASLEEP = 0.02
"""Below this activity (0-1) a pipe counts as unused (settings: precision.tensor_asleep)."""


class Waking(msgspec.Struct, frozen=True):
    """Tensor core activity (0-1) before a hint and after it; None = not measured."""

    verdict: Literal["woke up", "still asleep", "unknown"]
    before: float | None
    after: float | None
    hours_before: float
    hours_after: float


def woke_up(
    views: Views, subject: Subject, hinted: datetime, now: datetime, *, back: timedelta
) -> Waking:
    """Compare a workload's tensor activity during work before and after a hint."""
    asked = {
        "cluster": subject.cluster,
        "namespace": subject.namespace,
        "workload_kind": subject.workload_kind,
        "workload": subject.workload,
        "since": hinted - back,
        "taken": hinted,
        "until": now,
    }
    text = read_text("actions.hints", "waking.sql")
    row = views.query(text, asked).to_pylist()[0]
    return Waking(_verdict(row["before"], row["after"], row), **row)


def _verdict(
    before: float | None, after: float | None, hours: dict[str, float]
) -> Literal["woke up", "still asleep", "unknown"]:
    seen = min(hours["hours_before"], hours["hours_after"])
    if before is None or after is None or seen < LEAST_HOURS:
        return "unknown"
    return "woke up" if after >= ASLEEP and after >= WOKE * before else "still asleep"
