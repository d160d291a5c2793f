"""Compute a verdict from signals: the truth table, as pure functions.

Source: telemetry-and-waste.md#idle and #safety.

    K1 compute   the idle run itself
    K2 physics   power within the idle band, gpu_idle clocks, no process, last kernel long ago
    K3 host      quiescent host: little CPU and network use of the pods
    K4 intent    kernels and terminals idle, no requests

A signal is True (for idle), False (against idle) or None (no data). K1 alone is `suspected`; K1
with an independent signal is `confirmed`; acting needs K1, K2 and K3 or K4. A MIG instance has no
power sensor of its own, and power that stands still may be frozen with the rest of the device's
telemetry: on such devices acting needs K1 with both K3 and K4 instead.
"""

from typing import Literal

import msgspec

from fallow.models import Evidence, Verdict

Signal = bool | None

HARD = {
    "conflict": "signals contradict each other: the energy counter and the power gauge",
    "stale": "the telemetry repeats an old value: energy counter or power stood still",
    "node_not_ready": "the node is not ready",
    "skew": "clocks differ by more than 30 s",
    "opt_out": "an annotation protects the workload",
    "not_running": "the pods do not run",
    "bursty": "too many samples in the run were not idle",
    "unattributed": (
        "telemetry names no pods: which devices of its node it leaves unused is not known"
    ),
}
"""Vetoes without any verdict: the workload is reported as unknown."""

SOFT = {
    "missing": "too few samples: coverage is below the setting",
    "moving": "bytes move over PCIe or NVLink: data or a model may be loading",
    "starting": "the pod is younger than the least duration and the startup grace",
    "waiting_peer": "a pod of the workload waits or starts: the others may wait for it",
    "unseen": "replicas of the workload have no telemetry",
}
"""Vetoes that limit the verdict to a suspicion: reported, never confirmed, never acted upon."""

UNACTIONABLE = {
    "unknown_owner": "the top owner could not be resolved",
    "protected": "an annotation asks that the pods are not disrupted",
    "shared_estimated": "it is a shared device: idle, but the shares of its pods are an estimate",
    "too_recent": "a service that has not rested for `idle.service_duration`",
    "no_request_metrics": "no request metrics tell whether it serves",
    "recurrent": "it has rested about as long before and went on by itself",
}
"""Vetoes on acting only: the waste is certain, the right action is not."""


VETOES = SOFT | {
    name: UNACTIONABLE[name] for name in ("unknown_owner", "protected", "shared_estimated")
}
"""Vetoes on anything but a report, whatever a policy allows: the finding's `vetoes`."""


class IdleSignals(msgspec.Struct, frozen=True):
    """The signals for and against one idle stretch of one workload, and the vetoes."""

    compute: bool = True
    physics: Signal = None
    host: Signal = None
    intent: Signal = None
    conflict: bool = False
    stale: bool = False
    node_not_ready: bool = False
    skew: bool = False
    opt_out: bool = False
    not_running: bool = False
    bursty: bool = False
    unattributed: bool = False
    missing: bool = False
    shared_estimated: bool = False
    starting: bool = False
    moving: bool = False
    unknown_owner: bool = False
    protected: bool = False
    too_recent: bool = False
    no_request_metrics: bool = False
    waiting_peer: bool = False
    unseen: bool = False
    recurrent: bool = False
    requested: bool = False
    """Requests run, wait or are swapped out at its servers: intent, and no evidence of work."""
    on_hold: bool = False
    """A disruption budget allows none, or it is a standby (`analyzers.holds`)."""
    low: bool = False
    """The devices have a steady low activity, and more power than idle devices."""
    no_power_sensor: bool = False
    """The devices are MIG instances without a power sensor: physics may stay unknown."""
    power_still: bool = False
    """Nothing tells a device from one whose telemetry is frozen: so does physics."""


class Judgement(msgspec.Struct, frozen=True):
    """A verdict with its confidence and reasons; `evidence` is None where there is no finding."""

    verdict: Verdict
    evidence: Evidence | None
    actionable: bool
    reasons: tuple[str, ...]
    """Why the verdict is not stronger; empty for an actionable one, and for one that is only held
    by its owner or by requests."""


def judge_signals(w: IdleSignals) -> Judgement:
    """Return the verdict on one stretch in which all of a workload's devices seem idle."""
    hard = tuple(why for name, why in HARD.items() if getattr(w, name))
    if hard:
        return Judgement("unknown", None, actionable=False, reasons=hard)
    activity = _describe_activity(w)
    if activity is not None:
        return Judgement("busy", None, actionable=False, reasons=(activity,))
    reasons = (*_list_objections(w), *_list_missing_signals(w))
    is_released = not (w.requested or w.on_hold)
    actionable = is_released and not reasons
    return Judgement("idle", _grade_evidence(w), actionable=actionable, reasons=reasons)


def _describe_activity(w: IdleSignals) -> str | None:
    """Return why the workload counts as busy; None = there is no reason."""
    if w.low:
        return "the devices do steady low work"
    if not w.compute:
        return "the devices compute"
    if w.intent is False:
        return "a kernel or terminal is at work, or requests are served"
    return None


def _grade_evidence(w: IdleSignals) -> Literal["confirmed", "suspected"]:
    """Return `confirmed` where a signal besides compute is for idle, and none is against it."""
    capped = any(getattr(w, name) for name in SOFT) or w.physics is False or w.host is False
    return "confirmed" if _has_independent_signal(w) and not capped else "suspected"


def _has_independent_signal(w: IdleSignals) -> bool:
    return bool(w.physics or w.host or w.intent)


def _list_objections(w: IdleSignals) -> list[str]:
    """Return the vetoes and the signals against idle, as text."""
    reasons = [why for table in (SOFT, UNACTIONABLE) for n, why in table.items() if getattr(w, n)]
    if w.physics is False:
        reasons.append("power is above the idle band")
    if w.host is False:
        reasons.append("the host is busy: preprocessing, a download or a checkpoint")
    return reasons


def _list_missing_signals(w: IdleSignals) -> list[str]:
    """Return the signals that are missing for an act, as text."""
    reasons = []
    has_both = (w.no_power_sensor or w.power_still) and w.host and w.intent
    if w.power_still and w.physics is None and not has_both:
        reasons.append("power stands still and nothing tells idle from frozen")
    elif not _has_independent_signal(w):
        reasons.append("no independent signal beside compute")
    elif w.physics is None and not has_both:
        reasons.append("no signal of physics (power, processes, last kernel)")
    if not (w.host or w.intent):
        reasons.append("no signal from the host or of intent")
    return reasons


def compute_confidence(
    w: IdleSignals, *, coverage: float, exact: bool, evidence: Evidence | None
) -> float:
    """Return coverage x (keys satisfied / keys with data) x attribution.

    Source: telemetry-and-waste.md#idle.

    An estimated attribution halves it, and so does a suspicion: one signal without an independent
    one beside it is not certainty.
    """
    keys = (w.compute, w.physics, w.host, w.intent)
    speaking = [k for k in keys if k is not None]
    score = min(max(coverage, 0.0), 1.0) * sum(speaking) / len(speaking)
    score *= 1.0 if exact else 0.5
    return round(score * (1.0 if evidence == "confirmed" else 0.5), 4)
