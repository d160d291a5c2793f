"""Check whether tensor cores woke up after a hint: the same pipe, before and after."""

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from fallow.models import Subject
from fallow.protocols import Views
from fallow.resources import read_text

LEAST_HOURS = 2.0
"""GPU-hours at work on either side, below which a mean says little."""
WOKE = 2.0
"""Times as busy as before: the low end of what TF32 promises is less, noise is much less."""
ASLEEP = 0.02
"""Below this a pipe sleeps whatever it was before (settings: precision.tensor_asleep)."""


class Waking(msgspec.Struct, frozen=True):
    """How busy tensor cores were before a hint and after it; None = nobody measured."""

    verdict: Literal["woke up", "still asleep", "unknown"]
    before: float | None
    after: float | None
    hours_before: float
    hours_after: float


def woke_up(
    views: Views, subject: Subject, hinted: datetime, now: datetime, *, back: timedelta
) -> Waking:
    """Compare a workload's tensor activity at work before and after a hint."""
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
